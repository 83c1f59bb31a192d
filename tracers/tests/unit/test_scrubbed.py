"""Names hidden afterwards are the same as in a recording with the key."""

from pathlib import Path

import pyarrow as pa
import pytest

from spoolscope.tracers.convert import convert
from spoolscope.tracers.lives import EXIT, FORK
from spoolscope.traces.private import Hiding
from spoolscope.traces.schema import TABLES
from spoolscope.traces.scrub import scrub
from spoolscope.traces.trace import Trace

KEY = bytes(range(32))


def tell(story) -> None:
    story.capture.meta["spools"] = [
        {
            "mount": "/spool",
            "dev": 7,
            "fstype": "ext4",
            "source": "/dev/mapper/alice",
            "options": "rw",
        },
        {"mount": "/spool/example.org", "dev": 8, "fstype": "ext4", "source": "", "options": "rw"},
    ]
    story.capture.meta["filter"] = {"comms": ["alice-filter"], "cgroups": ["user.slice/alice"]}
    story.task(FORK, 9, parent_pid=3, parent_tid=3, comm=b"alice-filter")
    story.opened(9, "/spool/alice/tmp/1700000000.M1P2.mailhost7", 3, 50)
    story.call(9, "rename", "/spool/alice/tmp/1", "/spool/alice/cur/1,S=5:2,S")
    story.call(9, "symlink", "../bob", "/spool/example.org/100% \u00fc~")
    waited = {"pid": 9, "tid": 9, "state": 2, "out_ns": story.now - 2, "in_ns": story.now - 1}
    held = {"held_pid": 4, "held_tid": 4, "held_ns": 1, "held_from_ns": story.now - 2}
    story.add("switch", call_ns=story.now - 5, **waited, **held, held_comm=b"alice-hog")
    story.capture.meta["io_limits"] = [{"cgroup": "/user.slice/alice", "dev": 7, "read_bps": 9}]
    story.capture.meta["io_cgroups"] = {"77": "/user.slice/alice/mail"}
    story.add("block", start_ns=story.now - 3, done_ns=story.now, flags=1, cgroup_id=77)
    story.add("block", start_ns=story.now - 2, done_ns=story.now)
    story.name("/spool/alice", 51, 0o040700)
    story.task(EXIT, 9, n_calls=3, comm=b"alice-filter")


def test_scrubbing_gives_what_recording_with_the_key_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_story
) -> None:
    for name, hiding in (("kept", None), ("hidden", Hiding(KEY))):
        story = new_story()
        tell(story)
        capture = story.end()
        monkeypatch.setattr("spoolscope.tracers.convert.read_capture", lambda _, c=capture: c)
        (tmp_path / name).mkdir()
        convert([tmp_path], tmp_path / name, hiding)
    n = scrub(tmp_path / "kept", tmp_path / "scrubbed", Hiding(KEY), lambda _what, _share: None)
    assert n > 5
    kept, hidden, scrubbed = (
        Trace.open(tmp_path / name) for name in ("kept", "hidden", "scrubbed")
    )
    # Files of equal tables, which are compared below, may have different layouts.
    digests = ("digest", "digests")
    facts = [
        {name: value for name, value in trace.meta.items() if name not in digests}
        for trace in (kept, hidden, scrubbed)
    ]
    assert facts[2] == facts[1] != facts[0]
    for name in TABLES:
        one, other = (trace.table(name).to_pylist() for trace in (hidden, scrubbed))
        assert one == other, name
    assert kept.table("segments")["held_comm"].to_pylist() == ["alice-hog"]
    assert hidden.table("segments")["held_comm"].to_pylist() != ["alice-hog"]
    limited = [trace.table("block_ios") for trace in (kept, hidden)]
    assert [table["held_back"].to_pylist() for table in limited] == [[True, False]] * 2
    assert limited[0]["cgroup"].to_pylist() == ["/user.slice/alice/mail", None]
    assert limited[1]["cgroup"][0].as_py() != "/user.slice/alice/mail"
    assert "alice" not in hidden.meta["io_limits"][0]["cgroup"]
    assert kept.table("paths")["path"] != hidden.table("paths")["path"]
    assert pa.compute.count_distinct(kept.table("paths")["path"]) == pa.compute.count_distinct(
        scrubbed.table("paths")["path"]
    )
