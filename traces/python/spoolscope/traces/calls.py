"""The calls that are recorded and replayed, read from calls.txt."""

from dataclasses import dataclass
from pathlib import Path

RETURNS_FD = "=fd"
# Calls that are shown together, in the order in which they are shown.
FAMILIES = (
    "sync", "open", "rename", "link", "unlink", "list", "stat", "read", "write", "lock", "other",
)  # fmt: skip
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
        kind: Calls of one kind are replayed alike; "-" is not replayed as it is.
        effect: What it changes of what other calls find; the words are explained in calls.txt.
        family: One of ``FAMILIES``.
        args: Meaning of each argument by position; the words are explained in calls.txt.
        returns_fd: The result is a new descriptor.
    """

    id: int
    name: str
    klass: str
    kind: str
    effect: str
    family: str
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
        args = tuple(w for w in words[6:] if w != RETURNS_FD)
        number, name, klass, kind, effect, family = words[:6]
        returns_fd = RETURNS_FD in words[6:]
        calls[name] = Call(int(number), name, klass, kind, effect, family, args, returns_fd)
    return calls


CALLS: dict[str, Call] = parse(_file().read_text())
BY_ID: dict[int, Call] = {call.id: call for call in CALLS.values()}

# Calls of which no argument tells whether they concern the spool: all are recorded.
ALWAYS = tuple(
    name
    for name, call in CALLS.items()
    if call.klass == "task"
    or (call.klass != "map" and not {"fd", "dirfd", "path"}.intersection(call.args))
)


def having(column: str, *words: str) -> tuple[str, ...]:
    """Return the names of the calls with one of these words in a column of calls.txt, by id.

    Args:
        column: ``kind``, ``effect``, ``family`` or ``klass``.
        words: What the column may say.

    Raises:
        KeyError: no call has a word.
    """
    if unknown := set(words) - {getattr(call, column) for call in CALLS.values()}:
        raise KeyError(f"no call has the {column} {', '.join(sorted(unknown))}")
    return tuple(name for name, call in CALLS.items() if getattr(call, column) in words)


def of_kind(*kinds: str) -> tuple[str, ...]:
    """Return the names of the calls that are replayed as one of these kinds."""
    return having("kind", *kinds)


def of_effect(*effects: str) -> tuple[str, ...]:
    """Return the names of the calls with one of these effects."""
    return having("effect", *effects)


def of_family(*families: str) -> tuple[str, ...]:
    """Return the names of the calls of these families."""
    return having("family", *families)
