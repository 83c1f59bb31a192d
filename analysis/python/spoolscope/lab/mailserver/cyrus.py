"""Cyrus: LMTP, IMAP and POP3 with a format of its own; Postfix before it."""

from pathlib import Path

from spoolscope.lab.mailserver import postfix
from spoolscope.lab.mailserver.messages import DOMAIN, user
from spoolscope.lab.mailserver.setup import (
    MAIL,
    PASSWORD,
    PORTS,
    SPOOL,
    Account,
    Entry,
    Setup,
)

PACKAGES = ("cyrus-imapd", "cyrus-pop3d", "sasl2-bin")
RUN, CONFIG = Path("/run/cyrus"), SPOOL / "config"
ACCOUNTS = (Account("cyrus", 915, str(MAIL)),)
_PASSWORDS = "/etc/cyrus-sasldb2"
_DIRECTORIES = ("db", "log", "msg", "ptclient", "quota", "user", "sieve")
_SESSIONS = 1024

# If the default domain was that of the users, Cyrus would remove it from their names.
_IMAPD = f"""\
configdirectory: {CONFIG}
proc_path: {RUN}/proc
mboxname_lockpath: {RUN}/lock
defaultpartition: default
partition-default: {MAIL}
admins: cyrus
allowplaintext: yes
altnamespace: no
unixhierarchysep: no
virtdomains: userid
defaultdomain: elsewhere.example
hashimapspool: yes
autocreate_quota: 0
autocreate_post: yes
duplicatesuppression: no
popminpoll: 0
lmtp_downcase_rcpt: yes
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {_PASSWORDS}
sasl_mech_list: PLAIN LOGIN
lmtpsocket: {RUN}/socket/lmtp
idlesocket: {RUN}/socket/idle
notifysocket: {RUN}/socket/notify
syslog_prefix: cyrus
"""

_SERVICES = f"""\
START {{
  recover cmd="/usr/lib/cyrus/bin/ctl_cyrusdb -r"
}}
SERVICES {{
  imap cmd="imapd" listen="127.0.0.1:{PORTS["imap"]}" prefork=3 maxchild={_SESSIONS}
  pop3 cmd="pop3d" listen="127.0.0.1:{PORTS["pop3"]}" prefork=1 maxchild={_SESSIONS}
  lmtp cmd="lmtpd -a" listen="127.0.0.1:{PORTS["lmtp"]}" prefork=2 maxchild=20
}}
EVENTS {{
  checkpoint cmd="/usr/lib/cyrus/bin/ctl_cyrusdb -c" period=30
}}
"""


def setup(_form: str, users: int) -> Setup:
    """Return Postfix and Cyrus."""
    make_users = "\n".join(
        f"printf {PASSWORD} | saslpasswd2 -p -c -f {_PASSWORDS} -u {DOMAIN} {user(number)}"
        for number in range(1, users + 1)
    )
    return Setup(
        packages=(*postfix.PACKAGES, *PACKAGES),
        accounts=(*postfix.ACCOUNTS, *ACCOUNTS),
        entries=(
            *postfix.entries(postfix.by_lmtp(f"inet:127.0.0.1:{PORTS['lmtp']}")),
            Entry(MAIL, owner="cyrus", mode=0o750),
            Entry(CONFIG, owner="cyrus", mode=0o750),
            *(Entry(CONFIG / name, owner="cyrus", mode=0o750) for name in _DIRECTORIES),
            Entry(RUN, owner="cyrus"),
            *(Entry(RUN / name, owner="cyrus") for name in ("proc", "lock", "socket")),
            Entry(Path("/etc/imapd.conf"), _IMAPD, mode=0o644),
            Entry(Path("/etc/cyrus.conf"), _SERVICES, mode=0o644),
        ),
        start=(
            ("sh", "-ec", make_users),
            ("chown", "cyrus", _PASSWORDS),
            ("/usr/lib/cyrus/bin/master", "-d", "-p", f"{RUN}/pid"),
            postfix.START,
        ),
        delivered=postfix.DELIVERED,
        folders="INBOX.",
        login=f"{{}}@{DOMAIN}",
    )
