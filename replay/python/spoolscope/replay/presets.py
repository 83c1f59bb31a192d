"""Named candidates: the shipped ones, the operator's, and those of a file."""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from spoolscope.replay.candidate import NOT_STATED, SAME, Candidate
from spoolscope.replay.layers import LAYERS, NFS, device_layers
from spoolscope.replay.options import WrongError, joined_options, split_options, split_words
from spoolscope.traces.errors import usage_error
from spoolscope.traces.filesystems import FILESYSTEMS, Filesystem, size_bytes
from spoolscope.traces.inheritance import LIKE

OURS = Path(__file__).with_name("candidates.toml")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
TEXTS = (
    *("filesystem", "mkfs", "mount", "export", "journal", "smallest"),
    *("reason", "source", "instead"),
)
KEYS = {LIKE, "on", "durability", *TEXTS}
EXPORTS = ("sync", "async", "wdelay", "no_wdelay")
"""Options of exports(5) that a candidate may choose."""
# Filesystems that lie on another one, which is a candidate, too.
ON_ANOTHER = ("overlay", *NFS)

Candidates = Mapping[str, Candidate]


def config_file() -> Path:
    """Return the file with the operator's own candidates."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "spoolscope" / "candidates.toml"


@cache
def presets() -> Candidates:
    """Return the shipped candidates by name, in file order."""
    return _load(OURS, {})


def known(files: tuple[Path, ...] = ()) -> Candidates:
    """Return all named candidates: the shipped ones, the operator's, those of more files.

    Raises:
        SpoolscopeError: a file cannot be read, or a block of it is wrong.
    """
    found = dict(presets())
    own = config_file()
    for file in (*([own] if own.exists() else []), *files):
        found |= _load(file, found)
    return found


def _load(file: Path, others: Candidates) -> Candidates:
    """Read a file; its blocks may be like each other and like candidates read before."""
    try:
        text = file.read_text()
        blocks = tomllib.loads(text)
    except OSError as error:
        raise usage_error(
            f"cannot read candidates {file}: {error.strerror}",
            remedy="give --candidates a file that can be read",
        ) from error
    except ValueError as error:
        raise usage_error(
            f"cannot read candidates {file}: {error}",
            remedy="mend the file: it is TOML, as 'spoolscope candidates --help' shows",
        ) from error
    reader = _File(blocks, others, ours=file == OURS)
    for name in blocks:
        try:
            reader.make(name)
        except WrongError as error:
            raise usage_error(
                f"{file}{_line(text, name)}: [{name}] {error}",
                remedy=f"mend the file; keys are {', '.join(sorted(KEYS))}",
            ) from None
    return {name: reader.made[name] for name in blocks}


def _line(text: str, name: str) -> str:
    header = re.search(rf"^[ \t]*\[\s*[\"']?{re.escape(name)}[\"']?\s*\]", text, re.M)
    return f":{text.count(chr(10), 0, header.start()) + 1}" if header else ""


class _File:
    """The blocks of one file, and the candidates made of them so far."""

    def __init__(self, blocks: dict[str, Any], others: Candidates, *, ours: bool) -> None:
        self.blocks = blocks
        self.others = others
        self.ours = ours
        self.made: dict[str, Candidate] = {}

    def make(self, name: str, above: tuple[str, ...] = ()) -> Candidate:
        """Make the candidate of a block, and before it the one named by its ``like``."""
        if name in self.made:
            return self.made[name]
        block = self.blocks[name]
        if not NAME.fullmatch(name) or not isinstance(block, dict):
            raise WrongError("is no block with a name of letters, digits and . _ + -")
        if name in self.others:
            raise WrongError("has the name of another candidate")
        if name in above:
            raise WrongError(f"like: it is like itself: {' -> '.join((*above, name))}")
        _check_keys(block)
        base = self._like(block.get(LIKE), (*above, name))
        others = {**self.others, **self.made}
        self.made[name] = made(name, block, base, others, ours=self.ours)
        return self.made[name]

    def _like(self, name: str | None, above: tuple[str, ...]) -> Candidate | None:
        if name is None:
            return None
        if name in self.blocks:
            return self.make(name, above)
        if name not in self.others:
            raise WrongError(f"like: there is no candidate {name!r}")
        return self.others[name]


def _check_keys(block: dict[str, Any]) -> None:
    for key, value in block.items():
        if key not in KEYS:
            raise WrongError(f"{key}: no such key")
        if key == "on":
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise WrongError("on: it is a list of names")
        elif not isinstance(value, str):
            raise WrongError(f"{key}: it is text in quotes")
    if not re.fullmatch(r"same|weaker: .+", block.get("durability", SAME)):
        raise WrongError("durability: it is 'same' or 'weaker: ' and why")


def made(
    name: str, block: dict[str, Any], base: Candidate | None, others: Candidates, *, ours: bool
) -> Candidate:
    """Make a candidate of a block whose keys are known and hold text."""
    fstype = block.get("filesystem", base.fstype if base else name)
    if fstype not in FILESYSTEMS or (base and base.fstype != fstype):
        raise WrongError(f"filesystem: {fstype!r} is none of {', '.join(FILESYSTEMS)}")
    kind = FILESYSTEMS[fstype]
    layers = tuple(block.get("on", base.layers if base else ()))
    below = _below(kind, layers, others)
    journal = _size(block, "journal", base.journal if base else 0)
    if journal and device_layers(layers):
        raise WrongError("journal: a filesystem on layers has none apart")
    if journal and kind.journal is None:
        raise WrongError(f"journal: {fstype} has no separate journal or log device")
    given = below if below and ("on" in block or base is None) else base
    before = given.mkfs if given else kind.mkfs
    words = split_words(block.get("mkfs", ""))
    if words and not before:
        raise WrongError(f"mkfs: nothing makes {fstype}")
    options = split_options(block.get("mount", ""))
    export = _export(kind, block, base)
    return Candidate(
        name=name,
        fstype=fstype,
        mkfs=FILESYSTEMS[below.fstype if below else fstype].joined((*before, *words)),
        mount_options=joined_options(base.mount_options if base else "noatime", options),
        package=given.package if given else kind.package,
        journal=journal,
        layers=layers,
        below=below,
        export=export,
        smallest=_size(block, "smallest", given.smallest if given else kind.smallest_bytes),
        reason=block.get("reason", ""),
        source=block.get("source", base.source if base else ""),
        instead=block.get("instead", base.instead if base else ""),
        durability=_durability(block, base, stated=ours or not (words or options)),
        kernels=kind.kernels,
    )


def _below(kind: Filesystem, layers: tuple[str, ...], others: Candidates) -> Candidate | None:
    """Return the candidate that a filesystem lies on, None if it lies on a disk."""
    if kind.type in ON_ANOTHER:
        if len(layers) != 1 or layers[0] not in others:
            raise WrongError(f"on: {kind.type} lies on one other candidate, such as ['ext4']")
        below = others[layers[0]]
        if below.layers or below.journal:
            raise WrongError(
                f"on: {below.name!r} needs more than one disk: {kind.type} has but one"
            )
        return below
    if unknown := [layer for layer in layers if layer not in LAYERS]:
        raise WrongError(f"on: {unknown[0]!r} is none of {', '.join(LAYERS)}")
    return None


def _export(kind: Filesystem, block: dict[str, Any], base: Candidate | None) -> str:
    """Return the options with which a server exports it; empty if no server does."""
    served = kind.type in NFS
    text = str(block.get("export", base.export if base else "sync" if served else ""))
    if text and not served:
        raise WrongError(f"export: no server exports {kind.type}")
    if unknown := [word for word in text.split(",") if served and word not in EXPORTS]:
        raise WrongError(f"export: {unknown[0]!r} is none of {', '.join(EXPORTS)}")
    return text


def _durability(block: dict[str, Any], base: Candidate | None, *, stated: bool) -> str:
    inherited = base.durability if base else SAME
    default = NOT_STATED if inherited == SAME and not stated else inherited
    return str(block.get("durability", default))


def _size(block: dict[str, Any], key: str, default: int) -> int:
    try:
        return size_bytes(block[key]) if key in block else default
    except ValueError as error:
        raise WrongError(f"{key}: {error}") from None
