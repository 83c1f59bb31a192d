"""Clients that speak SMTP, LMTP, IMAP and POP3 and time what they do. Standard library only."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from spoolscope.lab.mailserver import messages

ANSWER_S = 60.0
_BUFFER = 1 << 22
_LITERAL = re.compile(rb"\{(\d+)\}\r\n$")
HEADERS = "(UID RFC822.SIZE FLAGS BODY.PEEK[HEADER.FIELDS (From To Subject Date)])"
ACTIONS = {
    "read": 30, "flag": 12, "append": 10, "move": 10, "trash": 10, "copy": 4, "search": 5,
    "status": 6, "folder": 6, "resync": 8, "mailbox": 2, "empty": 2,
}  # fmt: skip
"""Actions of a session with their relative frequencies."""
FOLDERS = ("Sent", "Trash", "Archive")


class RefusedError(Exception):
    """A server refused a request."""


@dataclass(frozen=True)
class Plan:
    """Parameters of the clients.

    Attributes:
        ports: Ports by protocol.
        users: Number of users.
        password: Password of all users.
        login: Login name; ``{}`` is the user's name.
        folders: Prefix of the names of all mailboxes but the inbox.
        think_s: Mean pause between two actions of a session.
    """

    ports: dict[str, int]
    users: int
    password: str
    login: str = "{}"
    folders: str = ""
    think_s: float = 0.0


class Times:
    """Log of actions: rows of kind, due, begin and end (ns since the epoch), bytes and error."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, int, int, str]] = []

    def add(
        self,
        kind: str,
        begin_ns: int,
        size: int,
        due_ns: int | None = None,
        end_ns: int | None = None,
    ) -> None:
        """Note a success; by default it was due at its begin and ends now."""
        due_ns = begin_ns if due_ns is None else due_ns
        end_ns = time.time_ns() if end_ns is None else end_ns
        self.rows.append((kind, due_ns, begin_ns, end_ns, size, ""))

    def failed(self, kind: str, begin_ns: int, due_ns: int, error: str) -> None:
        """Note an action that has just failed."""
        self.rows.append((kind, due_ns, begin_ns, time.time_ns(), 0, error))


class Lines:
    """A connection for lines in both directions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send bytes, and wait while too many are buffered."""
        self._writer.write(data)
        await self._writer.drain()

    async def line(self) -> bytes:
        """Return a line.

        Raises:
            ConnectionError: the server has closed the connection.
        """
        found = await asyncio.wait_for(self._reader.readline(), ANSWER_S)
        if not found.endswith(b"\n"):
            raise ConnectionResetError("the server hung up")
        return found

    async def exactly(self, size: int) -> bytes:
        """Return so many bytes."""
        return await asyncio.wait_for(self._reader.readexactly(size), ANSWER_S)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Lines]:
    """Connect to a port of the loopback."""
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection("127.0.0.1", port, limit=_BUFFER), ANSWER_S
    )
    try:
        yield Lines(reader, writer)
    finally:
        writer.close()


async def send_message(port: int, hello: str, sender: str, recipient: str, data: bytes) -> int:
    """Send a message by SMTP, or by LMTP if ``hello`` is LHLO; return the time of acceptance.

    Raises:
        RefusedError: the server does not take it.
    """
    async with connected(port) as lines:
        await _reply(lines, b"2")
        asked = (
            (f"{hello} client.example.com", b"2"),
            (f"MAIL FROM:<{messages.address(sender)}>", b"2"),
            (f"RCPT TO:<{messages.address(recipient)}>", b"2"),
            ("DATA", b"3"),
        )
        for words, wanted in asked:
            await lines.send(f"{words}\r\n".encode())
            await _reply(lines, wanted)
        await lines.send(data.replace(b"\r\n.", b"\r\n..") + b".\r\n")
        await _reply(lines, b"2")
        accepted = time.time_ns()
        await lines.send(b"QUIT\r\n")
        await _reply(lines, b"2")
        return accepted


async def _reply(lines: Lines, wanted: bytes) -> None:
    """Read a reply of one or more lines."""
    while (line := await lines.line())[3:4] == b"-":
        pass
    if not line.startswith(wanted):
        raise RefusedError(line.decode(errors="replace").strip())


