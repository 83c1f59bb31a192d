"""The shipped sample, and the tree that a replay of it leaves."""

import os
from pathlib import Path

from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "postfix-dovecot"
Tree = dict[str, tuple[int, ...]]


def mailboxes() -> list[str]:
    """Return the directories of users; the first is the one with names in most calls."""
    connection = Trace.open(SAMPLE).connect()
    found = connection.execute(
        "SELECT regexp_extract(p.path, '^(mail/[^/]+)/', 1) box, count(s.path_id) n"
        " FROM paths p LEFT JOIN syscalls s USING (path_id)"
        " WHERE box <> '' GROUP BY box ORDER BY n DESC, box"
    )
    return [box for box, _ in found.fetchall()]


def tree(root: Path) -> Tree:
    """Return facts of lstat for every name; sizes and link counts of files only."""
    found = {}
    for directory, below, files in os.walk(root):
        for name in (*below, *files):
            path = Path(directory) / name
            stat = path.lstat()
            size, nlink = (0, 0) if path.is_dir() else (stat.st_size, stat.st_nlink)
            found[str(path.relative_to(root))] = (stat.st_mode, stat.st_uid, size, nlink)
    return found
