"""The interleaved series: every tool on every load, in random order within each round."""

import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bpf
import rig
from ratios import spread
from tools import OTHERS, UNTRACED, Tool, UnusableError
from workloads import Ground, Run, Workload

EVERY = 3  # the slowdown by other tools is so large that a third of the rounds is enough
GROUP_NICE = -10
LOADS_S, RIG_S = 270.0, 150.0  # the whole benchmark may take ten minutes
RIG_TITLE = "Postfix and Dovecot, {} messages by SMTP until the last is in its Maildir"
Results = dict[str, dict[str, list[tuple[int, Run]]]]


class Series:
    """Runs the tools and collects results; a tool that does not run here is dropped.

    Attributes:
        missing: Reason by dropped tool; and by ``rig`` if there are no servers.
    """

    def __init__(self, tools: Sequence[Tool], rounds: int, scale: float) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.rounds, self.scale = rounds, scale
        self.missing: dict[str, str] = {}
        self.runs: Results = defaultdict(lambda: defaultdict(list))

    def order(self, number: int) -> list[Tool]:
        """Return the tools of a round, shuffled; the untraced run is in every round."""
        others = {tool.name for tool in OTHERS} if number % EVERY else set()
        chosen = [name for name in self.tools if name not in others | self.missing.keys()]
        return [self.tools[name] for name in random.sample(chosen, len(chosen))]

    def on_loads(self, ground: Ground, workloads: Sequence[Workload]) -> None:
        """Run every load under every tool; a tool stays attached for the loads of its round."""
        for number in in_time(self.rounds, LOADS_S):
            for tool in self.order(number):
                say(f"round {number + 1} of {self.rounds}: {tool.name}")
                try:
                    with tool.attached(ground.work, ground.spool) as wrap:
                        for load in workloads:
                            run = ground.run(load, wrap, self.scale)
                            self.runs[load.name][tool.name].append((number, run))
                except UnusableError as error:
                    self.missing[tool.name] = str(error)

    def on_rig(self, work: Path, servers: rig.Rig, rounds: int, messages: int) -> None:
        """Run the mail servers under every tool; they start anew for each."""
        servers.run(messages)  # makes the mailboxes
        for number in in_time(rounds, RIG_S):
            for tool in self.order(number):
                say(f"rig, round {number + 1} of {rounds}: {tool.name}")
                try:
                    with tool.attached(work, servers.spool) as wrap:
                        run = servers.run(messages, wrap)
                except UnusableError as error:
                    self.missing[tool.name] = str(error)
                    continue
                self.runs["rig"][tool.name].append((number, run))

    def summary(self, titles: dict[str, str]) -> dict[str, Any]:
        """Return, by load and tool, ratios to the untraced run of the same round."""
        return {
            name: {
                "title": titles[name],
                "tools": {
                    tool: self.ratios(runs, dict(tools[UNTRACED])) for tool, runs in tools.items()
                },
            }
            for name, tools in self.runs.items()
        }

    def ratios(self, runs: list[tuple[int, Run]], base: dict[int, Run]) -> dict[str, Any]:
        pairs = [(run, base[number]) for number, run in runs if number in base]
        found: dict[str, Any] = {"n": len(pairs)}
        for key in ("ns_per_op", "p50_ns", "p99_ns", "cpu_ns_per_op"):
            values = [(getattr(run, key), getattr(plain, key)) for run, plain in pairs]
            if all(run and plain for run, plain in values):
                ratio = spread([run / plain for run, plain in values])
                found[key] = asdict(ratio) | {"ns": spread([run for run, _ in values]).median}
        if "cpu_ns_per_op" in found:
            added = (
                1 + (run.cpu_ns_per_op - plain.cpu_ns_per_op) / plain.p50_ns
                for run, plain in pairs
                if plain.p50_ns
            )
            found["cpu_added"] = asdict(spread(list(added)))
        return found


def in_time(rounds: int, seconds: float) -> Iterator[int]:
    """Yield numbers of rounds until all are done or the time is over, on a busy machine."""
    end = time.monotonic() + seconds
    for number in range(rounds):
        if time.monotonic() > end:
            say(f"no time for more than {number} of {rounds} rounds")
            return
        yield number


def machine() -> dict[str, Any]:
    """Return facts on the machine that a reader needs, and how busy it is with other work."""
    return {
        "kernel": os.uname().release,
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "bpf_programs_of_others": bpf.tracing_programs(),
        "date": time.strftime("%Y-%m-%d"),
    }


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """Give this session more of the CPU than the rest of the machine.

    This works where sessions are scheduled as groups, sched(7). The nice values of processes, which
    count within the group, stay: the recorder's is lower than that of a load. The session includes
    the caller's shell, so its old value is restored.
    """
    group = Path("/proc/self/autogroup")
    # The file is empty if no process between init and this one has called setsid(2).
    words = group.read_text().split() if group.exists() else []
    if not words:
        yield
        return
    before = words[-1]
    group.write_text(str(GROUP_NICE))
    try:
        yield
    finally:
        group.write_text(before)


def say(text: str) -> None:
    """Print progress to stderr; results go to stdout."""
    print(f"bench: {text}", file=sys.stderr)
