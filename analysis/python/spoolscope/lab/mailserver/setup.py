"""The setup of a mail server: packages, accounts, files, commands."""

from dataclasses import dataclass, field, replace
from pathlib import Path

SPOOL = Path("/run/spool")
"""Path of the mounted candidate inside a server's namespaces; MAIL and QUEUE lie on it."""
MAIL, QUEUE = SPOOL / "mail", SPOOL / "queue"
ELSEWHERE = Path("/run/elsewhere")
STATE, LOGS = Path("/run/state"), Path("/run/log")
VMAIL, VMAIL_ID = "vmail", 5000
PASSWORD = "spool"
HOST = "mail.example.com"
PORTS = {"smtp": 10025, "lmtp": 10024, "imap": 10143, "pop3": 10110}
"""Ports in the server's own network namespace, so there are no conflicts."""


@dataclass(frozen=True)
class Account:
    """A user with a group of its name; those of daemons are below 1000."""

    name: str
    id: int
    home: str = "/nonexistent"


@dataclass(frozen=True)
class Entry:
    """A directory, or a file if it has a text."""

    path: Path
    text: str | None = None
    owner: str = "root"
    mode: int = 0o755
    group: str | None = None


@dataclass(frozen=True)
class Setup:
    """A server to bring up.

    Attributes:
        packages: Its packages.
        accounts: Users that its daemons and mailboxes belong to.
        entries: Directories and configuration.
        start: Commands that start it, in this order.
        ports: Ports by protocol that it serves.
        delivered: A log file, and a text that it has once for each SMTP message that has reached
            its mailbox.
        folders: Prefix of the names of all mailboxes except the inbox.
        login: Login name; ``{}`` is the user's name.
    """

    packages: tuple[str, ...]
    accounts: tuple[Account, ...]
    entries: tuple[Entry, ...]
    start: tuple[tuple[str, ...], ...]
    delivered: tuple[Path, str]
    ports: dict[str, int] = field(default_factory=lambda: dict(PORTS))
    folders: str = ""
    login: str = "{}"


def elsewhere(setup: Setup) -> Setup:
    """Return a server whose mail and queue are in memory, not on the candidate."""

    def moved(text: str) -> str:
        return text.replace(str(SPOOL), str(ELSEWHERE))

    entries = (
        replace(entry, path=Path(moved(str(entry.path))), text=entry.text and moved(entry.text))
        for entry in setup.entries
    )
    return replace(setup, entries=(Entry(ELSEWHERE), *entries))


def vmail() -> Account:
    """Return the user that mailboxes belong to."""
    return Account(VMAIL, VMAIL_ID, str(MAIL))
