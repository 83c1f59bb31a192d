"""The closed list of causes, and the rules that name the cause of a wait from its kernel stack.

A rule is one line of data in ``rules/*.toml``::

    { cause = "dir_lock", stack = "rwsem_down_*_slowpath < filename_create|do_renameat2" },

``<`` separates frames, the innermost first; other frames may lie between them. ``|``
separates alternatives (kernels inline and rename differently), ``*`` is a wildcard.
Compiler suffixes (``.constprop.0``, ``.isra.0``, ``.part.0``, ``.cold``) are ignored.
Files are read in order of their names and the first rule that matches wins.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import regular


@dataclass(frozen=True)
class Cause:
    """One cause: its short label, its group and one sentence of meaning."""

    label: str
    group: str
    meaning: str


CAUSES: dict[str, Cause] = {
    "journal_commit": Cause(
        "journal commit", "journal", "A commit of the journal or log had to reach the disk first."
    ),
    "log_space": Cause(
        "journal full", "journal", "The journal or its reservation was full; space had to be freed."
    ),
    "txn_lock": Cause(
        "transaction lock", "journal", "The running transaction was closed to new changes."
    ),
    "shadow": Cause(
        "block in commit", "journal", "The block was held by the transaction being committed."
    ),
    "ordered_data": Cause(
        "ordered data", "journal", "File data had to be written before its metadata."
    ),
    "writeback": Cause(
        "writeback", "device", "Dirty data, or a block that was to change, was being written."
    ),
    "flush": Cause("cache flush", "device", "The disk was emptying its write cache."),
    "dir_lock": Cause("directory lock", "lock", "Another call was changing the same directory."),
    "lookup_io": Cause("lookup read", "read", "A directory block was read to find a name."),
    "readdir_io": Cause("listing read", "read", "A directory block was read to list names."),
    "inode_io": Cause("inode read", "read", "An inode or its block map was read or freed."),
    "alloc_io": Cause(
        "allocator", "read", "Free space had to be found: read, locked by others, or reclaimed."
    ),
    "block_queue": Cause("block queue", "device", "The request queue of the disk was full."),
    "block_device": Cause("device", "device", "The disk was reading or writing data of the call."),
    "io_throttle": Cause("I/O throttle", "device", "A limit (wbt, iocost, io.max) held I/O back."),
    "dirty_throttle": Cause(
        "dirty throttle", "device", "Writers were slowed until dirty data was written."
    ),
    "file_lock": Cause("file lock", "lock", "A program held a lock on the file (fcntl, flock)."),
    "inode_lock": Cause("inode lock", "lock", "Another call held the inode, tree or page lock."),
    "memory": Cause("memory", "machine", "Memory had to be reclaimed, or its map was locked."),
    "runq": Cause("run queue", "machine", "Woken, but no CPU was free."),
    "preempt": Cause("preempted", "machine", "Pushed off the CPU while running."),
    "steal": Cause(
        "steal", "machine", "Running, but the host of the virtual machine had taken the CPU away."
    ),
    "cpu": Cause("CPU", "machine", "Running on a CPU."),
    "unexplained": Cause("unexplained", "machine", "Blocked, and no rule knows the stack."),
}
"""Every cause, in the order in which tables and stacked bars show them."""

BETWEEN_PROGRAMS = ("file_lock",)
"""Waits of programs for programs. Postfix processes idle in one for minutes, and the work of the
one who holds the lock counts in its own calls: these waits are recorded, summed and listed, but
not charged to the filesystem in headlines, drawings and comparisons."""

MACHINE = {
    "cpu": "oncpu_ns - coalesce(stolen_ns, 0)",
    "steal": "coalesce(stolen_ns, 0)",
    "runq": "runq_ns",
    "preempt": "preempted_ns",
}
"""What of a call was not asleep, and how its row tells (SQL); older traces know of no steal."""

BLOCKED_CAUSES = tuple(c for c in CAUSES if c not in MACHINE and c != "unexplained")
"""Causes that a rule may give."""

_SUFFIX = re.compile(r"\.(constprop|isra|part|cold|llvm)(\.\d+)?")


@dataclass(frozen=True)
class Rule:
    """One rule: the stacks it matches, the cause it gives, the filesystem it is about."""

    cause: str
    stack: str
    filesystem: str
    pattern: re.Pattern[str]


def charged(causes: Mapping[str, float]) -> dict[str, float]:
    """Return {cause: ns} without the waits of programs for programs."""
    return {cause: ns for cause, ns in causes.items() if cause not in BETWEEN_PROGRAMS}


def bare(symbol: str) -> str:
    """Return a function name without the suffixes compilers add to clones of it."""
    return _SUFFIX.sub("", symbol)


def _frame_pattern(alternatives: str) -> str:
    globs = [re.escape(a.strip()).replace(r"\*", "[^\n]*") for a in alternatives.split("|")]
    return rf"(?<![^\n])(?:{'|'.join(globs)})(?![^\n])"


def compile_rule(
    cause: str, stack: str, filesystem: str = "any", causes: Collection[str] = BLOCKED_CAUSES
) -> Rule:
    """Build a rule that gives one of ``causes``.

    Raises:
        SpoolscopeError: the cause is not in the closed list, or a frame is empty.
    """
    if cause not in causes:
        raise SpoolscopeError(
            f"a rule names the unknown cause {cause!r}",
            remedy=f"use one of: {', '.join(causes)}",
        )
    frames = [frame.strip() for frame in stack.split("<")]
    if not all(frames):
        raise SpoolscopeError(
            f"the rule {stack!r} has an empty frame", remedy='write it as "inner < outer"'
        )
    pattern = re.compile(r"(?:\n|\n.*?\n)".join(map(_frame_pattern, frames)), re.DOTALL)
    return Rule(cause, stack, filesystem, pattern)


def parse_rules(text: str, source: str, causes: Collection[str] = BLOCKED_CAUSES) -> list[Rule]:
    """Parse one rules file; ``source`` is its name for messages.

    Raises:
        SpoolscopeError: not TOML, or a line without ``cause`` and ``stack``.
    """
    try:
        document = tomllib.loads(text)
        filesystem = str(document.get("filesystem", "any"))
        return [
            compile_rule(line["cause"], line["stack"], line.get("filesystem", filesystem), causes)
            for line in document["rules"]
        ]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SpoolscopeError(
            f"cannot read the rules in {source}: {error}",
            remedy='a rule is { cause = "flush", stack = "inner < outer" }',
        ) from error


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """Return the rules that come with the package, in order."""
    folder = files("spoolscope.analysis").joinpath("rules")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    texts = ((name, folder.joinpath(name).read_text("utf-8")) for name in names)
    return tuple(rule for name, text in texts for rule in parse_rules(text, name))


def load_rules(extra: Path | None = None) -> tuple[Rule, ...]:
    """Return the rules of the file ``extra``, which come first, and the shipped ones.

    Raises:
        SpoolscopeError: the file is missing or malformed.
    """
    if extra is None:
        return shipped_rules()
    try:
        text = regular(extra).read_text("utf-8")
    except OSError as error:
        raise SpoolscopeError(
            f"cannot read the rules file {extra}: {error.strerror}", remedy="check --rules"
        ) from error
    return (*parse_rules(text, str(extra)), *shipped_rules())


def classify(frames: Sequence[str], rules: Iterable[Rule] | None = None) -> Rule | None:
    """Return the first rule that matches a stack (innermost frame first), if any."""
    text = "\n".join(map(bare, frames))
    for rule in shipped_rules() if rules is None else rules:
        if rule.pattern.search(text):
            return rule
    return None
