"""Live tools during a recording: the recorder starts the tool, the tool the workload."""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

LIVE = Path(__file__).resolve().parents[2] / "live"

# A name that only the workload has, so that no other program on the machine is taken for it.
COMM = "mailwork"

# One process after the other makes the given number of fsyncs, and prints its pid and number.
SYNCERS = """
import os, sys, time
for who, n in enumerate(map(int, sys.argv[2:])):
    if not (kid := os.fork()):
        fd = os.open(f"{sys.argv[1]}/{who}", os.O_CREAT | os.O_WRONLY)
        for i in range(n):
            os.write(fd, b"x" * 5000)
            os.fsync(fd)
            time.sleep(0.02)
        os.close(fd)
        os._exit(0)
    print(kid, n, flush=True)
    os.waitpid(kid, 0)
"""

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
    """Return a command line without quotes, as bpftrace -c needs it."""
    source = tmp_path / "workload.py"
    name = f"open('/proc/self/comm', 'w').write('{COMM}')\n"
    source.write_text(name + program)
    return " ".join([os.path.realpath(sys.executable), "-S", str(source), *map(str, arguments)])


def beside(mount: Path, tmp_path: Path, tool: list[str]) -> Trace:
    """Record `tool`, which runs in the mount, and all that it starts."""
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
    """Record a script around a command; return the trace, the script's maps and its output."""
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


# BCC needs headers below /lib/modules of the running kernel. If there are none, those of another
# kernel are enough: the tools read no kernel structure by them. Only the tool sees these mounts.
HEADERS = """
grep -q ' /sys/kernel/debug ' /proc/mounts || mount -t debugfs none /sys/kernel/debug
modules=/lib/modules/$(uname -r)
if [ ! -e "$modules/build" ]; then
    mkdir -p /lib/modules
    mount -t tmpfs none /lib/modules
    mkdir "$modules"
    ln -s "$(ls -d /usr/src/linux-headers-*-amd64 | tail -1)" "$modules/build"
    ln -s "$(ls -d /usr/src/linux-headers-*-common | tail -1)" "$modules/source"
fi
exec "$0" "$@"
"""


def missing_bcc() -> str:
    """Return why the BCC tools cannot run here, or ""."""
    if subprocess.run(["/usr/bin/python3", "-c", "import bcc"], capture_output=True).returncode:
        return "no BCC for /usr/bin/python3 (python3-bpfcc)"
    if Path(f"/lib/modules/{os.uname().release}/build").exists():
        return ""
    if not list(Path("/usr/src").glob("linux-headers-*-amd64")):
        return "no kernel headers (linux-headers-amd64)"
    return ""


class Rows(list[dict[str, str]]):
    """Rows that a BCC tool printed last, as dictionaries by heading; ``text`` is all its output."""

    text = ""


@contextmanager
def bcc(tool: str, *arguments: object) -> Iterator[Rows]:
    """Run a BCC tool until the block ends; the rows are filled in then."""
    command = ["unshare", "-m", "sh", "-c", HEADERS, str(LIVE / tool), *map(str, arguments)]
    rows = Rows()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Tracing")
        try:
            yield rows
        finally:
            process.send_signal(signal.SIGINT)
            rows.text, _ = process.communicate(timeout=60)
    heading, *lines = rows.text.split("\n\n")[-1].splitlines()
    names = heading.split()
    rows += [dict(zip(names, line.split(), strict=True)) for line in lines[:-1]]
