"""Private names of all kinds are hidden in a trace."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from spoolscope.tracers.session import Request, record
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

PROGRAM = "alicefilter"
SCRIPT = """
cd {mount}/alicehome
./alicefilter -c 'for i in 1 2 3; do echo x > aliceletter; mv aliceletter alicemail; sync alicemail
(rm alicemail); done; exec ./alicefilter -c ": > alicelast"'
ln -s alicetarget alicelink
"""


def texts(trace: Trace) -> list[tuple[str, str]]:
    """Return every text of every table, with its column."""
    found = []
    for name in TABLES:
        table = trace.table(name)
        for column in table.column_names:
            values = table[column]
            if pa.types.is_dictionary(values.type):
                values = values.cast(pa.string())
            if pa.types.is_string(values.type):
                distinct = values.unique().to_pylist()
                found += [(f"{name}.{column}", text) for text in distinct if text]
    return found


def recording(mount: Path, output: Path, **options) -> Trace:
    home = mount / "alicehome"
    home.mkdir()
    shutil.copy("/bin/bash", home / PROGRAM)
    command = ["sh", "-c", SCRIPT.format(mount=mount)]
    summary = record(Request(spools=[mount], output=output, command=command, **options))
    assert summary.command_status == 0
    return Trace.open(summary.trace)


def test_no_private_name_is_left_in_any_column(spool, tmp_path):
    trace = recording(spool("ext4"), tmp_path / "trace", key_file=tmp_path / "key")
    assert [(where, text) for where, text in texts(trace) if "alice" in text] == []
    comms = {text for where, text in texts(trace) if where == "syscalls.comm"}
    assert len([comm for comm in comms if len(comm) == len(PROGRAM)]) == 1
    assert comms >= {"sh", "mv", "rm", "sync"}
    # meta has the mount point and nothing below it.
    assert "alice" not in json.dumps(trace.meta)


def test_keep_names_keeps_the_names_of_programs(spool, tmp_path):
    trace = recording(spool("ext4"), tmp_path / "trace", keep_names=True)
    found = {where for where, text in texts(trace) if text == PROGRAM}
    assert found >= {"syscalls.comm", "threads.comm", "task_events.comm"}


@pytest.mark.parametrize("fstype", ["ext4", "btrfs"])
def test_an_output_on_the_spool_changes_nothing_there(fstype, spool, monkeypatch):
    mount = spool(fstype)
    below = mount / "below"
    if fstype == "btrfs":
        subprocess.run(
            ["btrfs", "subvolume", "create", below], check=True, stdout=subprocess.DEVNULL
        )
    else:
        below.mkdir()
    made = []
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **where: made.append(where))
    before = mount.stat().st_mtime_ns, below.stat().st_mtime_ns
    for output in (mount / "trace", below / "trace"):
        with pytest.raises(SpoolscopeError, match="lies on the spool itself") as refused:
            record(Request(spools=[mount], output=output, command=["true"]))
        assert refused.value.exit_code == 1
        assert str(refused.value.remedy).startswith("choose another -o")
    assert made == []
    assert (mount.stat().st_mtime_ns, below.stat().st_mtime_ns) == before


def test_an_output_that_is_a_dangling_link_is_refused(spool, tmp_path):
    output = tmp_path / "trace"
    output.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SpoolscopeError, match="exists") as refused:
        record(Request(spools=[spool("ext4")], output=output, command=["true"]))
    assert refused.value.exit_code == USAGE
    assert output.is_symlink()
    assert list(tmp_path.glob(".trace*")) == []


def test_force_does_not_remove_a_trace_from_the_spool(spool):
    mount = spool("ext4")
    old = mount / "trace"
    old.mkdir()
    (old / "meta.json").write_text('{"schema": "spoolscope/1"}')
    words = ["record", "-q", "--force", "--spool", mount, "-o", old, "-d", "1"]
    command = [sys.executable, "-m", "spoolscope.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "lies on the spool itself" in done.stderr) == (1, True)
    assert (old / "meta.json").is_file()
