"""The program blkparse as a second reader of block traces."""

import subprocess

from spoolscope.tracers.blktrace.records import Events, letters

FORMAT = "%M,%m %c %T.%t %p %a %d %S %N %e\n"
LETTERS = ["", "Q", "M", "F", "G", "S", "R", "D", "C", "P", "U", "UT", "I", "X", "B", "A"]


def blkparse_lines(*arguments: str, stream: bytes = b"") -> list[str]:
    """Return the output of blkparse, one line per event, with times since the first event."""
    command = ["blkparse", "-q", "-M", *arguments, "-f", FORMAT]
    said = subprocess.run(command, input=stream, check=True, capture_output=True)
    lines = said.stdout.decode().splitlines()
    return [line for line in lines if not line.startswith("Input file")]


def events_as_lines(events: Events) -> list[str]:
    """Return events as blkparse prints them."""
    lines: list[str] = []
    first = None
    for e in events:
        first = e.time_ns if first is None else first
        seconds, ns = divmod(e.time_ns - first, 1_000_000_000)
        lines.append(
            f"{e.dev >> 20},{e.dev & 0xFFFFF} {e.cpu} {seconds}.{ns:09} {e.tid}"
            f" {LETTERS[e.action]} {letters(e.category, e.length)} {e.sector} {e.length} {e.error}"
        )
    return lines
