"""The sums of one minute, as the native recorder writes them, as tables of roll-ups."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spoolscope.traces.comms import Comms
from spoolscope.traces.concealed import Concealed, counted_names, local_names
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.private import Hiding, Private
from spoolscope.traces.programs import group
from spoolscope.traces.rollups.schema import CALL

UNITS = (".service", ".scope")
"""Ends of the names of systemd units that have processes."""

Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class About:
    """Facts that are the same in all minutes of a recorder.

    Attributes:
        host: Name of the host.
        boot_id: Identity of its boot.
        recorder_id: Identity of this run of the recorder.
        kernel: Release of the kernel.
        tool: Version of spoolscope.
        cpus: CPUs of the machine.
    """

    host: str
    boot_id: str
    recorder_id: str
    kernel: str
    tool: str
    cpus: int


class _Together(Concealed):
    """Hides the names of programs that one of several hides."""

    def __init__(self, parts: Sequence[Concealed]) -> None:
        super().__init__()
        self._parts = parts

    def hides(self, name: bytes) -> bool:
        """Return whether the name of a program or thread would reveal a private name."""
        return any(part.hides(name) for part in self._parts)

    def hides_unit(self, name: bytes) -> bool:
        """Return whether the name of a unit or control group would reveal a private name."""
        return any(part.hides_unit(name) for part in self._parts)


class Names:
    """Shows names of programs, units and directories, or hides them.

    Directories are learnt in parts, each at least twice as large as the next, so that a new one
    costs no reading of all that are known. They stay known as long as the recorder runs.

    Args:
        hiding: How names are hidden; None: they are shown.
    """

    def __init__(self, hiding: Hiding | None) -> None:
        self._hiding = hiding
        self._directories: set[bytes] = set()
        self._mounts: tuple[bytes, ...] = ()
        self._parts: list[tuple[set[bytes], Concealed]] = []
        self._private: Private | None = None

    def learn(self, directories: set[bytes], mounts: tuple[bytes, ...]) -> None:
        """Take note of names that other names must not reveal."""
        new = directories - self._directories
        if mounts != self._mounts:
            new, self._parts = directories | self._directories, []
        if self._hiding is None or not (new or mounts != self._mounts or self._private is None):
            return
        self._directories |= directories
        self._mounts = mounts
        while self._parts and len(self._parts[-1][0]) < 2 * len(new):
            new |= self._parts.pop()[0]
        counted, mailboxes = counted_names(new, mounts)
        self._parts.append((new, Concealed(counted, mailboxes, local_names())))
        private = self._private = Private(self._hiding, (), mounts)
        concealed = _Together([part for _, part in self._parts])
        private.comms = Comms(private.names, concealed, hide_all=self._hiding.programs)
        private.counted |= counted
        private.remember()

    def program(self, comm: str) -> str:
        """Return the name of a program."""
        return comm if self._private is None else self._private.comms.text(comm.encode())

    def unit(self, cgroup: str) -> str:
        """Return the systemd unit of a control group, else its path."""
        units = [part for part in cgroup.split("/") if part.endswith(UNITS)]
        name = units[-1] if units else cgroup
        if self._private is None:
            return name
        shown = self._private.comms
        return shown.unit(name.encode()) if units else group(name.encode(), shown)

    def directory(self, path: bytes) -> str:
        """Return the path of a directory."""
        shown = path if self._private is None else self._private.names.path(path)
        return shown.decode(errors="replace")

    def spool(self, spool: dict[str, Any]) -> dict[str, Any]:
        """Return a spool with its private options hidden."""
        if self._private is None:
            return spool
        shown: dict[str, Any] = self._private.meta({"spools": [spool]})["spools"][0]
        return shown


@dataclass(frozen=True)
class Summed:
    """The file of one minute, or of one interval of a live view.

    Attributes:
        content: What it says.
    """

    content: Mapping[str, Any]

    @classmethod
    def read(cls, file: Path) -> "Summed":
        """Read the file.

        Raises:
            SpoolscopeError: it is damaged.
        """
        try:
            content = json.loads(file.read_bytes())
            if not isinstance(content, dict):
                raise ValueError("they are no object")
            return cls(content)
        except (OSError, ValueError) as error:
            raise SpoolscopeError(
                f"cannot read the sums in {file}: {error}", remedy="remove it: its minute is lost"
            ) from error

    @property
    def mounts(self) -> tuple[bytes, ...]:
        """Mount points of the spools."""
        return tuple(str(spool["mount"]).encode() for spool in self.content["spools"])

    def tables(self, about: About, names: Names, more_ns: int = 0) -> Tables:
        """Return the columns of all tables.

        Args:
            about: Facts on the recorder.
            names: Shows or hides names.
            more_ns: CPU time that was spent for it outside the native recorder.
        """
        directories = [(row[0], self._below(row), *row[2:]) for row in self.content["directories"]]
        names.learn({path for _, path, *_ in directories if path}, self.mounts)
        calls = self.calls(names)
        return {
            "calls": calls,
            "commits": self.commits(names),
            "directories": self._columns(
                ("dev", "directory", "n", "sum_ns"),
                [(dev, names.directory(path), *rest) for dev, path, *rest in directories],
            ),
            "minutes": self._minutes(about, names, calls, more_ns),
        }

    def calls(self, names: Names) -> dict[str, Any]:
        """Return the columns of the table of calls."""
        sums = {name: np.array(column, np.int64) for name, column in self.content["calls"].items()}
        comms, units = self._programs(names)
        minute = np.full(len(sums["n"]), self.content["minute_s"], np.int64)
        return {
            "minute_s": minute,
            "dev": sums["dev"],
            "comm": comms[sums["program"]],
            "unit": units[sums["program"]],
            "syscall": np.array(self.content["call_names"], object)[sums["call"]],
            "cause": np.array(self.content["causes"], object)[sums["cause"]],
            **{name: sums[name].astype(np.int16) for name in ("size_class", "failed", "bucket")},
            **{name: sums[name] for name in ("n", "sum_ns")},
        }

    def commits(self, names: Names) -> dict[str, Any]:
        """Return the columns of the table of commits; those of no call have no program."""
        comms, units = self._programs(names)
        rows = [
            (dev, comms[program], units[program] if comms[program] else "", *rest)
            for dev, program, *rest in self.content["commits"]
        ]
        return self._columns(("dev", "comm", "unit", "n", "sum_ns", "max_ns"), rows)

    def _programs(self, names: Names) -> tuple[Any, Any]:
        programs = self.content["programs"]
        comms = np.array([names.program(comm) for comm, _ in programs], object)
        return comms, np.array([names.unit(cgroup) for _, cgroup in programs], object)

    def _columns(self, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
        columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
        found = {
            name: np.array(columns.get(name, ()), _KINDS.get(name, np.int64)) for name in names
        }
        return {"minute_s": np.full(len(rows), self.content["minute_s"], np.int64), **found}

    def _below(self, row: tuple[Any, ...]) -> bytes:
        """Return the path of a directory as seen below its spool; empty if it is not known."""
        dev, place = int(row[0]), str(row[1])
        for spool in self.content["spools"]:
            root = str(spool["root"]).rstrip("/")
            if spool["dev"] == dev and (place == root or place.startswith(f"{root}/")):
                path = f"{str(spool['mount']).rstrip('/')}{place[len(root) :].rstrip('/')}"
                return (path or "/").encode(errors="surrogateescape")
        return b""

    def _minutes(
        self, about: About, names: Names, calls: Mapping[str, Any], more_ns: int
    ) -> dict[str, Any]:
        """Return a row for each spool; one more, without a device, for calls of unknown ones."""
        spools = {int(spool["dev"]): names.spool(dict(spool)) for spool in self.content["spools"]}
        whole = calls["cause"] == CALL
        if (calls["dev"] == 0).any():
            spools[0] = {}
        n = len(spools)
        first = np.arange(n) == 0
        same = {
            "minute_s": int(self.content["minute_s"]),
            "seq": int(self.content["seq"]),
            "covered_ns": int(self.content["covered_ns"]),
            "clock_step_ns": int(self.content["clock_step_ns"]),
            "boot_id": about.boot_id,
            "recorder_id": about.recorder_id,
            "kernel": about.kernel,
            "tool": about.tool,
        }
        described = spools.values()
        return {
            **{name: np.array([value] * n, _kind(value)) for name, value in same.items()},
            "dev": np.array(list(spools), np.int64),
            "calls": np.array(
                [int(calls["n"][whole & (calls["dev"] == dev)].sum()) for dev in spools], np.int64
            ),
            "lost": first * int(self.content["lost"]),
            "recorder_ns": first * (int(self.content["recorder_ns"]) + more_ns),
            "cpus": np.full(n, about.cpus, np.int32),
            "fs": np.array([spool.get("fstype", "") for spool in described], object),
            "options": np.array([spool.get("options", "") for spool in described], object),
            "device": np.array([model_of(spool.get("disks", [])) for spool in described], object),
        }


_KINDS: dict[str, Any] = {"comm": object, "unit": object, "directory": object}


def _kind(value: object) -> Any:
    return object if isinstance(value, str) else np.int64


def model_of(disks: list[str]) -> str:
    """Return the model of the first disk, major:minor, that has one; empty if none has."""
    for disk in disks:
        for name in ("device/model", "device/name"):
            try:
                return Path(f"/sys/dev/block/{disk}/{name}").read_text(errors="replace").strip()
            except OSError:
                continue
    return ""
