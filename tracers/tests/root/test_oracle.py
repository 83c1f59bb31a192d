"""The recorder against strace: both record the same run, compared call by call.

The program (oracle/allcalls*.c) makes every call of calls.txt a prime number of times, including
calls that fail, from several processes and threads.
"""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import comparison
import expected
import numpy as np
import pytest
import strace_log

from spoolscope.traces.calls import CALLS
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

ARCH_NUMBERS = "/usr/include/{}/asm/unistd_64.h"


@pytest.fixture(params=["ext4", "xfs", "btrfs"])
def spool(request: pytest.FixtureRequest, require, tmp_path: Path) -> Iterator[Path]:
    """Return a fresh loop-mounted filesystem."""
    require("bpf")
    require(request.param)
    image, mount = tmp_path / "image", tmp_path / "spool"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(512 << 20)
    force = "-F" if request.param == "ext4" else "-f"
    subprocess.run([f"mkfs.{request.param}", "-q", force, image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)


def record(spool: Path, output: Path, command: list[str], counts: Path) -> Trace:
    from spoolscope.tracers.session import Request, record

    os.environ["ALLCALLS_COUNTS"] = str(counts)
    request = Request(spools=[spool], output=output, command=command, keep_names=True)
    summary = record(request)
    assert summary.command_status == 0
    return Trace.open(summary.trace)


def made(counts: Path) -> Counter[str]:
    """Return the program's own counts by name, and the execve that began it."""
    by_number = np.fromfile(counts, np.uint32)
    numbers = syscall_numbers()
    found = {name: int(by_number[numbers[name]]) for name in CALLS if name in numbers}
    found["execve"] += 1
    return Counter({name: n for name, n in found.items() if n})


def syscall_numbers() -> dict[str, int]:
    triplet = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    lines = Path(ARCH_NUMBERS.format(triplet)).read_text().splitlines()
    words = [line.split() for line in lines if line.startswith("#define __NR_")]
    return {"fchmodat2": 452} | {w[1].removeprefix("__NR_"): int(w[2]) for w in words}


def is_prime(n: int) -> bool:
    return n > 1 and all(n % i for i in range(2, int(n**0.5) + 1))


def test_every_call_is_recorded_as_strace_saw_it(
    spool: Path, allcalls: Path, require, tmp_path: Path
) -> None:
    require("strace")
    work = spool / "work"
    work.mkdir()
    log = tmp_path / "log"
    command = ["strace", *strace_log.OPTIONS, "-o", str(log), str(allcalls), str(work)]
    trace = record(spool, tmp_path / "trace", command, tmp_path / "counts")
    assert trace.meta["lost"] == 0
    seen = expected.calls_on_spool(strace_log.read(tmp_path, "log"), str(spool))
    recorded = comparison.rows_by_thread(trace)
    found = comparison.differences(seen, recorded)
    assert found == [], comparison.summary(found)


def test_every_call_is_recorded_as_often_as_it_was_made(
    spool: Path, allcalls: Path, tmp_path: Path
) -> None:
    work = spool / "work"
    work.mkdir()
    trace = record(spool, tmp_path / "trace", [str(allcalls), str(work)], tmp_path / "counts")
    wanted = made(tmp_path / "counts")
    assert set(wanted) == set(CALLS)
    assert [name for name, n in wanted.items() if not is_prime(n)] == []
    recorded = Counter(trace.table("syscalls", ["syscall"]).column(0).to_pylist())
    wrong = {n: (recorded[n], wanted[n]) for n in CALLS if recorded[n] != wanted[n]}
    assert wrong == {}, f"call: (recorded, made): {wrong}"
    assert (trace.meta["complete"], trace.meta["lost"]) == (True, 0)
    assert trace.meta["paths_unresolved"] == 0
