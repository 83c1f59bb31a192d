"""Postfix: accepts mail by SMTP, with its queue on the spool, and passes it on."""

from pathlib import Path

from spoolscope.lab.mailserver.messages import DOMAIN
from spoolscope.lab.mailserver.setup import (
    HOST,
    LOGS,
    PORTS,
    QUEUE,
    STATE,
    VMAIL_ID,
    Account,
    Entry,
)

CONFIG = Path("/etc/postfix")
PACKAGES = ("postfix",)
START = ("/usr/lib/postfix/sbin/master", "-w", "-c", str(CONFIG))
"""Command of the master process; ``postfix start`` would check the installation for seconds."""
ACCOUNTS = (Account("postfix", 910, str(QUEUE)), Account("postdrop", 911))
DELIVERED = (LOGS / "postfix", " status=sent ")

_QUEUES = (
    "active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "private",
    "saved", "trace",
)  # fmt: skip

_MAIN = f"""\
compatibility_level = 3.6
queue_directory = {QUEUE}
data_directory = {STATE}/postfix
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
meta_directory = {CONFIG}
shlib_directory = /usr/lib/postfix
mail_owner = postfix
setgid_group = postdrop
maillog_file = {LOGS}/postfix
maillog_file_prefixes = /run
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = {HOST}
myorigin = {DOMAIN}
mydestination =
mynetworks = 127.0.0.0/8
alias_maps =
alias_database =
local_recipient_maps =
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_client_connection_count_limit = 0
disable_dns_lookups = yes
biff = no
# Nothing may leave: bounces and foreign addresses are thrown away.
default_transport = discard:
relay_transport = discard:
virtual_mailbox_domains = {DOMAIN}
virtual_mailbox_maps = static:OK
"""

_MASTER = f"""\
127.0.0.1:{PORTS["smtp"]} inet n - n - - smtpd
pickup     unix  n - n 60    1 pickup
cleanup    unix  n - n -     0 cleanup
qmgr       unix  n - n 300   1 qmgr
rewrite    unix  - - n -     - trivial-rewrite
bounce     unix  - - n -     0 bounce
defer      unix  - - n -     0 bounce
trace      unix  - - n -     0 bounce
proxymap   unix  - - n -     - proxymap
smtp       unix  - - n -     - smtp
error      unix  - - n -     - error
retry      unix  - - n -     - error
discard    unix  - - n -     - discard
lmtp       unix  - - n -     - lmtp
virtual    unix  - n n -     - virtual
anvil      unix  - - n -     1 anvil
scache     unix  - - n -     1 scache
postlog    unix-dgram n - n - 1 postlogd
"""


def entries(delivery: str) -> tuple[Entry, ...]:
    """Return directories and configuration; ``delivery`` are configuration lines for delivery."""
    return (
        Entry(STATE / "postfix", owner="postfix"),
        Entry(QUEUE),
        Entry(QUEUE / "pid"),
        *(Entry(QUEUE / name, owner="postfix", mode=0o700) for name in _QUEUES),
        Entry(QUEUE / "maildrop", owner="postfix", mode=0o1730, group="postdrop"),
        Entry(QUEUE / "public", owner="postfix", mode=0o2710, group="postdrop"),
        Entry(CONFIG / "main.cf", _MAIN + delivery, mode=0o644),
        Entry(CONFIG / "master.cf", _MASTER, mode=0o644),
    )


def by_lmtp(address: str) -> str:
    """Return the lines for delivery to an LMTP server."""
    return (
        f"virtual_transport = lmtp:{address}\n"
        "lmtp_destination_concurrency_limit = 10\n"
        "lmtp_destination_recipient_limit = 1\n"
    )


def to_maildirs(base: Path, virtual_maps: str) -> str:
    """Return the lines with which Postfix writes into Maildirs itself."""
    return (
        "virtual_transport = virtual:\n"
        f"virtual_mailbox_base = {base}\n"
        f"virtual_mailbox_maps = {virtual_maps}\n"
        f"virtual_uid_maps = static:{VMAIL_ID}\n"
        f"virtual_gid_maps = static:{VMAIL_ID}\n"
        "virtual_mailbox_limit = 0\n"
    )
