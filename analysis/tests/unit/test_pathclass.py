"""Paths of a mail spool by use; names of the pseudonymiser's shape work alike."""

import duckdb
import pytest

from spoolscope.analysis.pathclass import CLASS_NAMES, class_sql, path_class

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
