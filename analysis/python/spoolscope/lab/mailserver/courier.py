"""Courier: IMAP and POP3 of Maildirs that Postfix writes itself; it speaks no LMTP."""

import base64
import hashlib
from pathlib import Path

from spoolscope.lab.mailserver import postfix
from spoolscope.lab.mailserver.messages import address, user
from spoolscope.lab.mailserver.setup import (
    MAIL,
    PASSWORD,
    PORTS,
    VMAIL,
    VMAIL_ID,
    Account,
    Entry,
    Setup,
    vmail,
)

PACKAGES = ("courier-imap", "courier-pop")
CONFIG = Path("/etc/courier")
ACCOUNTS = (Account("courier", 914),)
_MAPS = postfix.CONFIG / "virtual"
_LIMITS = ("ADDRESS=127.0.0.1", "MAXDAEMONS=1024", "MAXPERIP=1024", "TCPDOPTS=-nodnslookup")


def setup(_form: str, users: int) -> Setup:
    """Return Postfix and Courier, with Maildirs."""
    names = [user(number) for number in range(1, users + 1)]
    maps = "".join(f"{address(name)} {name}/Maildir/\n" for name in names)
    places = [place for name in names for place in _maildir(MAIL / name)]
    return Setup(
        packages=(*postfix.PACKAGES, *PACKAGES),
        accounts=(*postfix.ACCOUNTS, *ACCOUNTS, vmail()),
        entries=(
            *postfix.entries(postfix.to_maildirs(MAIL, f"texthash:{_MAPS}")),
            Entry(_MAPS, maps, mode=0o644),
            Entry(MAIL, owner=VMAIL, mode=0o700),
            *(Entry(place, owner=VMAIL, mode=0o700) for place in places),
            Entry(Path("/run/courier/authdaemon"), owner="courier"),
            Entry(CONFIG, owner="courier"),
            Entry(CONFIG / "authdaemonrc", _AUTHDAEMON, owner="courier", mode=0o600),
            Entry(CONFIG / "userdb", "".join(map(_userdb, names)), mode=0o600),
        ),
        start=(
            ("makeuserdb",),
            *(_given(service) for service in ("imap", "pop3")),
            ("authdaemond", "start"),
            ("imapd", "start"),
            ("pop3d", "start"),
            postfix.START,
        ),
        delivered=postfix.DELIVERED,
        ports={name: port for name, port in PORTS.items() if name != "lmtp"},
        folders="INBOX.",
    )


_AUTHDAEMON = """\
authmodulelist="authuserdb"
authmodulelistorig="authuserdb"
daemons=5
authdaemonvar=/run/courier/authdaemon
DEBUG_LOGIN=0
DEFAULTOPTIONS=""
LOGGEROPTS=""
"""


def _maildir(home: Path) -> list[Path]:
    box = home / "Maildir"
    return [home, box, box / "cur", box / "new", box / "tmp"]


def _userdb(name: str) -> str:
    digest = base64.b64encode(hashlib.sha1(PASSWORD.encode()).digest()).decode()
    home = f"uid={VMAIL_ID}|gid={VMAIL_ID}|home={MAIL / name}|mail={MAIL / name}/Maildir"
    return f"{name}\t{home}|systempw={{SHA}}{digest}\n"


def _given(service: str) -> tuple[str, ...]:
    """Return the command that appends our settings to the configuration of the package."""
    port = f"PORT={PORTS[service]}"
    lines = " ".join((*_LIMITS, port))
    name = {"imap": "imapd", "pop3": "pop3d"}[service]
    return ("sh", "-c", f"printf '%s\\n' {lines} >>{CONFIG}/{name}")
