"""Exim: accepts mail by SMTP and writes it, or passes it on to Dovecot, which does the rest."""

from pathlib import Path

from spoolscope.lab.mailserver import dovecot
from spoolscope.lab.mailserver.messages import DOMAIN, user
from spoolscope.lab.mailserver.setup import (
    HOST,
    LOGS,
    MAIL,
    PORTS,
    QUEUE,
    VMAIL,
    Account,
    Entry,
    Setup,
    vmail,
)

PACKAGES = ("exim4-daemon-light",)
CONFIG = Path("/etc/exim4")
USER = "Debian-exim"
_PROGRAM = "/usr/sbin/exim4"

_CONFIG = f"""\
primary_hostname = {HOST}
domainlist local_domains = {DOMAIN}
local_interfaces = 127.0.0.1
daemon_smtp_ports = {PORTS["smtp"]}
spool_directory = {QUEUE}
log_file_path = {LOGS}/exim-%slog
smtp_accept_max = 0
smtp_accept_queue_per_connection = 0
host_lookup =
rfc1413_query_timeout = 0s
tls_advertise_hosts =
keep_environment =
acl_smtp_rcpt = recipients

begin acl
recipients:
  accept domains = +local_domains
  deny

begin routers
users:
  driver = accept
  domains = +local_domains
  local_parts = lsearch;{CONFIG}/users
  transport = deliver

begin transports
deliver:
  user = {VMAIL}
  group = {VMAIL}
@DELIVER@

begin retry
* * F,1h,1m
"""

_WRITTEN = """\
  driver = appendfile
  delivery_date_add
  envelope_to_add
  return_path_add
  mode = 0600
  directory_mode = 0700
"""
_DELIVER = {
    "maildir": f"{_WRITTEN}  maildir_format\n  directory = {MAIL}/$local_part_data/Maildir",
    "mbox": f"{_WRITTEN}  file = {MAIL}/$local_part_data/mbox",
}
_BY_LMTP = f"  driver = lmtp\n  socket = {dovecot.RUN}/lmtp"


def setup(form: str, users: int) -> Setup:
    """Return Exim and Dovecot, with mailboxes of a format."""
    names = "".join(f"{user(number)}: {user(number)}\n" for number in range(1, users + 1))
    config = _CONFIG.replace("@DELIVER@", _DELIVER.get(form, _BY_LMTP))
    return Setup(
        packages=(*PACKAGES, *dovecot.PACKAGES),
        accounts=(Account(USER, 916, str(QUEUE)), *dovecot.ACCOUNTS, vmail()),
        entries=(
            *dovecot.entries(form),
            Entry(QUEUE, owner=USER, mode=0o750),
            Entry(CONFIG / "users", names, mode=0o644),
            Entry(CONFIG / "exim4.conf", config, mode=0o644),
        ),
        start=(
            # Exim executes itself as another user to deliver, and gets root by its set-user-id bit.
            ("chmod", "u+s", _PROGRAM),
            dovecot.START,
            # Exim would stay in the foreground if its parent was process 1.
            ("sh", "-c", f"{_PROGRAM} -bd -q1m; exit $?"),
        ),
        delivered=(LOGS / "exim-mainlog", " => "),
    )
