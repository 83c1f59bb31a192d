"""The workloads by name: published comparison, needs, and the function of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from spoolscope.lab.workloads.bench import Bench
from spoolscope.lab.workloads.daemons import needs as needs_of_daemons
from spoolscope.lab.workloads.daemons import postfix_with
from spoolscope.lab.workloads.needs import Needs, native_needs
from spoolscope.lab.workloads.published import Column, Comparison, Table, comparisons
from spoolscope.replay import images
from spoolscope.traces.errors import USAGE, SpoolscopeError

FORMATS = ("maildir", "mbox")
STAGES = (1, 2, 4, 8, 16)
"""Numbers of deliverers of fsbench."""
TASKS = (
    *("iso-copy", "iso-recopy", "iso-remove", "tree-copy", "tree-recopy"),
    *("list", "find", "tree-remove"),
)
"""Steps of the file server between mount and umount."""


@dataclass(frozen=True)
class Workload:
    """A workload.

    Attributes:
        name: Name on the command line.
        about: Description, one line.
        run: Function that runs it on the target of a bench.
        published: Name of the comparison that it repeats, or empty.
        formats: Mailbox formats, the first is the default; empty if there are no mailboxes.
        needs: Function for the needed space, by name and scale.
        own_tables: Tables of a workload that repeats no comparison.
        server: Server beside Postfix, if servers make the calls, not the program that runs.
    """

    name: str
    about: str
    run: Callable[[Bench], None]
    published: str = ""
    formats: tuple[str, ...] = ()
    needs: Callable[[str, float], Needs] = native_needs
    own_tables: tuple[Table, ...] = ()
    server: str = ""

    @property
    def comparison(self) -> Comparison | None:
        """The comparison that it repeats."""
        return comparisons()[self.published] if self.published else None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables to show."""
        return self.comparison.tables if self.comparison else self.own_tables


def _maildir_io(bench: Bench) -> None:
    bench.step("unpack")
    bench.empty_caches()
    bench.step("setup")
    bench.empty_caches()
    bench.step("io")
    bench.empty_caches()
    bench.step("io-unflushed")
    bench.empty_caches()
    bench.step("reads")
    for whole, io in (("whole", "io"), ("whole_unflushed", "io_unflushed")):
        for part in ("s", "user_s", "system_s"):
            bench.add_up(f"{whole}_{part}", f"setup_{part}", f"{io}_{part}")


def _cyrus_archive(bench: Bench) -> None:
    with bench.throughput("write"):
        bench.step("write")
    bench.empty_caches()
    with bench.throughput("read"):
        bench.step("read")
    bench.check()
    with bench.throughput("remove"):
        bench.step("remove")


def _file_server(bench: Bench) -> None:
    source = bench.work / "source"
    source.mkdir()
    words = ("--source", str(source))
    bench.prepare("source", *words)
    images.read_all(source)  # so that reads from the other disk take no time
    for step in TASKS:
        bench.empty_caches()
        bench.step(step, *words)
    bench.umount()


def _fsbench(bench: Bench) -> None:
    bench.prepare("setup")
    for deliverers in STAGES:
        bench.empty_caches()
        words = ("--deliverers", str(deliverers))
        bench.step("stage", *words, called=f"stage-{deliverers}")


def _qmail(bench: Bench) -> None:
    bench.prepare("setup")
    for step in ("deliver", "pop3"):
        bench.empty_caches()
        bench.step(step)


def _varmail(bench: Bench) -> None:
    bench.prepare("setup")
    bench.empty_caches()
    bench.step("load")


def _table(title: str, *columns: tuple[str, str, str]) -> tuple[Table, ...]:
    return (Table(title, tuple(Column(*column) for column in columns), {}),)


WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        workload.name: workload
        for workload in (
            Workload(
                "maildir-io",
                "Maildirs for qmail: unpack, make, write, read (C2004)",
                _maildir_io,
                published="C2004",
                formats=FORMATS,
            ),
            Workload(
                "cyrus-archive",
                "a million mails: write, read, check, remove (C2005)",
                _cyrus_archive,
                published="C2005",
            ),
            Workload(
                "file-server",
                "eleven tasks: make, copy, list, find, remove (C2006)",
                _file_server,
                published="C2006",
            ),
            Workload(
                "fsbench",
                "1 to 16 deliverers to 100,000 boxes beside a reader (C2008)",
                _fsbench,
                published="C2008",
                formats=FORMATS,
            ),
            Workload(
                "postfix-courier",
                "real Postfix and Courier, as under postal and rabid (C2007)",
                postfix_with("courier"),
                published="C2007",
                formats=FORMATS[:1],
                needs=needs_of_daemons,
                server="courier",
            ),
            Workload(
                "postfix-dovecot",
                "real Postfix and Dovecot, likewise",
                postfix_with("dovecot"),
                published="C2007",
                formats=FORMATS,
                needs=needs_of_daemons,
                server="dovecot",
            ),
            Workload(
                "qmail",
                "deliveries by link and unlink, then POP3 sessions",
                _qmail,
                own_tables=_table(
                    "10 deliveries and 5 sessions at once",
                    ("deliver_deliver_per_s", "deliveries a second", "/s"),
                    ("deliver_deliver_ms", "a delivery", "ms"),
                    ("deliver_deliver_p99_ms", "a delivery, p99", "ms"),
                    ("pop3_session_ms", "a session", "ms"),
                    ("pop3_session_p99_ms", "a session, p99", "ms"),
                ),
            ),
            Workload(
                "varmail",
                "filebench's: 16 processes make, append to and read files",
                _varmail,
                own_tables=_table(
                    "16 processes, 1,000 files in one directory",
                    ("load_create_per_s", "loops a second", "/s"),
                    ("load_remove_ms", "remove", "ms"),
                    ("load_create_ms", "make, write and sync", "ms"),
                    ("load_append_ms", "read, append and sync", "ms"),
                    ("load_read_ms", "read", "ms"),
                ),
            ),
        )
    }
)


def workload(name: str) -> Workload:
    """Return a workload.

    Raises:
        SpoolscopeError: there is none of that name.
    """
    if found := WORKLOADS.get(name):
        return found
    near = get_close_matches(name, WORKLOADS, n=1)
    raise SpoolscopeError(
        f"unknown workload {name!r}",
        remedy=f"did you mean {near[0]}?" if near else f"use one of: {', '.join(WORKLOADS)}",
        exit_code=USAGE,
    )