async def read_by_pop3(plan: Plan, rng: random.Random, times: Times) -> None:
    """Fetch a few messages of a user, and delete some of them.

    Raises:
        RefusedError: the server does not let the user in.
    """
    user = messages.user(rng.randint(1, plan.users))

    async with connected(plan.ports["pop3"]) as lines:

        async def ask(words: str, *, many: bool = False) -> bytes:
            await lines.send(f"{words}\r\n".encode())
            said = await lines.line()
            if not said.startswith(b"+OK"):
                raise RefusedError(said.decode(errors="replace").strip())
            size = 0
            while many and (line := await lines.line()) != b".\r\n":
                size += len(line)
            return said if not many else str(size).encode()

        begin = time.time_ns()
        await lines.line()
        await ask(f"USER {plan.login.format(user)}")
        await ask(f"PASS {plan.password}")
        times.add("pop3 login", begin, 0)
        count = int((await ask("STAT")).split()[1])
        await ask("UIDL", many=True)
        for number in rng.sample(range(1, count + 1), min(count, 4)):
            begin = time.time_ns()
            try:
                size = int(await ask(f"RETR {number}", many=True))
            except RefusedError as refused:  # another session has removed it meanwhile
                times.failed("pop3 retr", begin, begin, str(refused))
                continue
            times.add("pop3 retr", begin, size)
            if rng.random() < 0.5:
                await ask(f"DELE {number}")
        begin = time.time_ns()
        await ask("QUIT")
        times.add("pop3 quit", begin, 0)


