"""Pseudonyms for file names: properties that matter to a filesystem stay, words are hidden.

Pseudonyms keep depth, length, leading dots, the words of mail stores (new, cur, dovecot.index,
...), Maildir's ",S=", ",W=" and ":2,FLAGS" suffixes, and uniqueness. Everything else is replaced,
depending on a key. The key stays with the operator: the same key gives the same pseudonyms, so
two traces of one server can be compared.

Names of up to 10 letters, digits, "-" and "_" are permuted within the names of that length, and
so is every name of up to 3 bytes (other characters keep their positions): these cannot collide.
All other names become a BLAKE2b hash. From 11 bytes on, a pair collides with a chance of 1 in 2^55
or less. Names of 4 to 10 bytes with other characters have 5 bits per byte less one byte, so that
among many of them two may collide: the later one is then hashed again, and its pseudonym depends
on the order.
"""

import base64
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from spoolscope.traces.errors import USAGE, SpoolscopeError

KEY_BYTES = 32
WORDS = frozenset(
    b"""new cur tmp Maildir mail vmail queue incoming active deferred defer bounce trace hold
    corrupt flush saved maildrop public private pid mess info local remote intd todo
    .Sent .Trash .Drafts .Junk .Archive .Spam Sent Trash Drafts Junk Archive Spam INBOX
    dovecot.index dovecot.index.log dovecot.index.log.2 dovecot.index.cache dovecot-uidlist
    dovecot-keywords dovecot.list.index dovecot.list.index.log dovecot.list.index.log.2
    dovecot.mailbox.log dovecot.mailbox.log.2 dovecot-uidvalidity subscriptions maildirfolder
    maildirsize courierimapuiddb courierimapkeywords courierimapsubscribed cyrus.index
    cyrus.header cyrus.cache cyrus.annotations mailboxes.db mailboxes.lock dbox-Mails
    lost+found inet unix master.pid
    var spool home srv mnt media data opt usr local lib lib64 libexec bin sbin etc run proc sys dev
    mapper root boot share log cache maildir maildirs Maildirs Mail mails mailbox mailboxes
    mailstore store domains users imap postfix dovecot exim exim4 cyrus courier export exports
    cgroup unified system.slice user.slice machine.slice init.scope
    posix_acl_access posix_acl_default capability selinux""".split()
)
# Known words that may be followed by a private part.
_HEADS = re.compile(
    rb"(dovecot-uidvalidity\.|dovecot\.index\.|dovecot\.list\.index\.|dovecot-uidlist\.|"
    rb"mailboxes\.lock|\.temp\.|\.DOVECOT-|\.\.DOVECOT-|temp\.|inet\.|unix\.|"
    rb"user\.|trusted\.|security\.|system\.)"
)
_ENDINGS = re.compile(
    rb"(\.lock|\.newlock|\.tmp|\.log|\.cache|\.service|\.slice|\.scope|\.socket)$"
)
_MAILDIR = re.compile(rb"^([^,:]+)((?:,[SW]=\d+)*)(:2,[A-Za-z]*)?$")
_LEADING_DOTS = re.compile(rb"^\.*")
_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
_BITS = 6  # of one character of the alphabet
_PLACE = {char: i for i, char in enumerate(_ALPHABET)}
_ASCII = bytes(c for c in range(0x20, 0x7F) if c not in _ALPHABET and c not in b"./")
_OTHER = bytes(c for c in range(1, 256) if c < 0x20 or c >= 0x7F)
_ALL_PERMUTED, _PERMUTED = 3, 10
_ROUNDS = 8
_LETTERS, _LETTER_BYTES = 8, 5  # letters of base32 that stand for so many bytes
_LEAST_PROGRAM, _MOST_PROGRAM = 8, 15  # the kernel keeps 15 bytes of a thread's name
HIDDEN = b"+"
"""First byte of a program's pseudonym."""
_MARK = b"+"  # first byte of hashes as short as permuted names, which never have it


