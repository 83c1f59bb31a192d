"""A mail server of the lab: results of a load, and refusals before anything is made."""

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.cli.mailserver import command
from spoolscope.lab.mailserver import packages
from spoolscope.lab.mailserver.loading import _spoken
from spoolscope.lab.mailserver.outcome import outcome
from spoolscope.lab.mailserver.servers import SERVERS, setup_of
from spoolscope.traces.errors import SpoolscopeError

S = 10**9


def row(kind: str, due_s: float, end_s: float, error: str = "", begin_s: float | None = None):
    begin = due_s if begin_s is None else begin_s
    return (kind, round(due_s * S), round(begin * S), round(end_s * S), 100, error)


def test_a_time_runs_from_when_it_was_due_and_failures_have_none() -> None:
    rows = [row("smtp message", n, n + 0.001 * (n + 1), begin_s=n + 0.0005) for n in range(100)]
    rows.append(row("smtp message", 1, 50, "452 queue 77 is full"))
    rows.append(row("smtp message", 2, 51, "452 queue 78 is full"))
    found = outcome(rows, 0, 120 * S, 1.0, by_queue=97)
    kind = found.kind("smtp message")
    assert kind is not None
    assert (kind.n, kind.failed, kind.bytes) == (100, 2, 10_000)
    assert (kind.p50_ns, kind.p99_ns, kind.max_ns) == (50_000_000, 99_000_000, 100_000_000)
    assert kind.per_s == pytest.approx(100 / 120)
    assert found.reached_per_s == pytest.approx(100 / 120)
    assert found.failures == {"smtp message: N queue N is full": 2}
    assert (found.delivered, found.left, found.failed) == (97, 3, 2)
    assert found.minutes == {"smtp message": [60, 40]}


def test_lmtp_delivers_at_once_and_commands_are_no_arrivals() -> None:
    rows = [row("lmtp message", 0, 1), row("imap fetch", 0, 1), row("imap store", 0, 1, "NO")]
    found = outcome(rows, 0, S, 0.0, by_queue=0)
    assert (found.delivered, found.left, found.failed) == (1, 0, 0)
    assert found.minutes == {"lmtp message": [1]}


def test_nothing_done_has_no_times() -> None:
    [kind] = outcome([row("imap session", 0, 1, "gone")], 0, S, 0.0, by_queue=0).kinds
    assert (kind.n, kind.failed, kind.p50_ns, kind.p99_ns) == (0, 1, None, None)


def test_every_pair_of_server_and_format_has_a_setup() -> None:
    for server, (_, forms) in SERVERS.items():
        for form in forms:
            setup, named = setup_of(server, form, 3)
            assert named == form
            assert setup.packages
            assert {"smtp", "imap", "pop3"} <= set(setup.ports)


def test_a_format_that_a_server_does_not_know_is_named_with_those_it_does() -> None:
    with pytest.raises(SpoolscopeError, match="dovecot keeps no mail as mh") as error:
        setup_of("dovecot", "mh", 3)
    assert error.value.exit_code == 2
    assert "maildir or sdbox or mdbox or mbox" in error.value.remedy


def test_what_a_machine_cannot_reach_is_refused() -> None:
    words = ["--server", "dovecot", "--on", "xfs", "--vm", "6.1", "--device", "/dev/sdx"]
    result = CliRunner().invoke(command, words, standalone_mode=False)
    assert isinstance(result.exception, SpoolscopeError)
    wanted = "/dev/sdx is on this machine" if os.geteuid() == 0 else "the lab mounts"
    assert wanted in result.exception.message


def test_smtp_takes_the_share_of_lmtp_where_that_is_not_spoken() -> None:
    assert _spoken({"smtp": 1, "lmtp": 2, "imap": 3}, {"smtp": 25, "imap": 143}) == {
        "smtp": 3,
        "imap": 3,
    }


def fake_apt(directory: Path, script: str) -> None:
    program = directory / "apt-get"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_apt(tmp_path, "echo 'E: Unable to locate package nosuch' >&2; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SpoolscopeError, match="no package nosuch") as error:
        packages.unpacked(["postfix", "nosuch"])
    assert "apt-get update" in error.value.remedy


def test_what_apt_would_install_is_what_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "Inst libnew (1.2-3 Debian:12 [amd64])\\n"
        "Inst libold [1.0-1] (1.1-1 Debian:12 [amd64])\\n"
        "Remv exim4 [4.9]\\nConf libnew (1.2-3 Debian:12 [amd64])"
    )
    fake_apt(tmp_path, f"printf '{said}\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert packages._missing(["any"]) == ["libnew=1.2-3", "libold=1.1-1"]
