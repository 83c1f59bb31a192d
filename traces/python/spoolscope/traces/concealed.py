"""Private names, which must not be readable in a trace: of mailboxes, users, hosts.

A program, thread, unit or control group keeps its name unless that reveals one of these:

* a component of a path of the spool, or of its mount point (``whole``: if it is equal). Names
  that stay readable in paths, too (``WORDS``: imap, dovecot, cur), are not private, nor are names
  in a directory of programs, nor, if the whole system is the spool, in directories of the system;
* a mailbox, a local user, this host (``within``: also if it is a part, as in ``imap-alice``).

Accounts that packages make do not count as users: uids below 1000 without a login shell.
"""

import os
import pwd
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from spoolscope.traces.known_programs import COMM_BYTES, KNOWN
from spoolscope.traces.pathclass import user_of
from spoolscope.traces.pseudonym import WORDS, private_part

_FIRST_PERSON, _FIRST_OF_PACKAGES, _NOBODY = 1000, 100, 65534
_NO_LOGIN = ("nologin", "false", "sync", "shutdown", "halt")
_SYSTEM = re.compile(rb"/(usr|etc|bin|sbin|lib\w*|opt|snap|boot|dev|proc|sys)(/|$)")
_PROGRAM_PLACES = frozenset((b"bin", b"sbin", b"libexec"))
_MESSAGES = frozenset((b"new", b"cur", b"tmp"))
_IN_MAILBOX = _MESSAGES | {b"storage", b"mailboxes", b"dbox-Mails"}
_OF_MESSAGES, _OF_PROGRAMS = 1, 2
_HOST = re.compile(rb"\d+\.[^.]+\.([^,:]+)")
_SEPARATORS = re.compile(rb"[^0-9a-z\x80-\xff]+")
_LEAST_WORD, _LEAST_ANYWHERE, _LEAST_CUT = 3, 5, 4


def holds(directory: bytes) -> int:
    """Return the kind of content of a directory by its name: messages, programs or 0, other."""
    return _OF_MESSAGES if directory in _MESSAGES else _OF_PROGRAMS * (directory in _PROGRAM_PLACES)


def is_in_mailbox(name: bytes) -> bool:
    """Return whether the directory that has such a name in it is a mailbox."""
    return name in _IN_MAILBOX


def counted_names(paths: Iterable[bytes], mounts: Sequence[bytes]) -> tuple[set[bytes], set[bytes]]:
    """Return the components of paths that count as names, and the names of mailboxes and hosts.

    Names of messages have a host in them (``TIME.UNIQUE.HOST``), but do not count as names.

    Args:
        paths: Absolute paths below the mounts.
        mounts: Mount points of the spools.
    """
    places = [mount.rstrip(b"/") for mount in mounts]
    found = _Components(all_is_spool=b"" in places)
    for path in paths:
        found.add(path)
    mailboxes = found.mailboxes(places)
    of_mounts = {part for mount in places for part in mount.split(b"/") if part}
    return found.names | of_mounts, (mailboxes - of_mounts) | found.hosts


@dataclass
class _Components:
    """Collects components of paths, each directory once."""

    all_is_spool: bool
    names: set[bytes] = field(default_factory=set)
    directories: dict[bytes, bool] = field(default_factory=dict)
    messages: set[bytes] = field(default_factory=set)
    in_mailboxes: set[bytes] = field(default_factory=set)
    hosts: set[bytes] = field(default_factory=set)

    def add(self, path: bytes) -> None:
        """Add a path and its new parent directories; the name of a message does not count."""
        directory, _, name = path.rpartition(b"/")
        if name[:1].isdigit():
            known = directory in self.messages
            if known or holds(directory.rpartition(b"/")[2]) == _OF_MESSAGES:
                if host := _HOST.match(name):
                    self.hosts.add(host[1])
                self.messages.add(directory)
                path = b"" if known else directory
        while path:
            directory, _, name = path.rpartition(b"/")
            counts = self.directories.get(directory)
            known = counts is not None
            if counts is None:
                counts = self.directories[directory] = self._counts(directory)
            if counts:
                self.names.add(name)
            if is_in_mailbox(name):
                self.in_mailboxes.add(path)
            path = b"" if known else directory

    def _counts(self, directory: bytes) -> bool:
        """Return whether people choose the names in a directory."""
        if self.all_is_spool and _SYSTEM.match(directory):
            return False
        return holds(directory.rpartition(b"/")[2]) != _OF_PROGRAMS

    def mailboxes(self, mounts: Iterable[bytes]) -> set[bytes]:
        """Return the components that lead to a mailbox, or look like its address."""
        found: set[bytes] = set()
        for path in self.in_mailboxes:
            above = max((m for m in mounts if path.startswith(m + b"/")), key=len, default=b"")
            user = user_of(path[len(above) :].decode("latin-1")) or ""
            found.update(user.encode("latin-1").split(b"/"))
        return (found | {name for name in self.names if b"@" in name}) & self.names


