"""Effects of calls on mounts below the spools."""

from typing import Protocol

from spoolscope.tracers.effects import Done
from spoolscope.tracers.named import Named, Names
from spoolscope.tracers.processes import Process, Processes
from spoolscope.traces.capture import Capture

# Flags of mount(2) that mount nothing: MS_REMOUNT, and those for shared, private, ...
_ATTRIBUTES_ONLY = 1 << 5 | 0b1111 << 17
# Older programs set MS_MGC_VAL in the flags.
_MAGIC, _MAGIC_MASK = 0xC0ED_0000, 0xFFFF_0000
_MS_BIND, _MS_MOVE, _MS_REC = 1 << 12, 1 << 13, 1 << 14


class Naming(Protocol):
    """The names and processes that a mount refers to."""

    names: Names
    processes: Processes

    def named(self, process: Process, dirfd: int | None, raw: bytes, flags: int) -> Named:
        """Return the name that a path leads to."""

    def is_here(self, path: int) -> bool:
        """Return whether a path id is that of a name on a spool."""


class Mounting:
    """Applies mount, umount2 and move_mount to the known mounts."""

    def __init__(self, capture: Capture, naming: Naming) -> None:
        self._strings, self._naming = capture.strings, naming
        # A second mount of a spool's disk shows the spool.
        spools = [spool for spool in capture.meta.get("spools", []) if not spool.get("part")]
        self._sources = {
            s["source"].encode(): s["mount"].encode() for s in spools if s.get("source")
        }

    def apply(self, done: Done) -> None:
        """Apply a call that succeeded; one that names no place on a spool has no effect here."""
        row, number = done.row, done.process.mount_ns
        below, name = self._naming.processes.below, done.shape.name
        place, to = done.first.way or done.path, done.second.way or done.path2
        if name == "move_mount" and to is not None:
            if row.path and place is not None:
                below.moved(number, place, to)
            else:  # the source is a descriptor: of open_tree, or of a new filesystem
                node = done.node
                below.mounted(number, to, done.space.path(node) if node is not None else None)
        elif name == "umount2" and place is not None:
            below.unmounted(number, place)
        elif name == "mount" and place is not None:
            flags = row.args[done.shape.flags]
            if flags & _MAGIC_MASK == _MAGIC:
                flags &= ~_MAGIC_MASK
            if not flags & _ATTRIBUTES_ONLY:
                self._mounted(done, place, flags)

    def _mounted(self, done: Done, place: bytes, flags: int) -> None:
        naming, number = self._naming, done.process.mount_ns
        below, text = naming.processes.below, self._strings[done.row.path2]
        if not flags & (_MS_BIND | _MS_MOVE):
            below.mounted(number, place, self._sources.get(text))
            return
        source = naming.named(done.process, None, text, done.row.flags)
        path = naming.names.paths[source.path] if source.path >= 0 else None
        if flags & _MS_MOVE:
            below.moved(number, source.way or path or text, place)
            return
        below.mounted(number, place, path if naming.is_here(source.path) else None)
        if flags & _MS_REC and path is not None:
            below.repeated(number, place, source.way or path)
