"""A program keeps its name unless that reveals a mailbox, user, host or path."""

import numpy as np
import pytest

from spoolscope.traces.comms import Comms
from spoolscope.traces.concealed import Concealed, counted_names
from spoolscope.traces.known_programs import is_kernel_thread
from spoolscope.traces.programs import group, program
from spoolscope.traces.pseudonym import Pseudonymiser

KEY = bytes(range(32))
MOUNT = b"/srv/vmail"
PATHS = [
    b"/srv/vmail/example.org/alice/Maildir/cur/1700000000.M1P2.mailhost7,S=5:2,S",
    b"/srv/vmail/example.org/alexander-the-great/Maildir/new",
    b"/srv/vmail/example.org/ruby/Maildir/tmp",
    b"/srv/vmail/acme-corp.example/bob@acme-corp.example/cur",
    b"/srv/vmail/imap/cleanup-night.lock",
    b"/srv/vmail/example.org/alice/Maildir/.Projects.zeppelin/cur",
    b"/srv/vmail/bin/nightly-report",
    b"/srv/vmail/a/B",
]
PERSONS = [b"carol", b"jo", b"thehost"]


def comms(paths=PATHS, mounts=(MOUNT,), **options) -> Comms:
    names, mailboxes = counted_names(paths, list(mounts))
    return Comms(Pseudonymiser(KEY), Concealed(names, mailboxes, PERSONS), **options)


@pytest.mark.parametrize(
    "comm",
    [
        *("imap", "lmtp", "smtpd", "python3.11", "sh", "(sd-pam)", "jbd2/loop0-8", "xfsaild/dm-0"),
        *("kworker/u8:2-ev", "backup", "nightly-report", "archiver-v2", "restic", "mailsync", ""),
        *("rubocop-daemon2", "bin", "examples", "thermald", "jogger", "organ", "1", "tmp"),
    ],
)
def test_programs_keep_their_names(comm: str) -> None:
    """A directory ``imap`` hides no name, as paths keep that word; nor do names in bin."""
    known = [path for path in PATHS if b"ruby" not in path and b"example" not in path]
    assert comms(known).text(comm.encode()) == comm


@pytest.mark.parametrize(
    "comm",
    [
        *("alice", "Alice", "imap-alice", "alicefilter", "(alice)", "jbd2/alice", "kworker/alice"),
        *("bob", "(bobs-filter)", "python-bob", "acme-corp", "ruby", "cleanup-night", "zeppelin"),
        *("carol", "carols-job", "jo", "thehost", "thehost-sync", "a", "b", "example.org"),
        *("alexander-the-g", "filter-alexande", "+anything"),
    ],
)
def test_private_names_go(comm: str) -> None:
    """The kernel keeps 15 bytes only: the beginning of a name reveals it, too."""
    shown = comms().text(comm.encode())
    assert shown.startswith("+")
    assert 8 <= len(shown) <= 15
    assert not any(name in shown for name in ("alice", "bob", "carol", "ruby"))
    assert Comms(None).text(comm.encode()) == comm


def test_a_hidden_program_is_one_wherever_it_stands() -> None:
    made = comms()
    shown = made.text(b"alice")
    assert program(b"/usr/local/bin/alice", made) == f"/usr/local/bin/{shown}"
    assert made.hidden == {b"alice": shown.encode()}
    assert comms().text(b"alice") == shown
    assert made.text(b"alice-filter") != made.text(b"filter-alice")


