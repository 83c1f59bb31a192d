"""A load of a mail server: an open loop with a given rate, or as fast as possible.

Run as a module, with one argument of JSON; prints one object. It ends with its parent. In the open
loop, arrivals come at random times even if the server does not keep up, and each is timed from when
it was due.
"""

import asyncio
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from spoolscope.lab.mailserver import messages
from spoolscope.lab.mailserver.clients import (
    Plan,
    RefusedError,
    Times,
    plan_from,
    read_by_imap,
    read_by_pop3,
    send_message,
)

MOST_AT_ONCE = 256
"""Most connections; further arrivals wait, which counts in their time."""
MIX = {"smtp": 30, "lmtp": 30, "imap": 25, "pop3": 15}
"""Shares of 100 arrivals: messages, and sessions that read."""


@dataclass(frozen=True)
class Load:
    """Parameters of a load.

    Attributes:
        seconds: Duration of arrivals.
        rate: Arrivals a second; None: ``clients`` work one after the other, without pauses.
        clients: Number of clients if there is no rate.
        mix: Shares of the protocols.
        most: Largest number of arrivals; None: only time ends the load.
        each: Messages go to users in turn, not at random.
        seed: Seed of all random numbers.
    """

    seconds: float
    rate: float | None
    clients: int
    mix: dict[str, int]
    seed: int
    most: int | None = None
    each: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the argument of the program."""
        return asdict(self)


class Runner:
    """Maker of arrivals."""

    def __init__(self, load: Load, plan: Plan) -> None:
        self._load, self._plan = load, plan
        self._numbers = count()
        self.times = Times()
        self.until = time.monotonic() + load.seconds

    async def run(self) -> None:
        """Run the whole load."""
        if self._load.rate is None:
            await asyncio.gather(*(self._client() for _ in range(self._load.clients)))
        else:
            await self._open_loop(self._load.rate)

    async def _client(self) -> None:
        while time.monotonic() < self.until:
            number = next(self._numbers)
            if self._load.most is not None and number >= self._load.most:
                return
            await self._arrival(number, time.time_ns())

    async def _open_loop(self, rate: float) -> None:
        rng, room = random.Random(self._load.seed), asyncio.Semaphore(MOST_AT_ONCE)
        under_way: set[asyncio.Task[None]] = set()

        async def one(number: int, due_ns: int) -> None:
            async with room:
                await self._arrival(number, due_ns)

        due = time.monotonic()
        while (due := due + rng.expovariate(rate)) < self.until:
            await asyncio.sleep(due - time.monotonic())
            late_ns = round(max(0.0, time.monotonic() - due) * 1e9)
            task = asyncio.create_task(one(next(self._numbers), time.time_ns() - late_ns))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async def _arrival(self, number: int, due_ns: int) -> None:
        """Make one message or session; its content depends on its number, not on the time."""
        rng = random.Random(f"{self._load.seed} {number}")
        [kind] = rng.choices(list(self._load.mix), list(self._load.mix.values()))
        begin, paused, size, end = time.time_ns(), 0, 0, None
        try:
            match kind:
                case "imap":
                    paused = await read_by_imap(self._plan, rng, self.times, self.until)
                case "pop3":
                    await read_by_pop3(self._plan, rng, self.times)
                case _:
                    size, end = await self._message(kind, rng, number)
        except (RefusedError, OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            self.times.failed(_name(kind), begin, due_ns, f"{error}" or type(error).__name__)
        else:
            self.times.add(_name(kind), begin, size, due_ns + paused, end)

    async def _message(self, kind: str, rng: random.Random, number: int) -> tuple[int, int]:
        """Send a message; return its size and its time of acceptance."""
        users = self._plan.users
        sender = messages.user(rng.randint(1, users))
        turn = 1 + number % users
        recipient = messages.user(turn if self._load.each else rng.randint(1, users))
        data = messages.message(rng, sender, recipient)
        hello = "LHLO" if kind == "lmtp" else "EHLO"
        port = self._plan.ports[kind]
        return len(data), await send_message(port, hello, sender, recipient, data)


def _name(kind: str) -> str:
    return f"{kind} session" if kind in ("imap", "pop3") else f"{kind} message"


async def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    os._exit(1)


async def _main(asked: dict[str, Any]) -> dict[str, Any]:
    watcher = asyncio.create_task(_end_with(asked["parent"]))
    runner = Runner(Load(**asked["load"]), plan_from(asked["plan"]))
    begun = time.time_ns()
    await runner.run()
    watcher.cancel()
    spent = os.times()
    return {
        "begun_ns": begun,
        "ended_ns": time.time_ns(),
        "cpu_s": spent.user + spent.system,
        "rows": runner.times.rows,
    }


if __name__ == "__main__":
    json.dump(asyncio.run(_main(json.loads(sys.argv[1]))), sys.stdout)
