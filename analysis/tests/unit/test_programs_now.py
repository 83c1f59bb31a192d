"""The use of the spool by program, from sums."""

from pathlib import Path

import numpy as np

from spoolscope.analysis.programs_now import use_of
from spoolscope.cli.top_sums import WIDE, lines, show_sums
from spoolscope.tracers import live_sums
from spoolscope.tracers.request import Request
from spoolscope.traces.errors import INCOMPLETE

TOLD = {"start_ns": 10**18, "covered_ns": 2 * 10**9, "lost": 3, "recorder_ns": 10**7}


def columns(names, *rows):
    """Return rows as columns."""
    return {
        name: np.array([row[at] for row in rows], object) for at, name in enumerate(names.split())
    }


def test_programs_have_their_calls_causes_and_commits():
    calls = columns(
        "comm unit syscall cause failed n sum_ns",
        ("imap", "a.service", "fsync", "call", 0, 2, 900),
        ("imap", "a.service", "fsync", "journal_commit", 0, 2, 700),
        ("imap", "a.service", "fsync", "cpu", 0, 2, 200),
        ("imap", "a.service", "unlink", "call", 1, 5, 50),
        ("imap", "a.service", "unlink", "cpu", 1, 5, 50),
        ("lmtp", "b.service", "rename", "call", 0, 1, 2000),
        ("lmtp", "b.service", "rename", "runq", 0, 1, 2000),
        ("sh", "/", "fork", "call", 0, 9, 9000),
    )
    commits = columns(
        "comm unit n sum_ns max_ns", ("imap", "a.service", 2, 600, 400), ("", "", 1, 5, 5)
    )
    found = use_of(calls, commits, TOLD)
    assert [use.comm for use in found.programs] == ["lmtp", "imap"], "most time first, no forks"
    imap = found.programs[1]
    assert (imap.calls, imap.failed, imap.time_ns, imap.blocked_ns) == (7, 5, 950, 700)
    assert imap.causes == {"journal_commit": 700, "cpu": 250}
    assert (imap.commits, imap.commit_ns) == (2, 600)
    assert (found.commits, found.commit_ns, found.lost) == (3, 605, 3)
    head, _, first, second = lines(found, 20, WIDE)
    assert "8 calls, 3 commits" in head
    assert "LOST 3" in head
    assert "0.5 % of a CPU" in head
    assert "run queue 100 %" in first
    assert "journal commit 74 %, CPU 26 %" in second


def test_a_narrow_terminal_has_no_line_beside_it():
    unit = "/system.slice/system-postfix.slice/postfix@-.service"
    calls = columns(
        "comm unit syscall cause failed n sum_ns",
        ("spoolscope-recor", unit, "fsync", "call", 0, 9_999_999, 10**9),
        ("spoolscope-recor", unit, "fsync", "txn_lock", 0, 1, 999_000_000),
        ("spoolscope-recor", unit, "fsync", "cpu", 0, 1, 10**6),
    )
    none = columns("comm unit n sum_ns max_ns")
    found = use_of(calls, none, TOLD | {"lost": 0})
    for width in (80, WIDE):
        assert max(map(len, lines(found, 20, width))) <= width


def test_a_program_in_no_unit_has_a_dash_there():
    calls = columns(
        "comm unit syscall cause failed n sum_ns", ("sh", "/", "fsync", "call", 0, 1, 9)
    )
    found = use_of(calls, columns("comm unit n sum_ns max_ns"), TOLD)
    for width in (80, WIDE):
        _, _, row = lines(found, 20, width)
        assert row.split()[:3] == ["sh", "-", "1"]


def test_intervals_name_the_way_to_processes(monkeypatch, capsys):
    class Summed:
        content = TOLD
        calls = staticmethod(lambda _: columns("comm unit syscall cause failed n sum_ns"))
        commits = staticmethod(lambda _: columns("comm unit n sum_ns max_ns"))

    class Live:
        names, failure = None, None

        def __init__(self, request):
            pass

        def intervals(self):
            return iter([Summed()])

    monkeypatch.setattr(live_sums, "LiveSums", Live)
    request = Request(spools=[Path("/var/mail")], output=Path("top"))
    how = {"count": 1, "clear": False, "names": False}
    assert show_sums(request, 2, 20, **how, form=None) == INCOMPLETE  # three are lost
    assert "Processes (PIDs), mailboxes and files: --deep" in capsys.readouterr().out.splitlines()
    show_sums(request, 2, 20, **how, form="json")
    assert "--deep" not in capsys.readouterr().out
