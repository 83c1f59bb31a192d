"""Join pages of ``lab faults``, each made in a machine of its own, into one.

    python analysis/benchmarks/ground_truth_pages.py PAGE jfs.md f2fs.md >NEW-PAGE

One machine for all filesystems would run for half an hour. PAGE may be what this program wrote
before. Rows are copied as they are; of two rows for one fault on one filesystem the later page's
stays. Exit code 1: pages differ in the length of the load, or in how columns are to be read.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

_MADE = re.compile(
    r"Made on (?P<day>\S+) on Linux (?P<kernel>\S+), (?P<cpus>\d+) CPUs at a load of\s"
    r"(?P<load>\S+), .*?by\n\n    sudo (?P<command>[^\n]+)\n",
    re.DOTALL,
)
_SECONDS = re.compile(r"load of (\S+) s, the load is recorded")
_HOW = re.compile(r"^\*judged\*.*?(?=\n\n\| fault \|)", re.DOTALL | re.MULTILINE)
_REMARK = re.compile(r"^\* \*\*(\S+)\*\* on (\S+): .*", re.MULTILINE)
_RUNS = (
    "| made on | Linux | CPUs | load there | command in the machine |",
    "|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Page:
    """A page of ``lab faults``, or one that joins several.

    Attributes:
        seconds: Length of each load.
        how: Paragraphs on how the columns are to be read.
        heads: First two lines of the tables of rows and of faults.
        runs: Rows on when, where and by which command it was made.
        rows: Its results, by fault and filesystem.
        faults: Description of each fault.
        remarks: What is known of rows that miss a goal, by fault and filesystem.
    """

    seconds: str
    how: str
    heads: tuple[list[str], list[str]]
    runs: list[str]
    rows: dict[tuple[str, str], str]
    faults: list[str]
    remarks: dict[tuple[str, str], str]


def read(text: str) -> Page:
    """Take a page apart.

    Raises:
        ValueError: it is not a page of ``lab faults``.
    """
    seconds, how, made = _SECONDS.search(text), _HOW.search(text), _MADE.search(text)
    tables = [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    if not seconds or not how or len(tables) != (2 if made else 3):
        raise ValueError("this is no page of 'spoolscope lab faults'")
    runs = [_run(**made.groupdict())] if made else tables.pop(0)[2:]
    results, faults = tables
    return Page(
        seconds[1],
        how[0],
        (results[:2], faults[:2]),
        runs,
        {_key(row): row for row in results[2:]},
        faults[2:],
        {(one[1], one[2]): one[0] for one in _REMARK.finditer(text)},
    )


def _run(day: str, kernel: str, cpus: str, load: str, command: str) -> str:
    return f"| {day} | {kernel} | {cpus} | {load} | `{command}` |"


def _key(row: str) -> tuple[str, str]:
    fault, fstype = row.split("|")[1:3]
    return fault.removesuffix(" ✗ ").strip(), fstype.strip()


def join(pages: list[Page]) -> str:
    """Return one page.

    Raises:
        ValueError: pages are of different loads, or their columns are not the same.
    """
    first = pages[0]
    if any((one.seconds, one.how, one.heads) != (first.seconds, first.how, first.heads)
           for one in pages):  # fmt: skip
        raise ValueError("pages differ in the length of the load, or in their columns")
    rows: dict[tuple[str, str], str] = {}
    remarks: dict[tuple[str, str], str] = {}
    for page in pages:
        rows |= page.rows
        remarks = {key: text for key, text in remarks.items() if key not in page.rows}
        remarks |= page.remarks
    right = sum("✗" not in row for row in rows.values())
    lines = [
        _INTRODUCTION.format(seconds=first.seconds),
        *_RUNS,
        *dict.fromkeys(run for page in pages for run in page.runs),
        "",
        first.how,
        "",
        *first.heads[0],
        *(row for _, row in sorted(rows.items())),
        "",
        f"{right} of {len(rows)} rows reach the goals; those that do not are marked with a cross.",
        "",
        *first.heads[1],
        *sorted({fault.split("|")[1]: fault for one in pages for fault in one.faults}.values()),
    ]
    if remarks:
        lines += ["", "What is known of the rows that do not reach the goals:", ""]
        lines += [remark for _, remark in sorted(remarks.items())]
    return "\n".join(lines) + "\n"


_INTRODUCTION = """# Ground truth on another kernel

What `spoolscope explain` says where the answer is known. A fault is injected under a mail-like
load of {seconds} s, the load is recorded and explained, and the explanation is compared with the
log of what injected the fault: the slow disk, a process that held a lock or a CPU, or the clock
of the process that was limited. Each command ran once, in a machine of its own with one of
Debian's kernels, emulated by QEMU (TCG) on a machine that had other work:

    sudo spoolscope lab vm --kernel 6.12 --cpus 2 --memory 3072 --bring jfs.md -- COMMAND

The pages were joined by `analysis/benchmarks/ground_truth_pages.py`. jfs asks a disk for no flush.
"""


if __name__ == "__main__":
    try:
        sys.stdout.write(join([read(Path(name).read_text()) for name in sys.argv[1:]]))
    except (OSError, ValueError) as error:
        sys.exit(str(error))
