"""Privileges of the running recorder, by /proc; and permissions of the files that it writes."""

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spoolscope.tracers.request import Limit
from spoolscope.tracers.session import Request, record
from spoolscope.traces.recording import Recording
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

NAMES = {
    2: "dac_read_search",
    5: "kill",
    19: "sys_ptrace",
    21: "sys_admin",
    34: "syslog",
    38: "perfmon",
    39: "bpf",
}


def status(pid: int | str) -> list[dict[str, str]]:
    """Return the members of /proc/PID/status of every thread."""
    threads = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        threads.append(dict(line.split(":\t", 1) for line in lines if ":\t" in line))
    return threads


def capabilities(word: str) -> set[str]:
    number = int(word, 16)
    return {NAMES.get(i, str(i)) for i in range(64) if number >> i & 1}


# It sleeps on the spool, so that there are stacks, and writes its own capabilities.
COMMAND = "grep Cap /proc/self/status > {said}; for i in 1 2 3 4; do sync {spool}; sleep 0.5; done"


@pytest.mark.parametrize(
    ("rotate", "snapshot"), [(False, "full"), (True, "full"), (False, "touched")]
)
def test_it_keeps_only_what_it_needs(rotate, snapshot, spool, tmp_path):
    mount, output = spool("ext4"), tmp_path / "trace"
    found: dict[str, list[dict[str, str]]] = {}

    def look() -> None:
        while not (tmp_path / "said").exists():  # the command runs: the recorder is ready
            time.sleep(0.05)
        pattern = f"spoolscope-record run .*{tmp_path}"
        first, second = subprocess.check_output(["pgrep", "-f", pattern], text=True).split()
        if status(first)[0]["PPid"] == second:
            first, second = second, first
        found.update(recorder=status(first), switch=status(second))
        if rotate:
            _private(output)

    looking = threading.Thread(target=look)
    looking.start()
    summary = record(
        Request(
            spools=[mount],
            output=output,
            command=["sh", "-c", COMMAND.format(said=tmp_path / "said", spool=mount)],
            keep_names=True,
            snapshot=snapshot,
            rotate=Limit(age_s=3600) if rotate else Limit(),
        )
    )
    looking.join()
    assert summary.command_status == 0
    trace = Trace.open(Recording.open(output).traces()[0] if rotate else output)
    own = capabilities(status("self")[0]["CapEff"])
    needed = {"bpf", "perfmon", "syslog", "kill"} | ({"sys_ptrace"} if rotate else set())
    needed |= {"dac_read_search"} if snapshot == "touched" else set()
    for who, may in (("recorder", needed), ("switch", {"sys_admin"})):
        for thread in found[who]:
            for kind in ("CapEff", "CapPrm"):
                assert capabilities(thread[kind]) == may & own, (who, kind)
            assert capabilities(thread["CapBnd"]) == set()
            assert capabilities(thread["CapAmb"]) == set()
            assert thread["NoNewPrivs"] == "1"
    # The command has the capabilities of this test, also those that the recorder gave up.
    said = dict(line.split(":\t") for line in (tmp_path / "said").read_text().splitlines())
    assert capabilities(said["CapEff"]) == own
    assert capabilities(said["CapBnd"]) == capabilities(status("self")[0]["CapBnd"])
    # With its few capabilities it still wrote names of kernel functions, costs, and the end.
    assert trace.meta["complete"]
    assert trace.meta["overhead_ppm"]["n"] > 0
    symbols = trace.table("stacks", ["symbol"])["symbol"].to_pylist()
    assert symbols
    assert not [name for name in symbols if name.startswith("0x")]
    _private(output)


def _private(directory: Path) -> None:
    for path in [directory, *directory.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert path.lstat().st_uid == os.geteuid()


def test_no_link_is_followed_to_the_output(spool, tmp_path):
    mount, elsewhere = spool("ext4"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "trap").symlink_to(elsewhere)
    (tmp_path / "trace").symlink_to(elsewhere)
    for output in (shared / "trap" / "trace", tmp_path / "trace"):
        command = [sys.executable, "-m", "spoolscope.cli.main", "record", "-q", "--spool", mount]
        done = subprocess.run(
            [*command, "-d", "1", "-o", output], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "symbolic link" in done.stderr or "exists" in done.stderr
    assert list(elsewhere.iterdir()) == []
