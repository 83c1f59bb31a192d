"""Classes of paths of a mail spool; pseudonyms have the same class as the names."""

import duckdb
import pytest

from spoolscope.traces.pathclass import CLASS_NAMES, class_sql, mailbox_sql, path_class, user_of

PATHS = [
    ("mail/u1/dovecot-uidlist.lock", "dotlock"),
    ("mail/u1/dovecot-uidlist", "dovecot-uidlist"),
    ("mail/u1/dovecot-uidlist.tmp", "dovecot-uidlist"),
    ("mail/u1/dovecot.index.log", "dovecot.index.log"),
    ("mail/u1/dovecot.index.log.2", "dovecot.index.log"),
    ("mail/u1/dovecot.index.cache", "dovecot.index.cache"),
    ("mail/u1/dovecot.index", "dovecot.index"),
    ("mail/u1/dovecot.list.index.log", "dovecot.list.index"),
    ("mail/u1/.kq81zz/new/xk29dkw02kf.x93k", "message file in new"),
    ("mail/u1/cur/1700.M1P2.host,S=12,W=13:2,S", "message file in cur"),
    ("mail/u1/tmp/1700.M1P2.host", "message file in tmp"),
    ("mail/u1/new", "new directory"),
    ("cur", "cur directory"),
    ("queue/incoming/A1B2C3D4E5", "postfix queue file"),
    ("queue/incoming", "postfix queue directory"),
    ("queue/deferred/A", "postfix queue directory"),
    ("queue/deferred/A/A1B2C3D4E5", "postfix queue file"),
    ("queue/maildrop/9C02B1403A", "postfix queue file"),
    ("queue/public/pickup", "postfix socket or pid"),
    ("queue/pid/unix.cleanup", "postfix socket or pid"),
    ("mail/u1", "other"),
    ("", "other"),
    (None, "no path"),
]


@pytest.mark.parametrize(("path", "expected"), PATHS)
def test_class_of_a_path(path, expected):
    assert path_class(path) == expected
    assert expected in CLASS_NAMES


def test_duckdb_classes_agree():
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (path VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?)", [[path] for path, _ in PATHS])
        got = con.execute(f"SELECT {class_sql('path')} FROM t").fetchall()
    assert [name for (name,) in got] == [expected for _, expected in PATHS]


USERS = [
    ("mail/u1/cur/1700.M1P2.host,S=12,W=13:2,S", "mail/u1", "mail/u1"),
    ("mail/u1/Maildir/new", "mail/u1/Maildir", "mail/u1"),
    ("mail/u1/Maildir/.Sent/tmp/1", "mail/u1/Maildir/.Sent", "mail/u1"),
    ("example.org/u1/mdbox/dovecot.list.index", "example.org/u1/mdbox", "example.org/u1"),
    ("mail/u1/mailboxes/INBOX/dbox-Mails/u.1", "mail/u1", "mail/u1"),
    ("user/u1/cyrus.index", "user/u1", "user/u1"),
    ("Maildir/new/1", "Maildir", "Maildir"),
    ("mail/u1", "mail", None),
    ("mail/u1.lock", "mail", None),
    ("queue/active/A1B2C3", "active", None),
    ("new/1", "", None),
    ("", "", None),
]


@pytest.mark.parametrize(("path", "_mailbox", "user"), USERS)
def test_the_user_whose_mailbox_it_is(path, _mailbox, user):
    assert user_of(path) == user


def test_the_mailbox_or_queue_of_a_path():
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (path VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?)", [[path] for path, _, _ in USERS])
        got = con.execute(f"SELECT {mailbox_sql('path')} FROM t").fetchall()
    assert [name for (name,) in got] == [mailbox for _, mailbox, _ in USERS]
