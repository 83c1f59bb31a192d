"""Tables of roll-ups, made of the file of a minute."""

import json
from random import Random

import pytest

from spoolscope.tracers import summed
from spoolscope.tracers.summed import About, Names, Summed
from spoolscope.traces.concealed import counted_names
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.private import Hiding, Private
from spoolscope.traces.programs import group
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


def test_names_that_are_learnt_one_by_one_hide_what_all_of_them_hide():
    random = Random(7)
    hiding = Hiding(b"k" * 32)
    folders = ("Maildir/cur", "Maildir/.Work.Taxes/new", "mail/x", "bin/y")
    paths = [f"/srv/mail/dom{n % 5}.example/user{n}/{random.choice(folders)}".encode()
             for n in range(150)]  # fmt: skip
    paths += [b"/srv/mail/anna@left.example/new", b"/srv/mail/tmp/1.2.mailhost7/cur"]
    mounts = (b"/srv/mail",)
    apart, every = Names(hiding), Private(hiding, paths, mounts)
    for path in paths:
        apart.learn({path, paths[0]}, mounts)
    comms = "imap user7 user imap-user33 dom3 anna left taxes Work mail dom4.example user149x"
    for comm in (*comms.split(), "mailhost7", "lmtp", "y", "x", "kworker/0:1", "dom4.example/us"):
        assert apart.program(comm) == every.comms.text(comm.encode())
    for comm in comms.split():
        unit = f"{comm}@user5.service"
        assert apart.unit(f"/system.slice/{unit}") == every.comms.unit(unit.encode())
        assert apart.unit(f"/{comm}.slice/a") == group(f"/{comm}.slice/a".encode(), every.comms)
    assert [apart.directory(path) for path in paths] == [
        every.names.path(path).decode() for path in paths
    ]
    apart.learn(set(), (b"/srv",))  # another mount: all is learnt anew
    assert apart.program("user33") == every.comms.text(b"user33") != "user33"


def test_a_new_directory_costs_no_reading_of_all_that_are_known(monkeypatch):
    read = []

    def counted(paths, mounts):
        read.append(len(paths))
        return counted_names(paths, mounts)

    monkeypatch.setattr(summed, "counted_names", counted)
    names, mounts = Names(Hiding(b"k" * 32)), (b"/srv/mail",)
    names.learn({b"/srv/mail/user%d/cur" % n for n in range(1000)}, mounts)
    for n in range(64):
        names.learn({b"/srv/mail/late%d/cur" % n, b"/srv/mail/user1/cur"}, mounts)
    names.learn({b"/srv/mail/user1/cur"}, mounts)
    assert len(read) == 65
    assert read[0] == 1000
    assert sum(read[1:]) <= 64 * 7


def test_a_damaged_file_is_an_error(tmp_path):
    file = tmp_path / "minute-000000001.json"
    file.write_text('{"seq": ')
    with pytest.raises(SpoolscopeError, match="cannot read the sums"):
        Summed.read(file)