class Imap:
    """One session of a user: look at the mailbox, a few actions, log out."""

    def __init__(self, plan: Plan, rng: random.Random, times: Times, lines: Lines) -> None:
        self._plan, self._rng, self._times, self._lines = plan, rng, times, lines
        self._user = messages.user(1 + int(plan.users * rng.random() ** 1.5))
        self._tags = 0
        self._uids: list[bytes] = []
        self._capable = b""

    async def run(self, until: float) -> int:
        """Run the session; return the nanoseconds of pauses. No action begins after ``until``.

        Raises:
            RefusedError: the server does not let the user in.
        """
        await self._lines.line()
        self._capable = b" ".join(await self.ask("CAPABILITY"))
        login = self._plan.login.format(self._user)
        await self.ask(f"LOGIN {login} {self._plan.password}")
        there = b" ".join(await self.ask('LIST "" "*"'))
        for name in FOLDERS:
            if name.encode() not in there:
                await self.may(f"CREATE {self._folder(name)}")
        await self.resync()
        paused = 0
        for _ in range(self._rng.randint(3, 12)):
            pause = self._rng.expovariate(1 / self._plan.think_s) if self._plan.think_s else 0.0
            if time.monotonic() + pause > until:
                break
            began = time.time_ns()
            await asyncio.sleep(pause)
            paused += time.time_ns() - began
            action = self._rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
            await getattr(self, action)()
        await self.ask("LOGOUT")
        return paused

    async def ask(self, command: str, data: bytes | None = None) -> list[bytes]:
        """Send a command, perhaps with a literal; return the untagged lines.

        Raises:
            RefusedError: the answer is NO or BAD.
        """
        self._tags += 1
        tag, begin = f"a{self._tags} ", time.time_ns()
        words = command.split()
        kind = f"imap {words[1 if words[0] == 'UID' else 0].lower()}"
        if data is not None:
            await self._lines.send(f"{tag}{command} {{{len(data)}}}\r\n".encode())
            while not (line := await self._lines.line()).startswith(b"+"):
                self._check(line, tag, kind, begin)
            await self._lines.send(data + b"\r\n")
        else:
            await self._lines.send(f"{tag}{command}\r\n".encode())
        found, size = [], 0
        while not (line := await self._lines.line()).startswith(tag.encode()):
            while literal := _LITERAL.search(line):
                size += int(literal[1])
                await self._lines.exactly(int(literal[1]))
                line = line[: literal.start()] + await self._lines.line()
            found.append(line)
        self._check(line, tag, kind, begin)
        self._times.add(kind, begin, size + len(data or b""))
        return found

    def _check(self, line: bytes, tag: str, kind: str, begin_ns: int) -> None:
        text = line.decode(errors="replace").strip()
        if text.startswith(tag) and not text.startswith(f"{tag}OK"):
            self._times.failed(kind, begin_ns, begin_ns, text.removeprefix(tag))
            raise RefusedError(text)

    async def may(self, command: str, data: bytes | None = None) -> list[bytes]:
        """Send a command that another session of the user may have made impossible."""
        try:
            return await self.ask(command, data)
        except RefusedError:
            return []

    def _folder(self, name: str) -> str:
        return f"{self._plan.folders}{name}"

    def _some(self) -> str | None:
        return self._rng.choice(self._uids).decode() if self._uids else None

    async def select(self, name: str) -> None:
        """Open a mailbox and store the list of its messages."""
        await self.may(f"SELECT {name}")
        flat = b" ".join(await self.may("UID FETCH 1:* (FLAGS)"))
        self._uids = re.findall(rb"UID (\d+)", flat)

    async def resync(self) -> None:
        """Look at the inbox and the newest headers."""
        await self.select("INBOX")
        if self._uids:
            await self.may(f"UID FETCH {b','.join(self._uids[-15:]).decode()} {HEADERS}")

    async def read(self) -> None:
        """Read a message."""
        if uid := self._some():
            await self.may(f"UID FETCH {uid} (BODYSTRUCTURE)")
            await self.may(f"UID FETCH {uid} (BODY[])")

    async def flag(self) -> None:
        """Set or take a flag."""
        if uid := self._some():
            await self.may(f"UID STORE {uid} {self._rng.choice('+-')}FLAGS (\\Flagged)")

    async def append(self) -> None:
        """Keep a copy of a message that was sent."""
        data = messages.message(self._rng, self._user, messages.user(1))
        await self.may(f"APPEND {self._folder('Sent')} (\\Seen)", data)

    async def move(self) -> None:
        """File a message."""
        await self._take("Archive")

    async def trash(self) -> None:
        """Throw a message away."""
        await self._take("Trash")

    async def _take(self, name: str) -> None:
        if uid := self._some():
            self._uids.remove(uid.encode())
            if b"MOVE" in self._capable.split():
                await self.may(f"UID MOVE {uid} {self._folder(name)}")
                return
            await self.may(f"UID COPY {uid} {self._folder(name)}")
            await self.may(f"UID STORE {uid} +FLAGS.SILENT (\\Deleted)")
            await self.may("EXPUNGE")

    async def copy(self) -> None:
        """Copy a message."""
        if uid := self._some():
            await self.may(f"UID COPY {uid} {self._folder('Archive')}")

    async def empty(self) -> None:
        """Empty the trash."""
        await self.select(self._folder("Trash"))
        if self._uids:
            await self.may("UID STORE 1:* +FLAGS.SILENT (\\Deleted)")
            await self.may("EXPUNGE")
        await self.resync()

    async def search(self) -> None:
        """Look for a word in subjects."""
        await self.may(f"UID SEARCH SUBJECT {self._rng.choice(messages.WORDS)}")

    async def status(self) -> None:
        """Ask how many messages mailboxes have."""
        for name in FOLDERS:
            await self.may(f"STATUS {self._folder(name)} (MESSAGES UIDNEXT UNSEEN)")

    async def folder(self) -> None:
        """Look into another mailbox."""
        await self.select(self._folder(self._rng.choice(("Sent", "Archive"))))
        await self.resync()

    async def mailbox(self) -> None:
        """Make a mailbox, rename it, remove it."""
        name = self._folder(f"list{self._rng.randrange(10**6)}")
        for command in (f"CREATE {name}", f"RENAME {name} {name}b", f"DELETE {name}b"):
            await self.may(command)


async def read_by_imap(plan: Plan, rng: random.Random, times: Times, until: float) -> int:
    """Make a session; return the nanoseconds of its pauses.

    Raises:
        RefusedError: the server does not let the user in.
    """
    async with connected(plan.ports["imap"]) as lines:
        return await Imap(plan, rng, times, lines).run(until)


def plan_from(found: dict[str, Any]) -> Plan:
    """Return a plan from JSON."""
    return Plan(**found)
