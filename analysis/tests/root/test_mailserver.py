"""Real mail servers: the recorder sees all that they deliver, and nothing is left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from spoolscope.lab.mailserver import inside
from spoolscope.lab.mailserver.load import Load
from spoolscope.lab.mailserver.loading import Loading, fill
from spoolscope.lab.mailserver.packages import unpacked
from spoolscope.lab.mailserver.running import running
from spoolscope.lab.mailserver.servers import setup_of
from spoolscope.traces.errors import SpoolscopeError

pytestmark = [pytest.mark.root, pytest.mark.steady]
LAB = [sys.executable, "-m", "spoolscope.cli.main", "lab", "mailserver"]


@pytest.fixture(scope="module")
def why_no_packages() -> str:
    """Return why servers cannot be unpacked here; empty if they can."""
    try:
        unpacked(setup_of("dovecot", None, 1)[0].packages)
    except SpoolscopeError as error:
        return error.message
    return ""


@pytest.fixture(autouse=True)
def packages(require: Callable[..., None], why_no_packages: str) -> None:
    if why_no_packages:
        require("packages", reason=why_no_packages)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Callable[..., None]) -> None:
    require("bpf")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def processes(words: str) -> list[str]:
    """Return processes whose command line holds some words."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words in line and int(place.name) != os.getpid():
            found.append(line)
    return found


def loops() -> str:
    return subprocess.run(["losetup", "--all"], capture_output=True, text=True, check=True).stdout


