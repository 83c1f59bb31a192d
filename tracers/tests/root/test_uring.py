"""io_uring on the spool, compared with the results that the program got."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from spoolscope.tracers.session import Request, record
from spoolscope.tracers.uring import OPS, PLACED, name_of
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
SOURCE = Path(__file__).with_name("uring.c")
REFUSED = 77


class Operation(NamedTuple):
    op: str
    offset: int
    size: int
    result: int


@pytest.fixture(params=["", "sqpoll"])
def ran(
    request, spool, tmp_path: Path, require: Callable[..., None]
) -> tuple[list[Operation], Trace]:
    """Record the program on ext4 and return its results and the trace.

    It runs without and with a submitting kernel thread.
    """
    mount, program, said = spool("ext4"), tmp_path / "uring", tmp_path / "said"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", program, SOURCE], check=True)
    (mount / "mail").touch()  # so that it is in the tree at the start
    command = ["sh", "-c", f"{program} {mount} {tmp_path / 'elsewhere'} {request.param} > {said}"]
    summary = record(
        Request(spools=[mount], output=tmp_path / "t", command=command, keep_names=True)
    )
    if summary.command_status == REFUSED:
        require("io_uring", "this kernel refuses it (kernel.io_uring_disabled)")
    assert summary.command_status == 0
    missing = summary.meta["programs"]["missing"]
    if needed := {"on_uring_submit", "on_uring_complete"} & set(missing):
        require("io_uring's tracepoints", "; ".join(missing[name] for name in needed))
    *lines, others = said.read_text().splitlines()
    assert others == "0 20 0"
    rows = [list(map(int, line.split())) for line in lines]
    return [Operation(name_of(row[0]), *row[1:]) for row in rows], Trace.open(summary.trace)


def test_every_operation_is_there_with_its_result(ran) -> None:
    operations, trace = ran
    rows = trace.table("uring_ops").to_pylist()
    assert [row["op"] for row in rows] == [operation.op for operation in operations]
    for operation, row in zip(operations, rows, strict=True):
        result = -row["errno"] if row["ret"] < 0 else row["ret"]
        assert result == operation.result, operation
        assert row["dur_ns"] > 0
        if operation.op in PLACED:
            assert row["offset"] == (operation.offset if operation.offset >= 0 else None)
            assert row["size"] == operation.size
    assert len({row["ring"] for row in rows}) == 1
    assert [row["user_data"] for row in rows] == list(range(2, 2 + len(rows)))
    # The operation with IOSQE_ASYNC; others may use a worker, too, if the filesystem would wait.
    assert [row["worker"] for row in rows if row["size"] == 50] == [True]
    assert [row["fd"] is None for row in rows if row["op"] == "read"][-1]  # a registered file
    files_are_known_by_their_inode(trace, rows)
    info_says_what_a_replay_leaves_out(trace, len(rows))


def files_are_known_by_their_inode(trace: Trace, rows: list[dict]) -> None:
    paths = {row["path_id"]: row["path"] for row in trace.table("paths").to_pylist()}
    assert {paths[row["path_id"]] for row in rows if row["ino"]} == {"mail"}
    assert [row["op"] for row in rows if not row["ino"]] == ["openat", "renameat", "unlinkat"]


def info_says_what_a_replay_leaves_out(trace: Trace, n: int) -> None:
    info = [sys.executable, "-m", "spoolscope.cli.main", "info", trace.path]
    said = subprocess.run(info, capture_output=True, text=True, check=True).stdout
    assert f"\n{n} io_uring operations on the spool are in the table uring_ops" in said
    assert "a replay does not repeat them" in said


def test_operations_have_the_kernel_s_names(require: Callable[..., None]) -> None:
    require("bpftool")
    dump = ["bpftool", "btf", "dump", "file", "/sys/kernel/btf/vmlinux"]
    types = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    of_kernel = re.findall(r"'IORING_OP_(\w+)' val=(\d+)", types)
    assert len(of_kernel) > 40
    for name, number in of_kernel:
        if name != "LAST" and int(number) < len(OPS):
            assert name_of(int(number)) == name.lower()