@pytest.mark.parametrize(
    ("exe", "kept", "gone"),
    [
        ("/usr/lib/dovecot/imap", "/usr/lib/dovecot/imap", ""),
        ("/opt/acme/bin/tool", "/opt/acme/bin/tool", ""),
        ("/home/zoe/bin/sync-mail", "/bin/sync-mail", "zoe"),
        ("/srv/vmail/example.org/alice/run", "/run", "alice"),
        ("/usr/bin/alice (deleted)", "/usr/bin/", "alice"),
    ],
)
def test_a_program_s_path_hides_what_is_private(exe: str, kept: str, gone: str) -> None:
    shown = program(exe.encode(), comms())
    assert kept in shown
    assert not gone or gone not in shown


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("/system.slice/dovecot.service", ""),
        ("/system.slice/archive-mail.service", ""),
        ("/user.slice/user-1000.slice/session-3.scope", ""),
        ("/system.slice/backup@alice.service", "alice"),
        ("/system.slice/alice.service", "alice"),
        ("/system.slice/filter\\x2dcarol.service", "carol"),
        ("/system.slice/cleanup-night.service", "cleanup-night"),
        ("/system.slice/srv-vmail-zeppelin.mount", "zeppelin"),
        ("/customer.slice/customer-zeppelin.slice", "zeppelin"),
    ],
)
def test_units_hide_what_is_private(path: str, gone: str) -> None:
    shown = group(path.encode(), comms())
    assert shown == path if not gone else gone not in shown
    assert shown.startswith(path.rpartition("/")[0] + "/")


def test_all_programs_go_but_not_the_kernel_s_threads() -> None:
    every = comms([], hide_all=True)
    assert every.text(b"sh").startswith("+")
    assert program(b"/usr/bin/dd", every).startswith("/usr/bin/+")
    for comm in (b"jbd2/dm-0-8", b"kworker/0:1H", b"kswapd0", b"btrfs-transacti"):
        assert is_kernel_thread(comm)
        assert every.text(comm) == comm.decode()


def test_programs_of_a_whole_system_keep_their_names() -> None:
    paths = [b"/usr/bin/dovecot-x", b"/usr/share/restic", b"/home/alice/Maildir/cur", b"/srv/acme"]
    found = comms(paths, mounts=(b"/",))
    assert found.text(b"restic") == "restic"
    assert found.text(b"dovecot-x") == "dovecot-x"
    assert found.text(b"acme").startswith("+")
    assert found.text(b"alice").startswith("+")


def test_mailboxes_are_those_below_the_mount() -> None:
    """This holds even if the mount point lies below a directory with a name of a Maildir."""
    paths = [b"/tmp/x/mnt/example.org/alice/Maildir/new"]
    assert counted_names(paths, [b"/tmp/x/mnt"])[1] == {b"example.org", b"alice"}


def test_a_very_deep_path_is_taken_apart() -> None:
    names, _ = counted_names([b"/m" + b"/d" * 2000 + b"/leaf"], [b"/m"])
    assert names == {b"m", b"d", b"leaf"}


def test_hosts_in_names_of_messages_are_hidden_in_programs() -> None:
    paths = [b"/m/alice/new/1700000001.M1P3.relay~9", b"/m/alice/cur/1700000002.V2I3.mx7,S=5:2,S"]
    assert counted_names(paths, [b"/m"])[1] >= {b"relay~9", b"mx7"}
    found = comms(paths, mounts=(b"/m",))
    assert found.text(b"relay~9-thread").startswith("+")
    assert found.text(b"to-mx7").startswith("+")
    assert found.text(b"relay") == "relay"


def test_a_column_of_programs_is_null_where_masked() -> None:
    names = np.array([b"imap", b"alice", b"imap", b"lmtp"], "S16")
    found = comms().column(names, np.array([False, False, False, True]))
    assert found.to_pylist() == ["imap", comms().text(b"alice"), "imap", None]


def test_a_column_of_millions_is_one():
    names = np.full(5_000_000, b"imap", "S16")
    names[0], names[-1] = b"", b"a name of 16 byt"
    column = comms().column(names, names == b"")
    assert len(column) == len(names)
    assert [column[row].as_py() for row in (0, 1, len(names) - 1)] == [
        None,
        "imap",
        "a name of 16 byt",
    ]
    assert len(comms().column(names[:0])) == 0
