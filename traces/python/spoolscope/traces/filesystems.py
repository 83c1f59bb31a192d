"""The filesystems, read from filesystems.toml."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.traces.inheritance import inherited

DEVICE, JOURNAL = "{device}", "{journal}"
USER_XATTRS, HARD_LINKS, SYMLINKS, OWNERS = "user_xattrs", "hard_links", "symlinks", "owners"
LACKING = (USER_XATTRS, HARD_LINKS, SYMLINKS, OWNERS)
LONGEST_SYMLINK = 4095
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class Journal:
    """Words that give a separate journal or log device to programs.

    ``{journal}`` stands for its path, ``{bytes}`` or ``{blocks}`` (of 4 KiB) for its size.

    Attributes:
        format: Words for the mkfs program that make the journal first; empty if mkfs of the
            filesystem does.
        mkfs: Words for mkfs of the filesystem.
        mount: Mount option, empty if the filesystem stores it.
        fsck: Words for the program that checks without changing anything.
    """

    format: tuple[str, ...]
    mkfs: tuple[str, ...]
    mount: str
    fsck: tuple[str, ...]


@dataclass(frozen=True)
class Filesystem:
    """One type of filesystem; filesystems.toml explains each key.

    Attributes:
        type: Type for mount -t.
        package: Debian package of its programs.
        mkfs: Program and words that every image needs; empty if nothing is formatted.
        attach: Program and words that must run before each mount; empty if none must.
        release: Program and words that let the devices go after each unmount.
        ends: Words at the end of mkfs, with ``{device}``.
        once: Words of mkfs of which only the last counts.
        last: Words of mkfs with values NAME=VALUE of which the last of each name counts.
        keep: Words with which mkfs leaves blocks as they are.
        smallest_bytes: Size of the smallest device that mkfs accepts.
        mounts: Source of the mount: the path of the device, or a name.
        fsck: Program and words that check without changing anything; empty if there is none. The
            device follows, unless ``{device}`` is among them.
        journal: Words for a separate journal, None if it cannot have one.
        label: Words of mkfs before the label of the filesystem; empty if it has no label.
        lacks: Features of ``LACKING`` that it does not have.
        symlink_bytes: Longest target of a symlink.
        leaves: Names that mkfs leaves in its root, besides lost+found.
        subvolumes: Its subvolumes number their inodes independently.
        symbols: Prefixes of its tracepoints and functions.
        threads: Names of its kernel threads.
        workers: How to find the filesystem that a work function works for, by function.
        commits: Word for its commits.
        rules: Filesystems whose cause rules explain it.
        kernels: Series of Debian's kernels that have it.
        modules: Package that builds its module for them, empty if they have it.
        needs: What must exist before it can be mounted anywhere.
    """

    type: str
    package: str
    mkfs: tuple[str, ...]
    attach: tuple[str, ...]
    release: tuple[str, ...]
    ends: tuple[str, ...]
    once: tuple[str, ...]
    last: tuple[str, ...]
    keep: tuple[str, ...]
    smallest_bytes: int
    mounts: str
    fsck: tuple[str, ...]
    journal: Journal | None
    label: tuple[str, ...]
    lacks: tuple[str, ...]
    symlink_bytes: int
    leaves: tuple[str, ...]
    subvolumes: bool
    symbols: tuple[str, ...]
    threads: tuple[str, ...]
    workers: Mapping[str, str]
    commits: str
    rules: tuple[str, ...]
    kernels: tuple[str, ...]
    modules: str
    needs: str

    @property
    def explained(self) -> bool:
        """True if cause rules explain the waits of its calls."""
        return bool(self.rules)

    def mkfs_words(self, *more: str) -> tuple[str, ...]:
        """Return program and words of mkfs with more words; the device is to follow."""
        return self.joined((*self.mkfs, *more))

    def joined(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Return words of mkfs in which each word of ``once`` occurs only once.

        Their values are joined by commas. Of values NAME=VALUE of a word of ``last``, the last one
        of each name stays.
        """
        first: dict[str, int] = {}
        words: list[str] = []
        rest = iter(given)
        for word in rest:
            value = next(rest, None) if word in (*self.once, *self.last) else None
            key = word if word in self.once else f"{word} {(value or '').partition('=')[0]}"
            if value is not None and key in first:
                before = f"{words[first[key]]}," if word in self.once else ""
                words[first[key]] = before + value
                continue
            words.append(word)
            if value is not None:
                first[key] = len(words)
                words.append(value)
        return tuple(words)


def size_bytes(text: str) -> int:
    """Return the bytes of a size such as "300 MiB".

    Raises:
        ValueError: it is not such a size.
    """
    found = re.fullmatch(r"(\d+) ?([KMG]iB)", text)
    if not found:
        raise ValueError(f"{text!r} is no size such as '256 MiB'")
    return int(found[1]) * _UNITS[found[2]]


def parse(text: str) -> dict[str, Filesystem]:
    """Parse the text of filesystems.toml into filesystems by type, in file order.

    Raises:
        ValueError: a block or a key is wrong.
    """
    blocks = inherited(tomllib.loads(text))
    return {fstype: _filesystem(fstype, block) for fstype, block in blocks.items()}


def _filesystem(fstype: str, block: dict[str, Any]) -> Filesystem:
    def words(key: str) -> tuple[str, ...]:
        return tuple(block.pop(key, ()))

    def text(key: str, default: str = "") -> str:
        return str(block.pop(key, default))

    made = Filesystem(
        type=fstype,
        package=text("package"),
        mkfs=words("mkfs"),
        attach=words("attach"),
        release=words("release"),
        ends=words("ends") or (DEVICE,),
        once=words("once"),
        last=words("last"),
        keep=words("keep"),
        smallest_bytes=size_bytes(text("smallest", "0 MiB")),
        mounts=text("mounts", DEVICE),
        fsck=words("fsck"),
        journal=_journal(block.pop("journal", {})),
        label=words("label"),
        lacks=words("lacks"),
        symlink_bytes=block.pop("symlink", LONGEST_SYMLINK),
        leaves=words("leaves"),
        subvolumes=block.pop("subvolumes", False),
        symbols=words("symbols"),
        threads=words("threads"),
        workers=block.pop("workers", {}),
        commits=text("commits", "journal commits"),
        rules=tuple(block.pop("rules", (fstype,))) if block.pop("explained", True) else (),
        kernels=words("kernels"),
        modules=text("modules"),
        needs=text("needs"),
    )
    if unknown := [*block, *(word for word in made.lacks if word not in LACKING)]:
        raise ValueError(f"[{fstype}] has unknown keys or words: {unknown}")
    return made


def _journal(block: dict[str, Any]) -> Journal | None:
    if not block:
        return None
    return Journal(
        tuple(block.get("format", ())),
        tuple(block["mkfs"]),
        block.get("mount", ""),
        tuple(block.get("fsck", ())),
    )


def _file() -> Path:
    here = Path(__file__).resolve()
    installed = here.with_name("filesystems.toml")
    return installed if installed.is_file() else here.parents[3] / "filesystems.toml"


FILESYSTEMS: dict[str, Filesystem] = parse(_file().read_text())
SUBVOLUMES = frozenset(kind.type for kind in FILESYSTEMS.values() if kind.subvolumes)
