"""Functions that make a recording of a program, and query it."""

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from journals import WRITERS

from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace


def recorded(mount: Path, tmp_path: Path, command: list[str], **options: Any) -> Trace:
    """Return the trace, with real names, of a command that must succeed."""
    request = Request(
        spools=[mount], output=tmp_path / "t", command=command, keep_names=True, **options
    )
    summary = record(request)
    assert summary.command_status == 0
    return Trace.open(summary.trace)


def recorded_during(
    work: Callable[[], object], mount: Path, tmp_path: Path, **options: Any
) -> Trace:
    """Return the trace, with real names, of all that happens while a function works.

    It is called when the recording has begun; the recording ends when it has returned.
    """
    request = Request(spools=[mount], output=tmp_path / "t", keep_names=True, **options)
    running: list[Future[object]] = []
    with ThreadPoolExecutor(1) as pool:

        def over() -> bool:
            if not running:
                running.append(pool.submit(work))
            return running[0].done()

        summary = record(request, over=over)
    running[0].result()
    return Trace.open(summary.trace)


def record_writers(mount: Path, tmp_path: Path, *numbers: int) -> Trace:
    """Record WRITERS with these numbers; nothing may be lost."""
    command = [sys.executable, "-S", "-c", WRITERS, str(mount), *map(str, numbers)]
    trace = recorded(mount, tmp_path, command)
    assert trace.meta["lost_records"] == {}
    return trace


def ask(trace: Trace, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return trace.connect().execute(sql).fetchall()


def in_processes(n: int) -> str:
    """Return code that runs ``deliver(who)`` in n processes and waits for them."""
    return f"""
children = []
for who in range({n}):
    child = os.fork()
    if not child:
        deliver(who)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""