def key_path(file: Path | None = None) -> Path:
    """Return the path of the key: the given file, or that of this user."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return file or config / "spoolscope" / "pseudonym.key"


def load_key(file: Path | None = None, *, outside: Path | None = None) -> bytes:
    """Return the operator's key; on first use make it, in a file that only its owner can read.

    Args:
        file: Key file; default ``$XDG_CONFIG_HOME/spoolscope/pseudonym.key``.
        outside: Directory of a trace, which is passed on to others and so may not hold the key.

    Raises:
        SpoolscopeError: the file is damaged, a link, open to others or inside the trace.
    """
    path = key_path(file)
    if outside is not None and path.resolve().is_relative_to(outside.resolve()):
        raise SpoolscopeError(
            f"the pseudonym key {path} lies in the trace {outside}",
            remedy="give another --key-file: with both at hand the names can be read",
            exit_code=USAGE,
        )
    if not path.exists() and not path.is_symlink():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(secrets.token_bytes(KEY_BYTES))
    key = _read_key(path)
    if len(key) != KEY_BYTES:
        raise SpoolscopeError(
            f"the pseudonym key {path} has {len(key)} bytes instead of {KEY_BYTES}",
            remedy="remove it to get a new one (old traces then no longer match new ones)",
        )
    return key


def _read_key(path: Path) -> bytes:
    with open_private(path, "the pseudonym key") as file:
        return file.read(KEY_BYTES + 1)


def open_private(path: Path, what: str) -> BinaryIO:
    """Open a file of the operator that no other user can have read or made.

    Raises:
        SpoolscopeError: it is a link, not a file, or open to others.
    """
    try:
        # Without NONBLOCK the open of a pipe would block.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SpoolscopeError(
            f"{what} {path} is a symbolic link", remedy="give the file it leads to"
        ) from None
    try:
        _check_private(os.fstat(file.fileno()), path, what)
    except SpoolscopeError:
        file.close()
        raise
    return file


def _check_private(found: os.stat_result, path: Path, what: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SpoolscopeError(f"{what} {path} is not a file", remedy="give another --key-file")
    if found.st_mode & 0o077:
        raise SpoolscopeError(
            f"{what} {path} is open to others (mode {found.st_mode & 0o777:04o})",
            remedy=f"chmod 600 {path}, or make a new one if others may have read it",
        )


def key_id(key: bytes) -> str:
    """Return a short identifier of a key that does not reveal it."""
    return hashlib.blake2b(b"id", key=key, digest_size=4).hexdigest()


def private_part(component: bytes) -> bytes:
    """Return the part of a component that is hidden; empty if it stays as it is."""
    start, end = _private_part(component)
    return component[start:end]


def _private_part(name: bytes) -> tuple[int, int]:
    """Return where the private part of a component begins and ends."""
    nothing = (0, 0)
    if name in WORDS or not name.strip(b"."):
        return nothing
    match = _MAILDIR.match(name)
    stop = match.end(1) if match and (match[2] or match[3]) else len(name)
    ending = _ENDINGS.search(name, 0, stop)
    end = ending.start() if ending else stop
    if name[:end] in WORDS:
        return nothing
    head = _HEADS.match(name, 0, end)
    start = head.end() if head else 0
    return nothing if name[start:end] in WORDS else (start, end)


class Pseudonymiser:
    """Replaces the components of path names, consistently within and across traces."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[bytes, bytes] = {}
        self._directories: dict[bytes, bytes] = {}
        self._taken: set[bytes] = set()

    def originals(self) -> Iterable[bytes]:
        """Return the original names that were hidden so far."""
        return self._known.keys()

    def path(self, path: bytes) -> bytes:
        """Return the pseudonym of a path, component by component."""
        above, slash, name = path.rpartition(b"/")
        hidden = self._directories.get(above)
        if hidden is None:
            parts = [self.component(part) for part in above.split(b"/")]
            hidden = self._directories[above] = b"/".join(parts)
        return hidden + slash + self.component(name)

    def component(self, name: bytes) -> bytes:
        """Return the pseudonym of one component."""
        start, end = _private_part(name)
        return name[:start] + self._hash(name[start:end]) + name[end:] if start < end else name

    def program(self, name: bytes) -> bytes:
        """Return the pseudonym of a program, 8 to 15 bytes; ``HIDDEN`` at its start marks it."""
        length = min(max(len(name), _LEAST_PROGRAM), _MOST_PROGRAM)
        text = base64.b32encode(self._digest(name, b"program")).lower()
        return HIDDEN + text[: length - len(HIDDEN)]

    def _hash(self, name: bytes) -> bytes:
        if known := self._known.get(name):
            return known
        dots = _LEADING_DOTS.match(name)
        prefix = dots.group() if dots else b""
        rest = name[len(prefix) :]
        if len(rest) <= _ALL_PERMUTED:
            pseudonym = self._mixed(rest)
        elif len(rest) <= _PERMUTED and not rest.strip(_ALPHABET):
            pseudonym = self._permuted(rest)
        else:
            pseudonym = self._digested(rest)
        self._known[name] = prefix + pseudonym
        return prefix + pseudonym

    def _mixed(self, name: bytes) -> bytes:
        """Permute each kind of character; all keep their positions."""
        inside = bytes(c for c in name if c in _PLACE)
        if len(inside) == len(name):
            return self._permuted(name)
        shape = bytes(0 if c in _PLACE else 1 for c in name)
        hidden = iter(self._permuted(inside, shape) if inside else b"")
        out = bytearray()
        for at, char in enumerate(name):
            if char in _PLACE:
                out.append(next(hidden))
            else:
                out.append(self._other(char, shape + bytes([at])))
        return bytes(out)

    def _other(self, char: int, where: bytes) -> int:
        if char == ord("."):
            return char
        among = _ASCII if char in _ASCII else _OTHER
        return sorted(among, key=lambda c: self._digest(where + bytes([c]), b"char"))[
            among.index(char)
        ]

    def _permuted(self, name: bytes, shape: bytes = b"") -> bytes:
        """Permute by a Feistel network over the names of this length; skip known words."""
        half = _BITS * len(name) // 2
        number = 0
        for char in name:
            number = number << _BITS | _PLACE[char]
        while True:
            left, right = number >> half, number & (1 << half) - 1
            for turn in range(_ROUNDS):
                text = shape + bytes([len(name), turn]) + right.to_bytes(8, "little")
                digest = int.from_bytes(self._digest(text, b"round")[:8], "little")
                left, right = right, left ^ digest & (1 << half) - 1
            number = left << half | right
            places = (number >> _BITS * i & 63 for i in reversed(range(len(name))))
            hidden = bytes(_ALPHABET[place] for place in places)
            if hidden not in WORDS:
                return hidden

    def _digested(self, name: bytes) -> bytes:
        mark = _MARK if len(name) <= _PERMUTED else b""
        length = len(name) - len(mark)
        for attempt in range(1000):
            pseudonym = mark + self._text(name, attempt, length)
            if pseudonym not in self._taken and pseudonym not in WORDS:
                break
        self._taken.add(pseudonym)
        return pseudonym

    def _digest(self, text: bytes, person: bytes) -> bytes:
        return hashlib.blake2b(text, key=self._key, digest_size=35, person=person).digest()

    def _text(self, name: bytes, attempt: int, length: int) -> bytes:
        text = b""
        block = 0
        while len(text) < length:
            person = attempt.to_bytes(8, "little") + block.to_bytes(8, "little")
            needed = -(-(length - len(text)) // _LETTERS) * _LETTER_BYTES
            text += base64.b32encode(self._digest(name, person)[:needed]).lower()
            block += 1
        return text[:length]
