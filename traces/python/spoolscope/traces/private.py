"""What of meta.json is private, and how it is hidden: as the same names are in the tables."""

import re
from typing import Any

from spoolscope.traces.comms import Comms
from spoolscope.traces.programs import group, program
from spoolscope.traces.pseudonym import Pseudonymiser, key_id
from spoolscope.traces.text import escaped

# Devices named by the kernel; /dev/mapper and /dev/disk hold names that people gave.
_DEVICE = re.compile(
    r"/dev/(loop|sd|vd|xvd|hd|nvme|md|dm-|mmcblk|nbd|zram|ram|drbd)[a-z0-9]{0,12}|none"
)
# Of mount options the words stay, and of values what the kernel itself made or counts.
_OPTION_VALUE = re.compile(r"v?\d+(\.\d+)?[kKmMgG]?|0x[0-9a-f]+|on|off|none|sys|tcp6?|udp6?")
_PLAIN_OPTIONS = frozenset(
    {"compress", "compress-force", "errors", "data", "discard", "fsync_mode"}
)


class Private:
    """Hides the names of one trace with one key.

    Args:
        key: Pseudonym key.

    Attributes:
        names: Hides paths; knows afterwards what it hid.
        comms: Hides names of threads, in the same way.
    """

    def __init__(self, key: bytes) -> None:
        self.names = Pseudonymiser(key)
        self.comms = Comms(self.names)
        self._key_id = key_id(key)

    def meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of meta.json's content without private names."""
        return {
            **meta,
            "spools": [self._spool(spool) for spool in meta.get("spools", [])],
            "io_limits": [
                {**limit, "cgroup": self._asked("cgroups", limit["cgroup"])}
                for limit in meta.get("io_limits", [])
            ],
            "filter": {k: self._asked(k, v) for k, v in meta.get("filter", {}).items()},
            "pseudonymised": True,
            "key_id": self._key_id,
        }

    def _spool(self, spool: dict[str, Any]) -> dict[str, Any]:
        source, fstype = str(spool.get("source", "")), spool.get("fstype")
        if source != fstype and not _DEVICE.fullmatch(source):
            source = self._path(source)
        options = ",".join(map(self._option, str(spool.get("options", "")).split(",")))
        mount = self._path(str(spool["mount"]))
        return {**spool, "mount": mount, "source": source, "options": options}

    def _option(self, option: str) -> str:
        word, equals, value = option.partition("=")
        if not equals or word in _PLAIN_OPTIONS or _OPTION_VALUE.fullmatch(value):
            return option
        return f"{word}={self._path(value)}"

    def _asked(self, what: str, value: Any) -> Any:
        """Names that were asked for are names, too."""
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
        return escaped(self.names.path(path.encode(errors="surrogateescape")))
