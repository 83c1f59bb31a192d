"""Dovecot: LMTP, IMAP and POP3, in four formats of mailboxes; Postfix before it."""

from pathlib import Path

from spoolscope.lab.mailserver import postfix
from spoolscope.lab.mailserver.messages import DOMAIN
from spoolscope.lab.mailserver.setup import (
    LOGS,
    MAIL,
    PASSWORD,
    PORTS,
    STATE,
    VMAIL,
    VMAIL_ID,
    Account,
    Entry,
    Setup,
    vmail,
)

PACKAGES = ("dovecot-imapd", "dovecot-pop3d", "dovecot-lmtpd")
CONFIG = Path("/etc/dovecot/spoolscope.conf")
RUN = Path("/run/dovecot")
ACCOUNTS = (Account("dovecot", 912), Account("dovenull", 913))
START = ("dovecot", "-c", str(CONFIG))
LOCATIONS = {
    "maildir": "maildir:%h/Maildir",
    "sdbox": "sdbox:%h/sdbox",
    "mdbox": "mdbox:%h/mdbox",
    "mbox": "mbox:%h/mail:INBOX=%h/mbox",
}
_SESSIONS = 1024

_CONFIG = f"""\
base_dir = {RUN}
state_dir = {STATE}/dovecot
instance_name = spoolscope
log_path = {LOGS}/dovecot
info_log_path = /dev/null
protocols = imap pop3 lmtp
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = @LOCATION@
# As Exim does. In Debian's order, each would wait for the lock that the other one holds.
mbox_write_locks = dotlock fcntl
mail_uid = {VMAIL_ID}
mail_gid = {VMAIL_ID}
first_valid_uid = {VMAIL_ID}
last_valid_uid = {VMAIL_ID}
default_process_limit = {_SESSIONS}
default_client_limit = {4 * _SESSIONS}
lmtp_save_to_detail_mailbox = no
# Any address is a user, whose home is on the spool.
passdb {{
  driver = static
  args = password={PASSWORD}
}}
userdb {{
  driver = static
  args = uid={VMAIL_ID} gid={VMAIL_ID} home={MAIL}/%n allow_all_users=yes
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Sent {{
    auto = subscribe
    special_use = \\Sent
  }}
  mailbox Trash {{
    auto = subscribe
    special_use = \\Trash
  }}
  mailbox Archive {{
    auto = subscribe
    special_use = \\Archive
  }}
}}
service imap-login {{
  inet_listener imap {{
    address = 127.0.0.1
    port = {PORTS["imap"]}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service pop3-login {{
  inet_listener pop3 {{
    address = 127.0.0.1
    port = {PORTS["pop3"]}
  }}
  inet_listener pop3s {{
    port = 0
  }}
}}
service lmtp {{
  unix_listener lmtp {{
    mode = 0666
  }}
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {PORTS["lmtp"]}
  }}
  process_min_avail = 3
}}
service imap {{
  process_limit = {_SESSIONS}
}}
service pop3 {{
  process_limit = {_SESSIONS}
}}
protocol imap {{
  mail_max_userip_connections = {_SESSIONS}
}}
protocol pop3 {{
  mail_max_userip_connections = {_SESSIONS}
}}
protocol lmtp {{
  postmaster_address = postmaster@{DOMAIN}
}}
"""


def setup(form: str, _users: int) -> Setup:
    """Return Postfix and Dovecot, with mailboxes of a format."""
    return Setup(
        packages=(*postfix.PACKAGES, *PACKAGES),
        accounts=(*postfix.ACCOUNTS, *ACCOUNTS, vmail()),
        entries=(*postfix.entries(postfix.by_lmtp(f"unix:{RUN}/lmtp")), *entries(form)),
        start=(START, postfix.START),
        delivered=postfix.DELIVERED,
    )


def entries(form: str) -> tuple[Entry, ...]:
    """Return its directories and configuration."""
    return (
        Entry(MAIL, owner=VMAIL, mode=0o700),
        Entry(STATE / "dovecot"),
        Entry(CONFIG, _CONFIG.replace("@LOCATION@", LOCATIONS[form]), mode=0o644),
    )
