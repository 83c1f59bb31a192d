"""--snapshot touched: only directories of a big tree that calls use, in their initial state."""

import os
import sys
from pathlib import Path

import pytest

from spoolscope.tracers.request import Limit, Snapshot
from spoolscope.tracers.session import Request, record
from spoolscope.traces.recording import Recording
from spoolscope.traces.text import decoded
from spoolscope.traces.trace import Trace

sys.path.insert(0, str(Path(__file__).parent))
from storm import prepare
from storms import STORM, Tree, record_storm, replayed, tree

pytestmark = [pytest.mark.root, pytest.mark.steady]
BOXES, MAILS = 200, 100
# A storm that ends by itself, as its standard input ends.
WHOLE_STORM = ["sh", "-c", 'sleep 0.7 | "$@"', "storm", sys.executable, str(STORM)]


def populate(mount: Path) -> None:
    """Make the boxes of the storm, and many more unused ones."""
    prepare(str(mount))
    for box in range(BOXES):
        cur = mount / "idle" / f"box{box}" / "cur"
        cur.mkdir(parents=True)
        for mail in range(MAILS):
            (cur / str(mail)).touch()


def recorded(mount: Path, output: Path, snapshot: Snapshot, command: list[str]) -> Trace:
    summary = record(
        Request(spools=[mount], output=output, command=command, keep_names=True, snapshot=snapshot)
    )
    assert summary.command_status == 0
    return Trace.open(output)


def rows(trace: Trace) -> dict[str, tuple[int, ...]]:
    """Return inode, mode, owner and group of every name; more for old mails, which never change."""
    found = trace.connect().execute(
        "SELECT p.path, t.ino, t.mode, t.uid, t.gid, t.size, t.mtime_ns, t.blocks"
        " FROM tree t JOIN paths p USING (path_id)"
    )
    return {
        os.fsdecode(decoded(path)): tuple(values) if path.endswith(".old") else tuple(values[:4])
        for path, *values in found.fetchall()
    }


def used(trace: Trace) -> set[str]:
    """Return the directories of the names in calls, from the calls themselves."""
    found = trace.connect().execute(
        "SELECT DISTINCT p.path FROM syscalls s JOIN paths p"
        " ON p.path_id IN (s.path_id, s.path2_id) WHERE p.kind = 'spool'"
    )
    return {path.rpartition("/")[0] for (path,) in found.fetchall() if path}


def test_it_shows_what_the_full_walk_shows_of_them(spool, tmp_path):
    mount = spool("ext4")
    populate(mount)
    full = rows(recorded(mount, tmp_path / "full", "full", ["true"]))
    trace = recorded(mount, tmp_path / "touched", "touched", [*WHOLE_STORM, str(mount), "7"])
    touched, directories = rows(trace), used(trace)
    assert {name: full.get(name) for name in touched} == touched
    lie_there = {name for name in full if name.rpartition("/")[0] in directories and name}
    missed = lie_there - touched.keys()
    # Missed names are listed: only names that a call removed before they could be read.
    said = trace.connect().execute("SELECT path FROM missed_names JOIN paths USING (path_id)")
    assert missed <= {os.fsdecode(decoded(path)) for (path,) in said.fetchall()}
    assert len(missed) <= 0.1 * len(lie_there)
    assert len(lie_there) > 900
    assert not [name for name in touched if name.startswith("idle/")]
    assert len(full) > BOXES * MAILS


@pytest.mark.parametrize("seed", [1, 2])
def test_its_replay_ends_where_the_storm_did(spool, tmp_path, when_ready, seed):
    mount = spool("ext4")
    populate(mount)
    trace = record_storm(
        mount, seed, tmp_path / "trace", when_ready, snapshot="touched", snapshot_rate=20_000
    )
    row, left = replayed(trace, tmp_path / "out")
    assert (row["divergent"], row["final_state"]["examples"]) == (0, [])
    assert of_used(left, trace) == of_used(tree(mount), trace)
    assert not [name for name in left if name.startswith("idle/")]


