"""The live tools beside a recording: the tool starts the workload, the recorder the tool."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

LIVE = Path(__file__).resolve().parents[2] / "live"

# The workload's own name, so that nobody else on the machine is taken for it.
COMM = "mailwork"

# Calls as the bpftrace scripts name them.
CALLS = {
    "open": ("open", "openat", "openat2"),
    "stat": ("stat", "lstat", "newfstatat", "statx"),
    "unlink": ("unlink", "unlinkat", "rmdir"),
    "mkdir": ("mkdir", "mkdirat"),
    "rename": ("rename", "renameat", "renameat2"),
    "link": ("link", "linkat"),
    "sync": ("fsync", "fdatasync"),
    "read": ("read", "pread64", "readv"),
    "write": ("write", "pwrite64", "writev"),
    "readdir": ("getdents64",),
    "truncate": ("ftruncate", "fallocate"),
    "lock": ("flock", "fcntl"),
}


def workload(tmp_path: Path, program: str, *arguments: object) -> str:
    """A command line without quotes, as bpftrace -c needs it."""
    source = tmp_path / "workload.py"
    name = f"open('/proc/self/comm', 'w').write('{COMM}')\n"
    source.write_text(name + program)
    return " ".join([os.path.realpath(sys.executable), "-S", str(source), *map(str, arguments)])


def beside(mount: Path, tmp_path: Path, tool: list[str]) -> Trace:
    """Record `tool`, run in the mount, and whatever it starts."""
    command = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(mount), *tool]
    summary = record(
        Request(spools=[mount], output=tmp_path / "t", command=command, keep_names=True)
    )
    assert summary.command_status == 0
    assert summary.meta["complete"]
    return Trace.open(summary.trace)


def bpftrace(
    script: str, command: str, mount: Path, tmp_path: Path, *arguments: object
) -> tuple[Trace, dict[str, Any], str]:
    """Run a script around a command, recorded: the trace, the script's maps, what it printed."""
    out = tmp_path / "bpftrace.json"
    tool = ["bpftrace", "-f", "json", "-o", str(out), "-c", command, str(LIVE / script)]
    trace = beside(mount, tmp_path, [*tool, *map(str, arguments)])
    maps: dict[str, Any] = defaultdict(dict)
    text = []
    for line in out.read_text().splitlines():
        if not line.strip():
            continue
        message = json.loads(line)
        if message["type"] in ("map", "hist"):
            maps.update(message["data"])
        elif message["type"] in ("printf", "time"):
            text.append(message["data"])
    return trace, maps, "".join(text)


def device(mount: Path) -> str:
    found = subprocess.run(
        ["findmnt", "-no", "SOURCE", mount], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def ask(trace: Trace, sql: str) -> list[tuple]:
    return trace.connect().execute(sql).fetchall()