def test_what_was_delivered_is_what_the_recorder_saw(tmp_path: Path, disk: Path) -> None:
    trace = tmp_path / "t.trace"
    words = ["--server", "dovecot", "--on", "ext4", "--users", "5", "--messages", "2"]
    load = ["--seconds", "1.5", "--rate", "15", "--keep-names", "-o", str(trace), "--json", "-q"]
    load += ["--device", str(disk), "--format-device", str(disk)]
    beside = ["--beside", "cp -r /run/spool/mail/user0001 /run/spool/copy"]
    done = subprocess.run(
        [*LAB, *words, *load, *beside], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    kinds = {kind["name"]: kind["n"] for kind in said["kinds"]}
    assert said["left"] == 0
    assert said["delivered"] == kinds["smtp message"] + kinds["lmtp message"] > 5
    assert kinds["imap session"] > 0
    assert kinds["pop3 session"] > 0
    calls, paths = (f"read_parquet('{trace}/{name}.parquet')" for name in ("syscalls", "paths"))
    [(arrived,)] = duckdb.sql(
        f"SELECT count(*) FROM {calls} c JOIN {paths} p ON c.path2_id = p.path_id "
        "WHERE comm = 'lmtp' AND syscall IN ('link', 'rename') AND ret = 0 "
        "AND path LIKE '%/Maildir/new/%'"
    ).fetchall()
    assert arrived == said["delivered"]
    assert said["beside_status"] == 0
    [(copied,)] = duckdb.sql(
        f"SELECT count(*) FROM {calls} JOIN {paths} USING (path_id) "
        "WHERE comm = 'cp' AND syscall = 'openat' AND path LIKE 'copy/Maildir/%' AND ret >= 0"
    ).fetchall()
    assert copied >= 2
    [spool] = json.loads((trace / "meta.json").read_text())["spools"]
    assert spool["source"] == str(disk)
    left = subprocess.run(["wipefs", str(disk)], capture_output=True, text=True, check=True)
    assert left.stdout == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--on", "ext4@6.1"], "use --on ext4 --vm 6.1"),
        (["--on", "reiserfs"], "use --vm 6.1"),
        (["--on", "ext4", "--device", "/dev/vda"], "confirm it with --format-device /dev/vda"),
        (["--on", "ext4", "--users", "9999", "--messages", "100000"], "MiB free, the image may"),
        (["--on", "ext4", "--format", "cyrus"], "use --format maildir or sdbox or mdbox or mbox"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_made(
    tmp_path: Path, words: list[str], told: str
) -> None:
    done = subprocess.run(
        [*LAB, "--server", "dovecot", *words, "--work", str(tmp_path), "-q"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []


def files(spool: Path, pattern: str) -> int:
    return sum(1 for path in spool.rglob(pattern) if path.is_file())


def mails_in_mboxes(spool: Path, _pattern: str) -> int:
    return sum(box.read_bytes().count(b"\nMessage-ID: ") for box in spool.glob("mail/*/mbox"))


@pytest.mark.parametrize(
    ("server", "form", "pattern", "count"),
    [
        ("courier", "maildir", "Maildir/new/*", files),
        ("cyrus", "cyrus", "mail/**/[0-9]*.", files),
        ("exim", "mbox", "", mails_in_mboxes),
    ],
)
def test_what_other_servers_deliver_lies_in_the_mailboxes(
    tmp_path: Path, server: str, form: str, pattern: str, count: Callable[[Path, str], int]
) -> None:
    setup, _ = setup_of(server, form, 3)
    load = Load(1.5, 15.0, 1, {"smtp": 1, "lmtp": 1}, seed=1)
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o755)
    with running(setup, unpacked(setup.packages), spool) as up:
        fill(up, users=3, messages=2, seed=7)
        assert count(spool, pattern) == 6
        done = Loading(up, load, users=3).run()
        assert (done.failed, done.left) == (0, 0), done.failures
        assert done.delivered == count(spool, pattern) - 6 > 5
        read = Loading(up, replace(load, mix={"imap": 1, "pop3": 1}, seed=2), users=3).run()
    assert read.failed == 0, read.failures
    for name in ("imap session", "pop3 session", "imap fetch", "pop3 retr"):
        kind = read.kind(name)
        assert kind is not None, name
        assert kind.n > 0, name


def test_a_daemon_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    setup, _ = setup_of("dovecot", "maildir", 3)
    entries = tuple(
        replace(entry, text=entry.text.replace("ssl = no", "ssl = perhaps"))
        if entry.text
        else entry
        for entry in setup.entries
    )
    root = unpacked(setup.packages)
    tmp_path.chmod(0o755)
    with (
        pytest.raises(SpoolscopeError, match=r"status 89$") as error,
        running(replace(setup, entries=entries), root, tmp_path),
    ):
        pass
    assert any("start: doveconf: " in line and "perhaps" in line for line in error.value.said)


def test_a_directory_closed_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    setup, _ = setup_of("dovecot", "maildir", 3)
    with (
        pytest.raises(SpoolscopeError, match="closed") as error,
        running(setup, tmp_path, tmp_path),
    ):
        pass
    assert error.value.remedy == f"chmod o+x {tmp_path}"


def test_a_killed_lab_leaves_only_what_clean_names(tmp_path: Path) -> None:
    words = ["--server", "dovecot", "--on", "ext4", "--users", "2", "--seconds", "60"]
    with subprocess.Popen(
        [*LAB, *words, "--work", str(tmp_path)], stderr=subprocess.PIPE, text=True
    ) as lab:
        assert lab.stderr is not None
        while "loading" not in lab.stderr.readline():
            assert lab.poll() is None
        until = time.monotonic() + 60
        while not processes("spoolscope.lab.mailserver.load") and time.monotonic() < until:
            time.sleep(0.05)
        assert processes(inside.__file__)
        lab.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while (
        processes(inside.__file__)
        or processes("spoolscope.lab.mailserver.load")
        or str(tmp_path) in loops()
    ):
        assert time.monotonic() < until
        time.sleep(0.05)
    [left] = tmp_path.glob(".spoolscope-*")
    cleaned = subprocess.run(
        [sys.executable, "-m", "spoolscope.cli.main", "clean"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"Removing {left}: the image, perhaps mounted, of an experiment" in cleaned.stdout
    assert not left.exists()