def of_used(left: Tree, trace: Trace) -> dict[str, tuple[int, int]]:
    """Return the content of directories that calls used, without link counts of elsewhere."""
    directories = used(trace)
    return {
        name: (mode, size)
        for name, (mode, _, size) in left.items()
        if name.rpartition("/")[0] in directories
    }


def test_nothing_but_what_was_used_is_looked_at(spool, tmp_path):
    mount = spool("ext4")
    populate(mount)
    trace = recorded(mount, tmp_path / "trace", "touched", ["touch", f"{mount}/box1/tmp/x"])
    assert rows(trace).keys() == {"", "box1", "box1/tmp"}
    assert trace.meta["snapshot"] == {
        "kind": "touched",
        "directories": 1,
        "directories_missed": 0,
    }


def test_symbolic_links_lead_to_it(spool, tmp_path):
    mount = spool("ext4")
    (mount / "real" / "cur").mkdir(parents=True)
    (mount / "real" / "cur" / "mail").write_bytes(b"m" * 77)
    (mount / "link").symlink_to("real")
    trace = recorded(mount, tmp_path / "trace", "touched", ["cat", f"{mount}/link/cur/mail"])
    found = rows(trace)
    assert {"", "link", "real", "real/cur", "real/cur/mail"} == found.keys()
    assert found["link"][0] == (mount / "link").lstat().st_ino


def test_with_rotation_every_trace_has_its_directories(spool, tmp_path):
    """Check that each trace has exactly the files that it reads, with their stat data."""
    mount = spool("ext4")
    for box in "abc":
        (mount / box).mkdir()
        for mail in range(20):
            (mount / box / str(mail)).write_bytes(b"m" * mail)
    reads = "; ".join(f"cat {mount}/{box}/* > /dev/null; sleep 1.2" for box in "abc")
    record(
        Request(
            spools=[mount],
            output=tmp_path / "rec",
            command=["sh", "-c", reads],
            keep_names=True,
            snapshot="touched",
            rotate=Limit(age_s=1.2),
        )
    )
    traces = [Trace.open(path) for path in Recording.open(tmp_path / "rec").traces()]
    assert len(traces) >= 3
    all_read: set[str] = set()
    for trace in traces:
        read = used(trace) - {""}
        all_read |= read
        found = {name: values[0] for name, values in rows(trace).items() if "/" in name}
        there = {f"{box}/{mail}": (mount / box / str(mail)) for box in read for mail in range(20)}
        assert found == {name: path.stat().st_ino for name, path in there.items()}
        assert trace.meta["tree"]
        assert trace.meta["snapshot"] == {
            "kind": "touched",
            "directories": trace.meta["snapshot"]["directories"],
            "directories_missed": 0,
        }
    assert all_read == {"a", "b", "c"}


VANISHING = """
import os, sys, time
until = time.monotonic() + 2
n = 0
while time.monotonic() < until:
    n += 1
    place = os.path.join(sys.argv[1], str(n % 50))
    os.mkdir(place)
    os.close(os.open(os.path.join(place, "x"), os.O_CREAT | os.O_WRONLY))
    os.unlink(os.path.join(place, "x"))
    os.rmdir(place)
print(n)
"""


def test_directories_that_are_removed_while_they_are_listed(spool, tmp_path, capfd):
    mount, command = spool("ext4"), [sys.executable, "-c", VANISHING]
    trace = recorded(mount, tmp_path / "t", "touched", [*command, str(mount)])
    made = (
        trace.connect()
        .execute("SELECT count(*) FROM syscalls WHERE syscall = 'mkdir' AND errno = 0")
        .fetchone()
    )
    assert made == (int(capfd.readouterr().out),)
    assert trace.meta["complete"]
    assert trace.meta["snapshot"]["kind"] != "partial"
