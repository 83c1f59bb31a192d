"""Private names in meta.json, which are hidden in the same way as in the tables."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.traces.book import book_file, remember
from spoolscope.traces.comms import Comms
from spoolscope.traces.concealed import Concealed, counted_names, local_names
from spoolscope.traces.programs import group, program
from spoolscope.traces.pseudonym import Pseudonymiser, key_id, load_key
from spoolscope.traces.text import escaped

# Devices named by the kernel; /dev/mapper and /dev/disk have names chosen by people.
_DEVICE = re.compile(
    r"/dev/(loop|sd|vd|xvd|hd|nvme|md|dm-|mmcblk|nbd|zram|ram|drbd)[a-z0-9]{0,12}|none"
)
# Names of mount options stay, and values that are numbers or words of the kernel.
_OPTION_VALUE = re.compile(r"v?\d+(\.\d+)?[kKmMgG]?|0x[0-9a-f]+|on|off|none|sys|tcp6?|udp6?")
_PLAIN_OPTIONS = frozenset(
    {
        "alloc", "alloc_mode", "background_gc", "compress", "compress-force", "data", "discard",
        "discard_unit", "errors", "fsync_mode", "hash", "iocharset", "memory", "mode", "order",
    }
)  # fmt: skip


def changed_spool(spool: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a spool of meta.json with its private names changed, that is, hidden or revealed."""

    def option(text: str) -> str:
        word, equals, value = text.partition("=")
        if not equals or word in _PLAIN_OPTIONS or _OPTION_VALUE.fullmatch(value):
            return text
        return f"{word}={change(value)}"

    source, fstype = str(spool.get("source", "")), spool.get("fstype")
    if source != fstype and not _DEVICE.fullmatch(source):
        source = change(source)
    options = ",".join(map(option, str(spool.get("options", "")).split(",")))
    return {**spool, "mount": change(str(spool["mount"])), "source": source, "options": options}


# The words of meta.json for the names of programs.
KEPT, HIDDEN_PRIVATE, HIDDEN_ALL = "kept", "private hidden", "all hidden"


@dataclass(frozen=True)
class Hiding:
    """Parameters for hiding the names of a trace.

    Attributes:
        key: Pseudonym key.
        programs: Hide the names of all programs, not only those that are private names.
        book: The operator's book for hidden names; None for no book.
    """

    key: bytes
    programs: bool = False
    book: Path | None = None

    @classmethod
    def by_key_file(
        cls, file: Path | None, *, outside: Path | None = None, programs: bool = False
    ) -> "Hiding":
        """Return the parameters for the operator's key, with a book beside it; see ``load_key``."""
        key = load_key(file, outside=outside)
        return cls(key, programs, book_file(file, key_id(key)))


def with_programs(meta: dict[str, Any], shown: Callable[[str], str]) -> dict[str, Any]:
    """Return ``frozen`` and ``under_way`` of meta.json with names of programs changed by ``shown``.

    The result has those of them that meta.json has.
    """
    calls = [{**call, "comm": shown(call["comm"])} for call in meta.get("under_way") or ()]
    found: dict[str, Any] = {"under_way": calls} if calls else {}
    frozen = meta.get("frozen")
    if not frozen:
        return found
    named = {
        what: {**frozen[what], "comm": shown(frozen[what]["comm"])}
        for what in ("in_flight", "lock")
        if frozen.get(what)
    }
    return {**found, "frozen": {**frozen, **named}}


class Private:
    """Hides the names of one trace with one key.

    Args:
        hiding: Parameters.
        paths: Absolute paths of the trace, below the mounts.
        mounts: Mount points of its spools.
        uids: Users in the trace.

    Attributes:
        names: Hides paths, and keeps the names that it hid.
        comms: Hides names of threads, programs and control groups.
        counted: Components of paths that are names of mailboxes, directories or files.
    """

    def __init__(
        self,
        hiding: Hiding,
        paths: Iterable[bytes] = (),
        mounts: Iterable[bytes] = (),
        uids: Iterable[int] = (),
    ) -> None:
        self.hiding = hiding
        self.names = Pseudonymiser(hiding.key)
        self.counted, mailboxes = counted_names(paths, list(mounts))
        concealed = Concealed(self.counted, mailboxes, local_names(uids))
        self.comms = Comms(self.names, concealed, hide_all=hiding.programs)

    def remember(self) -> str | None:
        """Write hidden names into the operator's book; return the reason if that failed."""
        if self.hiding.book is None:
            return None
        paths = ((self.names.component(name), name) for name in self.counted)
        programs = ((shown, name) for name, shown in self.comms.hidden.items())
        return remember(self.hiding.book, paths, programs)

    def meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of meta.json's content without private names."""
        return {
            **meta,
            "spools": [self._spool(spool) for spool in meta.get("spools", [])],
            "io_limits": [
                {**limit, "cgroup": self._asked("cgroups", limit["cgroup"])}
                for limit in meta.get("io_limits", [])
            ],
            "unjudged": [
                {
                    **calls,
                    "comm": self._asked("comms", calls["comm"]),
                    "cgroup": self._asked("cgroups", calls["cgroup"]),
                }
                for calls in meta.get("unjudged", [])
            ],
            **with_programs(meta, lambda comm: str(self._asked("comms", comm))),
            "filter": {k: self._asked(k, v) for k, v in meta.get("filter", {}).items()},
            "pseudonymised": True,
            "key_id": key_id(self.hiding.key),
            "program_names": HIDDEN_ALL if self.hiding.programs else HIDDEN_PRIVATE,
        }

    def _spool(self, spool: dict[str, Any]) -> dict[str, Any]:
        return changed_spool(spool, self._path)

    def _asked(self, what: str, value: Any) -> Any:
        """Return a value of ``filter`` or a similar one hidden: these may be private, too."""
        if isinstance(value, list):
            return [self._asked(what, item) for item in value]
        if not isinstance(value, str):
            return value
        name = value.encode(errors="surrogateescape")
        if what == "units" and b"." not in name:
            name += b".service"
        shown = {"exes": program, "cgroups": group, "units": group}.get(what)
        if shown:
            return shown(name, self.comms)
        return self.comms.text(name) if what == "comms" else self._path(value)

    def _path(self, path: str) -> str:
        name = path.encode(errors="surrogateescape")
        self.counted.update(part for part in name.split(b"/") if part)
        return escaped(self.names.path(name))
