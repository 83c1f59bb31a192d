"""Hiding of names in roll-ups that were recorded with real names, or with another key."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from spoolscope.traces.columns import COMM, GROUP, PATH
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import check_output, discard, publish, work_directory
from spoolscope.traces.phases import Progress
from spoolscope.traces.private import Hiding, Private
from spoolscope.traces.programs import group
from spoolscope.traces.pseudonym import HIDDEN
from spoolscope.traces.reveal import mapped
from spoolscope.traces.rollups import schema
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups, put
from spoolscope.traces.rollups.names import MARKER
from spoolscope.traces.rollups.places import place
from spoolscope.traces.rollups.sealed import contents_of, decoded, minutes_of
from spoolscope.traces.scrub import PIECE, secret_pieces
from spoolscope.traces.text import decoded as bytes_of


def scrub_rollups(old: Path, new: Path, hiding: Hiding, progress: Progress) -> int:
    """Write a copy of roll-ups with all private names and hosts hidden; return their number.

    Damaged flushes and those that do not count are left out. The copy appears when it is whole and
    was searched for every hidden name with a piece of 8 bytes or more.

    Args:
        old: A roll-up directory.
        new: Directory to write.
        hiding: Parameters; its book is written.
        progress: Called with the phase and the share of the work that is done.

    Raises:
        SpoolscopeError: the roll-ups cannot be read, or a name was found in the copy.
    """
    rollups = examine(Rollups(old), deep=True, progress=progress).sound
    check_output(new)
    work = work_directory(new)
    try:
        private = _private(rollups, hiding)
        hidden = _write(rollups, work, private, progress)
        if left := _left(Rollups(work), secret_pieces(private)):
            raise SpoolscopeError(
                f"{len(left)} columns of the copy would have names, first {left[0]}",
                remedy="please report it; nothing was written",
            )
        private.remember()
        publish(work, new)
    except BaseException:
        discard(work)
        raise
    return hidden


def _private(rollups: Rollups, hiding: Hiding) -> Private:
    """Return what hides the names; as roll-ups do not name mounts, all paths count as a spool's."""
    paths = rollups.read("directories", ["directory"])["directory"].unique().to_pylist()
    return Private(hiding, [bytes_of(path) for path in paths], [b"/"])


def _write(rollups: Rollups, work: Path, private: Private, progress: Progress) -> int:
    hosts: dict[str, str] = {}
    for at, flush in enumerate(rollups.flushes, 1):
        minutes, seal = minutes_of(rollups.place, flush)
        contents = contents_of(rollups.place, flush, seal)
        tables = {table: decoded(content) for table, content in contents.items()}
        hidden = {t: _hidden(t, rows, private) for t, rows in (tables | {MARKER: minutes}).items()}
        if flush.host not in hosts:
            shown = private.names.program(flush.host.encode()).removeprefix(HIDDEN)
            hosts[flush.host] = f"h{shown.decode()}"
        to = replace(flush, host=hosts[flush.host])
        put(place(work), to, hidden, {}, seal.holds)
        progress("hiding names", at / len(rollups.flushes))
    return len(list(private.names.originals())) + len(private.comms.hidden) + len(hosts)


def _hidden(name: str, rows: pa.Table, private: Private) -> pa.Table:
    hide: dict[str, Callable[[str], str]] = {
        PATH: lambda path: private.names.path(bytes_of(path)).decode(errors="replace"),
        COMM: lambda comm: private.comms.text(comm.encode()),
        GROUP: lambda unit: _unit(unit, private),
    }
    for column in schema.ROLLUPS[name].columns:
        if column.name not in rows.schema.names:
            continue
        change = hide.get(column.private)
        if name == MARKER and column.name == "options":
            change = _options_by(private)
        if change is not None:
            field = rows.schema.field(column.name)
            at = rows.schema.get_field_index(column.name)
            rows = rows.set_column(at, field, mapped(rows[column.name], change))
    return rows


def _unit(unit: str, private: Private) -> str:
    """Return the name of a unit, or the path of a control group, with private names hidden."""
    if not unit or "/" in unit:
        return group(unit.encode(), private.comms)
    return private.comms.unit(unit.encode())


def _options_by(private: Private) -> Callable[[str], str]:
    def change(options: str) -> str:
        spool = {"mount": "/", "source": "none", "options": options}
        return str(private.meta({"spools": [spool]})["spools"][0]["options"])

    return change


def _left(copy: Rollups, secret: set[bytes]) -> list[str]:
    """Return the columns of the copy in which a piece of a hidden name still occurs."""
    found = []
    for table in schema.ROLLUPS.values():
        texts = [c.name for c in table.columns if pa.types.is_string(c.type)]
        rows = copy.read(table.name, texts)
        for name in ["host", *texts]:
            words = (bytes_of(word) for word in rows[name].unique().drop_null().to_pylist())
            if any(not secret.isdisjoint(PIECE.findall(word)) for word in words):
                found.append(f"{table.name}.{name}")
    return found
