"""Pseudonyms keep properties that matter to a filesystem, and no readable names."""

import os

import pytest

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.pseudonym import Pseudonymiser, key_id, load_key

KEY = bytes(range(32))
MESSAGE = b"1700000000.M20046P11137.mail7,S=4030,W=4102:2,FS"


@pytest.mark.parametrize(
    "name",
    [
        b"new",
        b"dovecot.index.log",
        b"dovecot.index.log.newlock",
        b"dovecot-uidlist.lock",
        b".Sent",
        b"..",
        b"",
        b"maildirfolder",
    ],
)
def test_words_of_mail_stores_stay(name: bytes) -> None:
    assert Pseudonymiser(KEY).component(name) == name


@pytest.mark.parametrize("name", [b"alice", b".Receipts", b"example.com", b"x" * 255, b"A1B2C3D4"])
def test_names_go_but_keep_length_and_dots(name: bytes) -> None:
    hidden = Pseudonymiser(KEY).component(name)
    assert hidden != name
    assert len(hidden) == len(name)
    assert hidden.startswith(b".") == name.startswith(b".")
    assert b"/" not in hidden


def test_a_message_keeps_size_and_flags_and_its_identity() -> None:
    hide = Pseudonymiser(KEY).component
    hidden = hide(MESSAGE)
    base = MESSAGE.split(b",")[0]
    assert hidden.endswith(b",S=4030,W=4102:2,FS")
    assert hidden.startswith(hide(base))  # tmp/x and cur/x,S=...:2, are the same message
    assert b"mail7" not in hidden
    assert len(hidden) == len(MESSAGE)


def test_lock_files_follow_their_file() -> None:
    hide = Pseudonymiser(KEY).component
    assert hide(b"alice.lock") == hide(b"alice") + b".lock"


def test_what_leads_through_a_name_stays() -> None:
    hide = Pseudonymiser(KEY)
    for around in (b"%s/", b"%s/.", b"%s/..", b"%s/../cur", b".", b"%s"):
        named = around % b"alice" if b"%" in around else around
        hidden = around % hide.component(b"alice") if b"%" in around else around
        assert hide.path(named) == hidden


def test_attributes_keep_their_namespace() -> None:
    hide = Pseudonymiser(KEY).component
    assert hide(b"user.alice") == b"user." + hide(b"alice")
    assert hide(b"system.posix_acl_access") == b"system.posix_acl_access"


def test_short_names_stay_unique() -> None:
    hide = Pseudonymiser(KEY).component
    names = [bytes([a]) for a in range(33, 127) if a not in b"./"]
    hidden = [hide(name) for name in names]
    assert len(set(hidden)) == len(names)


@pytest.mark.parametrize(
    "names",
    [
        [b"%X" % i for i in range(16)],
        [b"%02x" % i for i in range(256)],
        [b"%03d" % i for i in range(1000)],
        [b"%04X" % i for i in range(5000)],
        [bytes([a]) for a in range(1, 256) if a not in b"./"],
        [
            bytes([a, b])
            for a in "aZ9-é ,.~".encode()
            for b in "aZ9-é ,.~".encode()
            if a not in b"."
        ],
        [b"temp." + a for a in (b"cur", b"new", b"pid", b"xyz")],
    ],
    ids=["hex", "bytes", "decimals", "queue", "characters", "mixed", "words"],
)
def test_short_names_do_not_depend_on_who_came_first(names: list[bytes]) -> None:
    one, other = Pseudonymiser(KEY), Pseudonymiser(KEY)
    forward = {name: one.component(name) for name in names}
    backward = {name: other.component(name) for name in reversed(names)}
    assert forward == backward
    assert len(set(forward.values())) == len(names)
    assert [name for name in names if len(forward[name]) != len(name)] == []


def test_permuted_and_hashed_names_do_not_meet() -> None:
    hide = Pseudonymiser(KEY).component
    hashed = [hide(b"a,%02d" % i) for i in range(100)]
    assert len(set(hashed)) == 100
    assert all(name.startswith(b"+") for name in hashed)


def test_same_key_same_names_other_key_other_names() -> None:
    path = b"vmail/example.com/alice/Maildir/cur"
    assert Pseudonymiser(KEY).path(path) == Pseudonymiser(KEY).path(path)
    assert Pseudonymiser(KEY).path(path) != Pseudonymiser(KEY[::-1]).path(path)
    assert key_id(KEY) != key_id(KEY[::-1])


def test_the_key_is_made_once_and_private(tmp_path) -> None:
    file = tmp_path / "deep" / "key"
    key = load_key(file)
    assert load_key(file) == key
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"short")
    with pytest.raises(SpoolscopeError):
        load_key(file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda key: key.chmod(0o640), "open to others"),
        (lambda key: key.chmod(0o604), "open to others"),
        (lambda key: key.rename(key.with_name("k")) and key.symlink_to("k"), "symbolic link"),
        (lambda key: key.unlink() or key.symlink_to("nowhere"), "symbolic link"),
        (lambda key: key.unlink() or os.mkfifo(key, 0o600), "not a file"),
    ],
    ids=["group", "others", "link", "dangling", "pipe"],
)
def test_a_key_that_others_may_know_is_refused(tmp_path, spoil, message: str) -> None:
    key = tmp_path / "key"
    load_key(key)
    spoil(key)
    with pytest.raises(SpoolscopeError, match=message):
        load_key(key)


def test_the_key_does_not_lie_in_the_trace(tmp_path) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "link").symlink_to(trace)
    for key in (trace / "key", trace / "deep" / "key", tmp_path / "link" / "key"):
        with pytest.raises(SpoolscopeError, match="lies in the trace"):
            load_key(key, outside=trace)
    assert not trace.exists()
    assert len(load_key(tmp_path / "key", outside=trace)) == 32
