"""Well-known programs keep their name, a person's own program does not."""

import pytest

from spoolscope.traces.comms import Comms
from spoolscope.traces.pseudonym import Pseudonymiser

KEY = bytes(range(32))


@pytest.mark.parametrize(
    "comm",
    [
        *("imap", "imap-login", "lmtp", "smtpd", "trivial-rewrite", "cleanup", "imapd", "exim4"),
        *("sh", "python3", "python3.11", "perl5.36.0", "rsync", "systemd", "systemd-journal"),
        *(
            "(sd-pam)",
            "(dovecot)",
            "jbd2/loop0-8",
            "jbd2/dm-0-8",
            "kworker/u8:2-ev",
            "kworker/0:1H",
        ),
        *("xfsaild/loop3", "xfs-log/sda1", "btrfs-transacti", "btrfs-endio-wri", "swapper/3"),
        *("loop12", "kswapd0", "ksoftirqd/1", "spoolscope-reco", ""),
    ],
)
def test_known_names_stay(comm: str) -> None:
    assert Comms(Pseudonymiser(KEY)).text(comm.encode()) == comm


@pytest.mark.parametrize(
    "comm",
    ["filter-alice", "(bobs-filter)", "jbd2/alice", "btrfs-alice", "python-alice", "imap-bob"],
)
def test_private_names_go_but_keep_their_length(comm: str) -> None:
    shown = Comms(Pseudonymiser(KEY)).text(comm.encode())
    assert "alice" not in shown
    assert "bob" not in shown
    assert len(shown) == len(comm) <= 15
    assert Comms(None).text(comm.encode()) == comm
