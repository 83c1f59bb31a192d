"""Anchors that the replayer is compared with: a plain C loop, and fio's iolog replay.

Both issue what they can of the calls of a plan, in recorded order, from one thread.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spoolscope.replay.outcomes import Plan
from spoolscope.traces.calls import BY_ID, CALLS
from spoolscope.traces.flat import NONE

NUMBER, STRING, SLOT, BUFFER, LOCK = range(5)
CALL = np.dtype(
    [
        ("nr", "i8"), ("args", "i8", 6), ("ret", "i8"), ("slot", "i4"), ("lock_type", "i2"),
        ("pad", "i2"), ("kinds", "u1", 8),
    ]
)  # fmt: skip
AT_FDCWD = -100
# Numbers of x86-64, of the calls that make up a mail server's work on its spool.
NUMBERS = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8,
    "pread64": 17, "pwrite64": 18, "access": 21, "fcntl": 72, "flock": 73, "fsync": 74,
    "fdatasync": 75, "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86,
    "unlink": 87, "fchmod": 91, "umask": 95, "getdents64": 217, "fadvise64": 221, "openat": 257,
    "newfstatat": 262, "open": 2, "unlinkat": 263, "renameat": 264, "mkdirat": 258,
}  # fmt: skip
LOCKING = (5, 6, 7, 36, 37, 38)


@dataclass(frozen=True)
class Rate:
    """Calls (or I/Os) per second, all calls, and those with another result."""

    per_s: float
    calls: int
    wrong: int


def write_script(plan: Plan, threads: npt.NDArray[Any], place: Path) -> int:
    """Write what loop.c reads: place/script and place/strings; return how many calls it holds."""
    offsets, text = {}, bytearray()

    def string(name: str) -> int:
        if name not in offsets:
            offsets[name] = len(text)
            text.extend(name.encode() + b"\0")
        return offsets[name]

    slots: dict[tuple[int, int], int] = {}
    rows = []
    for op in plan.ops:
        call = BY_ID.get(int(op["op"]))
        if call is not None and call.name in NUMBERS:
            process = int(threads["pid"][op["thread"]])
            rows.append(_row(op, call, plan, process, slots, string))
    script = np.array(rows, CALL)
    (place / "script").write_bytes(script.tobytes())
    (place / "strings").write_bytes(bytes(text))
    return len(script)


def _row(op: Any, call: Any, plan: Plan, process: int, slots: Any, string: Any) -> tuple[Any, ...]:
    args, kinds = [0] * 6, [NUMBER] * 8

    def slot(fd: int) -> int:
        return -1 if fd < 0 else slots.setdefault((process, fd), len(slots))

    for at, word in enumerate(call.args):
        if word in ("path", "path2"):
            number = int(op[word])
            name = "" if op["base"] == 0 or number == NONE else plan.strings[number] or "."
            args[at], kinds[at] = string(name), STRING
        elif word in ("dirfd", "dirfd2"):
            # Paths are whole here: relative to the target.
            bare = op["base"] == 0
            args[at], kinds[at] = (slot(int(op[word])), SLOT) if bare else (AT_FDCWD, NUMBER)
        elif word == "fd":
            args[at], kinds[at] = slot(int(op["fd"])), SLOT
        elif word == "flags" and call.name == "newfstatat" and op["base"] == 0:
            args[at] = int(op["flags"]) | 0x1000
        elif word == "flock":
            lock = int(op["cmd"]) in LOCKING
            args[at], kinds[at] = 0 if lock else int(op["arg"]), LOCK if lock else NUMBER
        elif word in ("_", "stat"):
            kinds[at] = BUFFER
        elif word == "size":
            args[at] = min(int(op["size"]), 16 << 20)
        else:
            args[at] = int(op[word])
    # One loop cannot wait for processes that wait for one another: it asks without waiting.
    if call.name == "fcntl" and op["cmd"] in (7, 38):
        args[1] -= 1
    if call.name == "flock":
        args[1] |= 4
    made = slot(int(op["ret"])) if call.returns_fd and op["ret"] >= 0 else -1
    return NUMBERS[call.name], args, op["ret"], made, op["lock_type"], 0, kinds


def build_loop(place: Path) -> Path:
    """Compile loop.c."""
    program = place / "loop"
    source = Path(__file__).with_name("loop.c")
    subprocess.run(["cc", "-O2", "-Wall", "-o", str(program), str(source)], check=True)
    return program


def run_loop(program: Path, place: Path, target: Path) -> Rate:
    """Issue the script's calls in a target that holds the fixture."""
    words = [str(program), str(place / "script"), str(place / "strings")]
    done = subprocess.run(words, cwd=target, capture_output=True, text=True, check=True)
    calls, ns, wrong = map(int, done.stdout.split())
    return Rate(calls / ns * 1e9, calls, wrong)


def write_iolog(plan: Plan, place: Path) -> int:
    """Write fio's iolog of the reads, writes and syncs; return how many calls it holds.

    fio knows files by name and has no position of its own: a file is named by its inode, and
    calls without a recorded offset are left out.
    """
    verbs = {"pread64": "read", "read": "read", "pwrite64": "write", "write": "write",
             "fsync": "sync", "fdatasync": "datasync"}  # fmt: skip
    ids = {CALLS[name].id: verb for name, verb in verbs.items()}
    files: dict[int, str] = {}
    lines, calls = [], 0
    for op in plan.ops:
        verb = ids.get(int(op["op"]))
        if verb is None or op["ret"] < 0 or not op["ino"]:
            continue
        data = verb in ("read", "write")
        if data and (op["offset"] < 0 or op["ret"] == 0):
            continue
        name = files.setdefault(int(op["ino"]), f"f{len(files)}")
        calls += 1
        span = f" {int(op['offset'])} {int(op['ret'])}" if data else " 0 0"
        lines.append(f"{place}/data/{name} {verb}{span}")
    names = [f"{place}/data/{name}" for name in files.values()]
    head = ["fio version 2 iolog", *(f"{n} add" for n in names), *(f"{n} open" for n in names)]
    (place / "iolog").write_text("\n".join([*head, *lines, *(f"{n} close" for n in names)]) + "\n")
    sizes: dict[str, int] = {}
    for line in lines:
        path, verb, offset, length = line.split()
        if verb in ("read", "write"):
            sizes[path] = max(sizes.get(path, 0), int(offset) + int(length))
    (place / "data").mkdir()
    for path in names:
        with Path(path).open("wb") as file:
            file.truncate(max(sizes.get(path, 0), 4096))
    return calls


def run_fio(place: Path) -> Rate:
    """Let fio replay the iolog without its delays."""
    words = [
        "fio", "--name=iolog", f"--read_iolog={place}/iolog", "--replay_no_stall=1",
        "--ioengine=sync", "--output-format=json", "--invalidate=0", "--openfiles=100000",
    ]  # fmt: skip
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"fio failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    kinds = [job["read"], job["write"], job["sync"]]
    calls = sum(int(kind["total_ios"]) for kind in kinds)
    return Rate(calls / (job["job_runtime"] / 1e3), calls, int(job["error"]))
