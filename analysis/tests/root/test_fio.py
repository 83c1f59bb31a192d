"""fio replays an exported trace: the same number of requests and bytes, at their times."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.cli.main import group
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
SAMPLE = Path(__file__).parents[3] / "traces/samples/postfix-dovecot"
SIZE = 1020702720  # size of the recorded disk


@pytest.fixture
def loop(require, tmp_path):
    """Yield a disk as large as the recorded one."""
    require("root")
    require("fio")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(SIZE)
    words = ["losetup", "--find", "--show", str(image)]
    device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


def sectors(device: str) -> tuple[int, int]:
    """Return the kernel's counts of sectors read and written (Documentation/block/stat.rst)."""
    fields = Path(f"/sys/block/{Path(device).name}/stat").read_text().split()
    return int(fields[2]), int(fields[6])


def test_fio_does_as_many_requests_and_bytes_in_as_long(loop, tmp_path):
    log = tmp_path / "iolog"
    made = ["export", str(SAMPLE), "--to", "fio", "-o", str(log), "--slice", "10s..12s", "-q"]
    result = CliRunner().invoke(group, made, standalone_mode=False)
    assert result.exception is None, result.exception
    count, total, last_us = Counter(), Counter(), 0
    for line in log.read_text().splitlines()[3:-1]:
        at_us, _, action, _, length = line.split()
        count[action] += 1
        total[action] += int(length)
        last_us = int(at_us)
    before = sectors(loop)
    words = ["fio", "--name=replay", f"--read_iolog={log}", f"--replay_redirect={loop}"]
    words += ["--direct=1", "--ioengine=psync", "--output-format=json"]
    said = subprocess.run(words, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    (job,) = json.loads(said)["jobs"]
    assert job["error"] == 0
    assert count["write"] > 100
    for action in ("read", "write"):
        assert job[action]["total_ios"] == count[action]
        assert job[action]["io_bytes"] == total[action]
    assert job["sync"]["total_ios"] == count["sync"]
    done = [512 * (new - old) for new, old in zip(sectors(loop), before, strict=True)]
    assert done == [total["read"], total["write"]]
    # Its pace is the recorded one: never faster.
    assert job["job_runtime"] * 1000 > 0.95 * last_us


DONE = """
SELECT syscall, ret FROM syscalls WHERE errno = 0 AND obj_mode & 61440 = 32768
    AND path_id IS NOT NULL AND ts_ns >= {from_ns} AND ts_ns < {to_ns} AND syscall IN (
    'read', 'pread64', 'readv', 'write', 'pwrite64', 'writev', 'fsync', 'fdatasync')
"""


def test_fio_makes_the_calls_on_files_again(require, tmp_path):
    require("fio")
    require("strace")
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    made = ["export", str(SAMPLE), "--to", "fio-files", "-o", str(out), "--slice", "10s..11s", "-q"]
    result = CliRunner().invoke(group, made, standalone_mode=False)
    assert result.exception is None, result.exception
    trace = Trace.open(SAMPLE)
    begin, second = trace.meta["start_ns"], 10**9
    count, total = Counter(), Counter()
    with trace.connect() as con:
        part = DONE.format(from_ns=begin + 10 * second, to_ns=begin + 11 * second)
        for call, ret in con.execute(part).fetchall():
            kind = "read" if "read" in call else "write" if "write" in call else call
            if "sync" in call or ret > 0:
                count[kind] += 1
                total[kind] += ret
    assert min(count[kind] for kind in ("read", "write", "fsync", "fdatasync")) > 10
    scratch.mkdir()
    subprocess.run(["sh", out / "prepare.sh", scratch], check=True)
    words = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", "../syncs"]
    words += ["fio", "replay.fio", "--output-format=json", "--output=../said.json"]
    subprocess.run(words, check=True, capture_output=True, cwd=out)
    jobs = json.loads((tmp_path / "said.json").read_text())["jobs"]
    assert [job["error"] for job in jobs] == [0] * len(jobs)
    for action in ("read", "write"):
        assert sum(job[action]["total_ios"] for job in jobs) == count[action]
        assert sum(job[action]["io_bytes"] for job in jobs) == total[action]
    syncs = (tmp_path / "syncs").read_text().splitlines()  # fio's own count lacks fdatasync
    for call in ("fsync", "fdatasync"):
        assert sum(f" {call}(" in line for line in syncs) == count[call]
