"""A recording that exceeds its budget leaves out data, the least important ones first."""

import subprocess
from pathlib import Path

import bpf
import pytest
from recorder import Recorder

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.root

# Some 50,000 reads a second between renames; it prints both numbers, and its thread.
PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	long reads = 0, renames = 0, end = time(NULL) + 4;
	char byte;
	int fd;

	chdir(argv[1]);
	fd = open("a", O_RDWR | O_CREAT, 0600);
	while (time(NULL) < end) {
		for (int i = 0; i < 100; i++, reads++)
			pread(fd, &byte, 1, 0);
		usleep(1000);
		renames += !rename(renames % 2 ? "b" : "a", renames % 2 ? "a" : "b");
	}
	printf("%ld %ld %d\n", reads, renames, getpid());
	return 0;
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source = tmp_path / "reader.c"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-o", tmp_path / "reader", source], check=True)
    return tmp_path / "reader"


def run(
    program: Path, mount: Path, tmp_path: Path, budget: float | None
) -> "tuple[Trace, list[int]]":
    said = tmp_path / "said"
    summary = record(
        Request(
            spools=[mount],
            output=tmp_path / "trace",
            command=["sh", "-c", f"{program} {mount} > {said}"],
            max_overhead_percent=budget,
            snapshot="none",
        )
    )
    return Trace.open(summary.trace), [int(word) for word in said.read_text().split()]


def test_a_budget_sheds_in_order_and_never_metadata(program, spool, tmp_path) -> None:
    trace, (reads, renames, pid) = run(program, spool("ext4"), tmp_path, 0.01)
    ask = trace.connect().execute
    levels = [level for (level,) in ask("SELECT level FROM sheds ORDER BY ts_ns").fetchall()]
    assert levels == ["stacks", "7/8 data", "63/64 data"]
    recorded = dict(
        ask("SELECT syscall, count(*) FROM syscalls WHERE pid = ? GROUP BY 1", [pid]).fetchall()
    )
    assert recorded["rename"] == renames  # the program's own count
    [(shed, lost)] = ask(
        "SELECT coalesce(sum(n) FILTER (kind = 'shed'), 0),"
        " coalesce(sum(n) FILTER (kind = 'syscall'), 0) FROM losses WHERE pid = ?",
        [pid],
    ).fetchall()
    assert lost == 0
    assert recorded["pread64"] + shed == reads
    [(kept, spanned)] = ask(
        "SELECT count(*), max(seq) - min(seq) FROM syscalls WHERE pid = ? AND syscall = 'pread64'"
        " AND ts_ns > (SELECT max(ts_ns) FROM sheds)",
        [pid],
    ).fetchall()
    assert kept == pytest.approx(spanned / 64, rel=0.2)  # one of 64 reads; a rename in 100
    assert trace.meta["shed"] == shed
    assert not trace.meta["complete"]


def test_without_a_budget_the_cost_is_stated_and_nothing_left_out(program, spool, tmp_path) -> None:
    trace, (reads, _, pid) = run(program, spool("ext4"), tmp_path, None)
    [(recorded,)] = (
        trace.connect()
        .execute("SELECT count(*) FROM syscalls WHERE syscall = 'pread64' AND pid = ?", [pid])
        .fetchall()
    )
    assert recorded == reads
    assert trace.meta["complete"]
    cost = trace.meta["overhead_ppm"]
    assert cost["n"] >= 1
    # The limits are those of the kernel's part, 0.1 to 1 us a call on all CPUs.
    rate = reads / 4 / trace.meta["cpus"]
    assert 0.1e-6 * rate < cost["median"] / 1e6 < 5e-6 * rate


def test_the_verifier_follows_no_more_ways_than_it_must(spool, tmp_path):
    """The verifier checks every path through an inlined function, at every place."""
    with Recorder(spool("ext4"), tmp_path / "capture") as recorder:
        followed = bpf.verified_instructions(recorder.process.pid)
    assert len(followed) > 50
    # 64,000 on 6.18
    assert 10_000 < sum(followed.values()) < 90_000
