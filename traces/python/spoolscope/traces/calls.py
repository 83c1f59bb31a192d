"""The calls that are recorded and replayed, read from calls.txt."""

from dataclasses import dataclass
from pathlib import Path

RETURNS_FD = "=fd"
# The commands of ioctl that are recorded.
FICLONE, FICLONERANGE, FIONCLEX, FIOCLEX = 0x40049409, 0x4020940D, 0x5450, 0x5451
# Commands that set whether a descriptor is closed on exec, with that value.
MARKS = {FIONCLEX: False, FIOCLEX: True}


@dataclass(frozen=True)
class Call:
    """One line of calls.txt.

    Attributes:
        id: Number stored in captures and plans.
        name: Name without prefix.
        klass: open, data, meta, dir, sync, lock, map, fd, task or watch.
        args: Meaning of each argument by position; the words are explained in calls.txt.
        returns_fd: The result is a new descriptor.
    """

    id: int
    name: str
    klass: str
    args: tuple[str, ...]
    returns_fd: bool

    def position(self, word: str) -> int | None:
        """Return the position of an argument word, or None if the call has no such argument."""
        return self.args.index(word) if word in self.args else None


def _file() -> Path:
    here = Path(__file__).resolve()
    installed = here.with_name("calls.txt")
    return installed if installed.is_file() else here.parents[3] / "calls.txt"


def parse(text: str) -> dict[str, Call]:
    """Parse the text of calls.txt into calls by name, in file order."""
    calls = {}
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        args = tuple(w for w in words[3:] if w != RETURNS_FD)
        calls[words[1]] = Call(int(words[0]), words[1], words[2], args, RETURNS_FD in words[3:])
    return calls


CALLS: dict[str, Call] = parse(_file().read_text())
BY_ID: dict[int, Call] = {call.id: call for call in CALLS.values()}
