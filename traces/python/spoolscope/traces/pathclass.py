"""Classes of paths by their use in a mail server, found by name.

This works on pseudonymised names, too: these keep the words that a filesystem or a mail server
acts on (``new``, ``cur``, ``tmp``, ``dovecot.index.log``, queue directories, ``:2,FLAGS``).
"""

import re
from typing import Final

_QUEUE_DIRS: Final = "active|bounce|corrupt|defer|deferred|flush|hold|incoming|maildrop|saved|trace"

# The first pattern that is found wins; paths are relative to the spool, without leading "/".
_CLASSES: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("dotlock", r"\.lock$|\.lock\.[^/]*$"),
        ("dovecot-uidlist", r"(^|/)dovecot-uidlist[^/]*$"),
        ("dovecot.index.log", r"(^|/)dovecot\.index\.log[^/]*$"),
        ("dovecot.index.cache", r"(^|/)dovecot\.index\.cache[^/]*$"),
        ("dovecot.list.index", r"(^|/)dovecot\.list\.index[^/]*$"),
        ("dovecot.index", r"(^|/)dovecot\.(map\.)?index[^/]*$"),
        ("dovecot other", r"(^|/)(dovecot[-.][^/]*|subscriptions|maildirfolder|maildirsize)$"),
        ("message file in new", r"(^|/)new/[^/]+$"),
        ("message file in cur", r"(^|/)cur/[^/]+$"),
        ("message file in tmp", r"(^|/)tmp/[^/]+$"),
        ("new directory", r"(^|/)new$"),
        ("cur directory", r"(^|/)cur$"),
        ("tmp directory", r"(^|/)tmp$"),
        ("postfix queue file", rf"(^|/)({_QUEUE_DIRS})(/[0-9A-Za-z])*/[0-9A-Za-z.]{{2,}}$"),
        ("postfix queue directory", rf"(^|/)({_QUEUE_DIRS})(/[0-9A-Za-z])*$"),
        ("postfix socket or pid", r"(^|/)(private|public|pid)(/[^/]+)?$"),
        ("mail store (mbox, dbox)", r"(^|/)(u\.\d+|m\.\d+|dbox-Mails|mailboxes|storage)(/|$)"),
    )
)

OTHER: Final = "other"
NO_PATH: Final = "no path"
CLASS_NAMES: Final = (*(name for name, _ in _CLASSES), OTHER, NO_PATH)


def path_class(path: str | None) -> str:
    """Return the class of a path, one of ``CLASS_NAMES``; None is a call without a path."""
    if path is None:
        return NO_PATH
    for name, pattern in _CLASSES:
        if pattern.search(path):
            return name
    return OTHER


def class_sql(column: str) -> str:
    """Return a DuckDB expression that gives the class of the path in ``column``."""
    cases = " ".join(
        f"WHEN regexp_matches({column}, '{pattern.pattern}') THEN '{name}'"
        for name, pattern in _CLASSES
    )
    return f"CASE WHEN {column} IS NULL THEN '{NO_PATH}' {cases} ELSE '{OTHER}' END"


# Content of a mailbox: folders of Maildir, files of the server itself, storage of dbox.
_IN_MAILBOX: Final = (
    r"(new|cur|tmp)(/.*)?|(dovecot[-.]|cyrus\.|maildir|subscriptions|dbox-Mails)[^/]*(/.*)?"
    r"|(storage|mailboxes)(/.*)?"
)
_BELOW_MAILBOX: Final = rf"/({_IN_MAILBOX}|[^/]*\.lock)$"
_MAILBOX: Final = re.compile(rf"/({_IN_MAILBOX})$")
# Parts between the directory of a user and a mailbox: the name of the store, and a folder in it.
_STORE: Final = re.compile(
    r"(/\.?(maildir|mdbox|sdbox|dbox|mails?|mailbox))?(/\.[^/]+)?$", re.IGNORECASE
)
_QUEUE: Final = rf"^(.*/)?({_QUEUE_DIRS})(/.*)?$"


def mailbox_sql(column: str) -> str:
    """Return a DuckDB expression for the mailbox or mail queue that a path belongs to.

    A Maildir is a directory with new, cur and tmp; a mail queue stands for all its files; any other
    file belongs to its directory, "" for the top of the spool.
    """
    return (
        f"CASE WHEN regexp_matches({column}, '{_BELOW_MAILBOX}') "
        f"THEN regexp_replace({column}, '{_BELOW_MAILBOX}', '') "
        f"WHEN regexp_matches({column}, '^(new|cur|tmp)(/|$)') THEN '' "
        f"WHEN regexp_matches({column}, '{_QUEUE}') "
        f"THEN regexp_extract({column}, '{_QUEUE}', 2) "
        f"ELSE {parent_sql(column)} END"
    )


def parent_sql(column: str) -> str:
    """Return a DuckDB expression for the directory that a path is in; "" for one at the top."""
    return f"regexp_replace({column}, '/?[^/]*$', '')"


def user_of(path: str) -> str | None:
    """Return the directory of the user whose mailbox a path belongs to; None if there is none.

    It is the mailbox, or the directory above it if the mailbox only has a name like Maildir.
    """
    found = _MAILBOX.search(path)
    return None if found is None else _STORE.sub("", path[: found.start()]) or None
