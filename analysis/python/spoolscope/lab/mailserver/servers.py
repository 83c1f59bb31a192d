"""The servers and their mailbox formats."""

from collections.abc import Callable

from spoolscope.lab.mailserver import courier, cyrus, dovecot, exim
from spoolscope.lab.mailserver.setup import Setup
from spoolscope.traces.errors import USAGE, SpoolscopeError

SERVERS: dict[str, tuple[Callable[[str, int], Setup], tuple[str, ...]]] = {
    "dovecot": (dovecot.setup, ("maildir", "sdbox", "mdbox", "mbox")),
    "courier": (courier.setup, ("maildir",)),
    "cyrus": (cyrus.setup, ("cyrus",)),
    "exim": (exim.setup, ("maildir", "sdbox", "mdbox", "mbox")),
}
FORMATS = tuple(dict.fromkeys(form for _, forms in SERVERS.values() for form in forms))


def setup_of(server: str, form: str | None, users: int) -> tuple[Setup, str]:
    """Return a server's setup and its mailbox format, by default its first format.

    Raises:
        SpoolscopeError: the server does not have that format.
    """
    make, forms = SERVERS[server]
    form = form or forms[0]
    if form not in forms:
        raise SpoolscopeError(
            f"{server} keeps no mail as {form}",
            remedy=f"use --format {' or '.join(forms)}",
            exit_code=USAGE,
        )
    return make(form, users), form
