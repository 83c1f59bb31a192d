"""Number of loads of each BPF program, by strace: one, if the kernel accepts all."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
MAIN = [sys.executable, "-m", "spoolscope.cli.main"]
LOADED = re.compile(r'BPF_PROG_LOAD.*prog_name="(\w+)"')


def loads(mount: Path, place: Path, *inject: str) -> tuple[list[str], Counter[str]]:
    """Record one call under strace; return all bpf calls, and the number of loads of each name."""
    log, trace = place / "strace", place / "trace"
    traced = ["strace", "-f", "-qq", "-s", "64", "-e", "trace=bpf", *inject, "-o", log]
    words = [*MAIN, "record", "-f", "--spool", mount, "-o", trace, "--snapshot", "none"]
    subprocess.run([*traced, *words, "--", "mkdir", mount / log.name], check=True)
    (mount / log.name).rmdir()
    assert Trace.open(trace).meta["tier"] == "T2"
    lines = [line for line in log.read_text().splitlines() if "bpf(" in line]
    return lines, Counter(found[1] for line in lines if (found := LOADED.search(line)))


def test_each_program_is_loaded_once_and_all_again_if_one_is_refused(spool, tmp_path, require):
    require("strace")
    mount = spool("ext4")
    lines, once = loads(mount, tmp_path)
    # The kernel keeps 15 characters, which several names may share.
    own = {name: n for name, n in once.items() if name.startswith("on_") and len(name) < 15}
    assert len(own) > 20
    assert set(own.values()) == {1}
    at = next(n for n, line in enumerate(lines, 1) if 'prog_name="on_sample"' in line)
    # It is refused once, and again when libbpf retries to get the log, but not in the survey, which
    # thus finds nothing to leave out.
    _, again = loads(mount, tmp_path, "-e", f"inject=bpf:error=EACCES:when={at}..{at + 1}")
    assert again["on_exit"] == 3
    assert again["on_uring_submit"] == 2