class Concealed:
    """Decides which names of programs would reveal a private name.

    Args:
        names: Components of paths.
        mailboxes: Names of mailboxes and hosts.
        persons: Local users and hosts.
    """

    def __init__(
        self,
        names: Iterable[bytes] = (),
        mailboxes: Iterable[bytes] = (),
        persons: Iterable[bytes] = (),
    ) -> None:
        within = {part.lower() for name in (*mailboxes, *persons) for part in _parts(name)}
        self._within = {name for name in within if len(name) >= _LEAST_WORD and not name.isdigit()}
        self._whole = within | {part.lower() for name in names for part in _shapes(name)}
        self._whole |= {name.lower() for name in persons if name not in WORDS}
        self._whole.discard(b"")
        self._sorted = sorted(self._whole)
        self._starts = sorted(self._within)

    def hides(self, name: bytes) -> bool:
        """Return whether the name of a program or thread would reveal a private name."""
        if not name or name in WORDS:
            return False
        low = name.lower().removesuffix(b" (deleted)").strip(b"()")
        if low in self._whole:
            return True
        cut = len(name) == COMM_BYTES
        if cut and _is_start(low, self._sorted):
            return True
        return name not in KNOWN and self._tells(low, cut=cut)

    def hides_unit(self, name: bytes) -> bool:
        """Return whether the name of a unit or control group would reveal a private name."""
        plain = re.sub(rb"\\x([0-9a-f]{2})", lambda code: bytes([int(code[1], 16)]), name)
        stem = re.sub(rb"\.(service|slice|scope|socket|mount|timer)$", b"", plain)
        template, _, instance = stem.partition(b"@")
        pieces = {plain, stem, template, instance, *instance.split(b"-")}
        if plain.endswith((b".mount", b".slice")):  # "-" stands for a level of the path
            pieces |= set(stem.split(b"-"))
        asked = (piece for piece in pieces if piece not in WORDS and not piece.isdigit())
        return any(piece.lower() in self._whole for piece in asked) or self._tells(plain.lower())

    def _tells(self, low: bytes, *, cut: bool = False) -> bool:
        """Return whether the name of a mailbox, user or host is part of a name."""
        words = [word for word in _SEPARATORS.split(low) if word not in KNOWN]
        for word in words:
            if any(word[:n] in self._within for n in range(_LEAST_WORD, len(word) + 1)):
                return True
        if cut and words and len(words[-1]) >= _LEAST_CUT and _is_start(words[-1], self._starts):
            return True
        return any(
            low[at:end] in self._within
            for at in range(len(low))
            for end in range(at + _LEAST_ANYWHERE, len(low) + 1)
        )


def _is_start(text: bytes, names: list[bytes]) -> bool:
    at = bisect_left(names, text)
    return at < len(names) and names[at].startswith(text)


def _shapes(component: bytes) -> Iterator[bytes]:
    """Yield a component, its private part, and the names within that of a Maildir++ folder."""
    part = private_part(component)
    if part:
        yield from (component, part)
        if part.startswith(b"."):
            yield from (name for name in part.split(b".") if name not in WORDS)


def _parts(name: bytes) -> Iterator[bytes]:
    """Yield a mailbox, user or host, its local part and domain, and the words of a domain."""
    for part in (name, *name.split(b"@")) if b"@" in name else (name,):
        if private_part(part):
            yield part
        labels = part.split(b".")[:-1] if not part.startswith(b".") else []
        yield from (label for label in labels if label not in WORDS and label not in KNOWN)


def local_names(uids: Iterable[int] = ()) -> set[bytes]:
    """Return the names of this host and of its users.

    Args:
        uids: Users to look up one by one, too: a directory service may not list its users.
    """
    users = {user.pw_name for user in pwd.getpwall() if _is_person(user)}
    for uid in {int(uid) for uid in uids}:
        try:
            user = pwd.getpwuid(uid)
        except (KeyError, OverflowError, OSError):
            continue
        if _is_person(user):
            users.add(user.pw_name)
    host = os.uname().nodename
    names = {os.fsencode(name) for name in (*users, host, host.partition(".")[0])}
    return names - WORDS - {b"localhost"}


def _is_person(user: pwd.struct_passwd) -> bool:
    if user.pw_uid >= _FIRST_PERSON:
        return user.pw_uid != _NOBODY
    logs_in = user.pw_shell.rpartition("/")[2] not in ("", *_NO_LOGIN)
    return user.pw_uid >= _FIRST_OF_PACKAGES and logs_in and os.fsencode(user.pw_name) not in KNOWN
