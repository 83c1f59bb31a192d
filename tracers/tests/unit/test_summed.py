"""Tables of roll-ups, made of the file of a minute."""

import json

import pytest

from spoolscope.tracers.summed import About, Names, Summed
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.private import Hiding
from spoolscope.traces.rollups.files import Rollups, write

ABOUT = About("mail1", "b", "r", "6.12", "1", 4)
DEV = 7 << 20
CONTENT = {
    "seq": 3, "minute_s": 1_800_000_000, "start_ns": 0, "covered_ns": 60 * 10**9,
    "clock_step_ns": 5, "lost": 2, "recorder_ns": 100,
    "call_names": ["read", "write"],
    "causes": ["", "call", "", "cpu"],
    "programs": [["imap", "/system.slice/dovecot.service/x"], ["alice", "/user.slice"], ["", "/"]],
    "calls": {
        "dev": [DEV, DEV, 0], "program": [0, 0, 1], "call": [1, 1, 0], "cause": [1, 3, 1],
        "size_class": [9, 9, -1], "failed": [0, 0, 1], "bucket": [70, 70, 5], "n": [4, 4, 1],
        "sum_ns": [400, 400, 5],
    },
    "commits": [[DEV, 0, 2, 30, 20], [DEV, 2, 1, 5, 5]],
    "directories": [[DEV, "/mail/alice/new", 3, 9], [DEV, "/elsewhere", 1, 1]],
    "spools": [
        {
            "mount": "/srv/mail", "root": "/mail", "fstype": "ext4", "options": "rw", "dev": DEV,
            "source": "/dev/loop0", "disks": [],
        }
    ],
}  # fmt: skip


def test_a_minute_becomes_tables_that_can_be_written(tmp_path):
    tables = Summed(CONTENT).tables(ABOUT, Names(None), more_ns=11)
    write(tmp_path, ABOUT.host, tables)
    rollups = Rollups(tmp_path)
    calls = rollups.read("calls").to_pylist()
    assert {(c["unit"], c["syscall"], c["cause"], c["n"]) for c in calls} == {
        ("dovecot.service", "write", "call", 4),
        ("dovecot.service", "write", "cpu", 4),
        ("/user.slice", "read", "call", 1),
    }
    assert [(c["comm"], c["unit"]) for c in rollups.read("commits").to_pylist()] == [
        ("", ""),
        ("imap", "dovecot.service"),
    ]
    directories = rollups.read("directories").to_pylist()
    assert {d["directory"] for d in directories} == {"/srv/mail/alice/new", ""}
    minutes = {m["dev"]: m for m in rollups.read("minutes").to_pylist()}
    assert {dev: m["calls"] for dev, m in minutes.items()} == {DEV: 4, 0: 1}
    assert sum(m["lost"] for m in minutes.values()) == 2, "not once for each spool"
    assert sum(m["recorder_ns"] for m in minutes.values()) == 111
    assert minutes[DEV]["fs"] == "ext4"
    assert minutes[DEV]["cpus"] == 4


def test_private_names_are_hidden():
    names = Names(Hiding(b"k" * 32))
    tables = Summed(CONTENT).tables(ABOUT, names)
    shown = json.dumps([list(map(str, column)) for t in tables.values() for column in t.values()])
    assert "alice" not in shown
    assert "imap" in shown


def test_a_damaged_file_is_an_error(tmp_path):
    file = tmp_path / "minute-000000001.json"
    file.write_text('{"seq": ')
    with pytest.raises(SpoolscopeError, match="cannot read the sums"):
        Summed.read(file)
