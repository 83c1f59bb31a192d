"""Results of a replay: replay.json, and run.json and divergences.json of every run.

The replayer makes these objects and analysis reads them, both through this file. RESULTS.md is
generated from it, including docstrings of classes. A field may be added within a version, with a
default for files that lack it; anything else changes ``VERSION``. Unknown versions are refused.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spoolscope.traces.digests import check_sealed
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import regular
from spoolscope.traces.results_certificate import Certificate
from spoolscope.traces.results_life import Life
from spoolscope.traces.typed_json import decode, part

VERSION = 1
"""Replays from before results had a version count as version 0; missing fields have defaults."""

REPLAY_FILE, RUN_FILE = "replay.json", "run.json"
DIVERGENCES_FILE, OUTCOMES_FILE, PLAN_FILE = "divergences.json", "outcomes.parquet", "plan.json"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class FinalState:
    """The final tree, held against the expected one."""

    checked: int = part("Names compared.", default=0)
    mismatched: int = part("Names that differ.", default=0)
    examples: list[Any] = part("Some of these.", default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Listings:
    """Directory listings, held against the expected names."""

    compared: int = part("Listings compared.")
    other_names: int = part("Listings with other names.")
    not_compared: dict[str, int] = part("Listings that were not, by reason.")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """More users than were recorded."""

    users: int = part("How many times the recorded users.")
    phases_ns: list[int] = part("How long after the recording each copy began.", "ns")
    mailboxes: int | None = part("Mailboxes that were copied.", default=None)
    common_directories: int | None = part("Directories that all copies share.", default=None)
    threads: int | None = part("Threads of all.", default=None)
    bytes: int | None = part("Bytes of the tree at the start.", "bytes", default=None)
    duration_ns: int | None = part("Length with all copies.", "ns", default=None)
    all_from_ns: int | None = part("From when all are at work.", "ns", default=None)
    all_to_ns: int | None = part("Until when.", "ns", default=None)


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Differences from the recording that were asked for."""

    label: str = part("In some words.")
    options: list[str] | None = part(
        "Words of the command line that ask for it; null in old replays.", default=None
    )
    left_out: dict[str, int] = part("Calls left out, by name.")
    slice: dict[str, int] | None = part("Numbers of a slice.", default=None)
    only: dict[str, int] | None = part("Numbers of chosen calls.", default=None)
    scale: Scale | None = part("More users.", default=None)
    sentence: str = part("In a sentence.", default="")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that was booted for the replay."""

    series: str = part("Series of its kernel, such as 6.1.", default="")
    kernel: str = part("Release of its kernel.", default="")
    accelerator: str = part("What ran its instructions: kvm, or tcg (emulated).")
    icount: bool = part("Its clock counts instructions.", default=False)
    cpus: int | None = part("Processors.", default=None)
    memory_mib: int | None = part("Memory.", "MiB", default=None)
    host: dict[str, str | None] = part("Kernel and CPU below it.", default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Files in pieces, as FIEMAP shows them."""

    files: int = part("Files looked at.")
    extents: int = part("Their extents.")
    files_split: int = part("Files with more than one.")
    most: int = part("Most of one file.")
    largest_bytes: int | None = part("The largest extent.", "bytes", default=None)


@dataclass(frozen=True, kw_only=True)
class Age:
    """The churning of a filesystem before the fixture was filled in."""

    seed: int = part("Of the churn.")
    factor: float = part("Bytes made by bytes that were free.")
    files_made: int | None = part("Files made.", default=None)
    files_removed: int | None = part("Files removed.", default=None)
    files_refused: int | None = part("Files that there was no room for.", default=None)
    bytes_made: int = part("Bytes of the files made.", "bytes", default=0)
    files_kept: int | None = part("Files that stayed.", default=None)
    bytes_kept: int = part("Bytes of these.", "bytes", default=0)
    free_bytes_before: int = part("Free before.", "bytes", default=0)
    free_bytes_after: int | None = part("Free after.", "bytes", default=None)
    probe_bytes: int = part("Size of a file made before and after.", "bytes", default=0)
    probe_before: Pieces | None = part("That file on the new filesystem.", default=None)
    probe_after: Pieces | None = part("That file on the aged one.", default=None)
    fixture: Pieces | None = part("Files of the fixture.", default=None)


@dataclass(frozen=True, kw_only=True)
class Cached:
    """The content of memory when the run began."""

    why: str = part("How that is known.")
    names: int = part("Names.")
    files: int = part("Files with data.")
    data_bytes: int = part("Their data.", "bytes")


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """The load of other programs on the machine during the run."""

    steal: float | None = part("Share of the CPUs' time that the host took.", default=None)
    foreign: float | None = part("Share that other programs had.", default=None)
    some_waited: dict[str, float] = part(
        "Pressure: share of the time that some task waited for cpu, io, memory.",
        default_factory=dict,
    )
    why: list[str] = part("Why the run counts as disturbed; empty if it does not.")


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A block device that a filesystem was made on."""

    name: str = part("Its name.")
    model: str | None = part("Its model.", default=None)
    size_bytes: int = part("Its size.", "bytes")
    rotational: bool = part("It rotates.")
    scheduler: str | None = part("Its scheduler.", default=None)
    write_cache: str | None = part("Its cache: write back or write through.", default=None)
    logical_block_bytes: int | None = part("Logical block.", "bytes", default=None)
    physical_block_bytes: int | None = part("Physical block.", "bytes", default=None)
    discards: bool | None = part("It takes discards.", default=None)
    trimmed: bool = part("It was trimmed before the run.")
    settled_ns: int | None = part("How long it was left alone after that.", "ns", default=None)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A call whose result was another one."""

    op: int | None = part("Number of the operation in the plan.", default=None)
    call: int | None = part("Row of the trace's syscalls; null if in no record.", default=None)
    thread_seq: str | None = part("thread:number of the call in the trace.")
    syscall: str = part("Its name.", default="")
    path: str | None = part("Its path.")
    recorded: int | None = part("Recorded result.", default=None)
    replayed: int | None = part("Result here.", default=None)
    reason: str = part("What the replayer says of it.", default="")


@dataclass(frozen=True, kw_only=True)
class Root:
    """A kind of first cause of other results."""

    cause: str = part("call: result instead of result.")
    syscall: str = part("Name of the call.", default="")
    recorded: str = part("Recorded result.", default="")
    replayed: str = part("Result here.", default="")
    path_class: str = part("Kind of file.")
    filesystem: str = part("Type that it happened on.")
    class_: str | None = part("Documented difference of the filesystem that it is; null if none.")
    source: str | None = part("Where that is documented.")
    n: int = part("How often.")
    followed: int = part("Other results that followed from these.")
    example: Example = part("One of them.")


@dataclass(frozen=True, kw_only=True)
class DivergenceCounts:
    """Other results by first cause."""

    roots: list[Root] = part("Kinds of first causes, the most frequent first.")
    kinds: int = part("How many kinds there are.", default=0)
    first_causes: int = part("Calls that are a first cause.", default=0)
    followed: int = part("Calls that followed from one.", default=0)
    of_filesystem: dict[str, int] = part(
        "Documented differences of the filesystem, by name.", default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class Divergences(DivergenceCounts):
    """Other results by first cause, and calls that were not made."""

    skipped: dict[str, int] = part("Calls not made, by call and reason.", default_factory=dict)
    listed: list[Example] = part("The first calls with another result.", default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One run; also an element of runs in replay.json."""

    version: int = part("Version of this contract.", default=0)
    candidate: str = part("Name of the candidate.")
    round: int = part("Round, from 1.", default=0)
    position: int | None = part("Place in the order of all runs, from 1.", default=None)
    fstype: str = part("Type of the filesystem; dir for a directory.", default="")
    device_model: str = part("Device model whose times were played.", default="")
    mkfs: str = part("Command that made it, without the device.", default="")
    journal_bytes: int = part("Size of a journal that lies apart; 0 for none.", "bytes", default=0)
    mount_options: str = part("Options that it was mounted with.", default="")
    durability: str = part("What a crash leaves, against the default.", default="same")
    on: list[str] = part("Layers below it.", default_factory=list)
    source: str = part("Where the candidate is documented.", default="")
    instead: str = part("What it stands for, if not for itself.", default="")
    pace: str = part("How calls were timed.", default="original")
    loop: str = part("open or closed, see the certificate.", default="open")
    realtime: bool = part("Tasks had real-time priority.", default=False)
    order: str = part("What a call waits for.", default="resource")
    start_epoch_ns: int | None = part("When it began, since the epoch.", "ns", default=None)
    makespan_ns: int | None = part("From begin to end of the run.", "ns", default=None)
    final_state: FinalState | None = part("The final tree.", default=None)
    orders_given_up: int = part("Waits for the recorded order that were given up.", default=0)
    locks_given_back: int = part("Locks given back to break a deadlock.", default=0)
    tasks_crashed: int = part("Tasks that died.", default=0)
    descriptors_passed: int = part("Descriptors sent by socket.", default=0)
    owners: bool | None = part("Owners were set as recorded.", default=None)
    listings: Listings | None = part("Directory listings.", default=None)
    cache: str = part("Caches at the start: recorded, cold, warm, as it was.", default="cold")
    workers: dict[str, Any] | None = part("Pool of workers; null if none.", default=None)
    compressible: int = part("Per cent of the data.", default=0)
    duplicate: int = part("Per cent of the files.", default=0)
    recorded: bool | None = part("The run was recorded.", default=None)
    what_if: WhatIf | None = part("What was left out on purpose.", default=None)
    kernel: str = part("Release of the kernel.", default="")
    machine: Machine | None = part("A machine booted for it; null if none.", default=None)
    syscalls: int = part("Calls in the trace that are asked for.", default=0)
    executed: int = part("Calls made for real.", default=0)
    divergent: int = part("Calls with another result.", default=0)
    of_filesystem: int = part("Calls with another result of the filesystem.", default=0)
    skipped: int = part("Calls not made.", default=0)
    lateness_p50_ns: int | None = part("Issue minus schedule, median.", "ns", default=None)
    lateness_p99_ns: int | None = part("Issue minus schedule, p99.", "ns", default=None)
    certificate: Certificate | None = part("Null in old replays.", default=None)
    wall_ns: int | None = part("Time of the whole run, mkfs to judging.", "ns", default=None)
    run: str = part("Its directory.", default="")
    faults: dict[str, int] = part("Page faults: recorded, touched again.", default_factory=dict)
    divergences: DivergenceCounts | None = part("Other results; not all kinds.", default=None)
    fixture: str = part("built, or copied from an image of an earlier round.", default="")
    age: Age | None = part("Null if it was not aged.", default=None)
    cached: Cached | None = part("What was in memory; null if not asked for.", default=None)
    xattrs: dict[str, int] = part("Extended attributes: set, skipped.", default_factory=dict)
    stand_ins: int = part("Sockets that stand for device nodes.", default=0)
    disturbance: Disturbance | None = part("What others did meanwhile.", default=None)
    repeated: list[Disturbance] = part(
        "What disturbed the runs in whose place this is.", default_factory=list
    )
    life: Life | None = part("From mkfs to the removal of all.", default=None)
    devices: list[Disk] = part("Block devices that it was made on.", default_factory=list)
    digests: dict[str, str] = part(
        "BLAKE2b of 16 bytes, in hex, of the run's files.", default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of a replay, besides candidates and pace."""

    order: str = part("What a call waits for.", default="resource")
    realtime: bool = part("Tasks get real-time priority.", default=False)
    workers: dict[str, Any] | None = part("Pool of workers.", default=None)
    cache: str = part("What is in memory at the start.", default="cold")
    compressible: int = part("Per cent of the data.", default=0)
    duplicate: int = part("Per cent of the files.", default=0)
    age: dict[str, Any] | None = part("Seed and factor of the churn.", default=None)
    recorded: bool | None = part("Runs are recorded.", default=None)
    whole_life: bool | None = part("Filesystems are checked and emptied.", default=None)
    devices: list[Any] = part("Identity of block devices.", default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """A replay of several runs; written again after every run."""

    version: int = part("Version of this contract.", default=0)
    trace: str = part("Where the trace lies, from the replay.", default="?")
    trace_identity: str | None = part("What tells the trace from others.", default=None)
    pace: str = part("How calls are timed.", default="original")
    rounds: int | None = part("Repetitions.", default=None)
    seed: int | None = part("Of the order of runs, and of copies of users.", default=None)
    reference: str | None = part("Candidate to hold the others against.", default=None)
    candidates: dict[str, dict[str, Any]] = part(
        "What each candidate is made of, by name.", default_factory=dict
    )
    order: list[str] | None = part("Directories of all runs, in order.", default=None)
    finished: bool | None = part("All runs are made.", default=None)
    what_if: WhatIf | None = part("What is left out on purpose.", default=None)
    complete: bool | None = part("The trace is complete.", default=None)
    kernel: str = part("Release of the kernel, or of all that are compared.", default="")
    machine: Machine | None = part("A machine booted for it.", default=None)
    plan: dict[str, Any] = part("What the plan holds, see plan.json.", default_factory=dict)
    asked: Asked | None = part("What else was asked for.", default=None)
    runs: list[RunResult] = part("The runs that are made, in order.")
    digest: str = part("Of replay.json itself, as in meta.json.", default="")


def read_replay_file(directory: Path) -> ReplayResult:
    """Return replay.json of a replay.

    Raises:
        SpoolscopeError: it is missing, damaged, or of a version that is not known.
    """
    return _read(ReplayResult, directory / REPLAY_FILE)


def read_run_file(directory: Path) -> RunResult:
    """Return run.json of a run; raises as ``read_replay_file`` does."""
    return _read(RunResult, directory / RUN_FILE)


def read_divergences(directory: Path) -> Divergences:
    """Return divergences.json of a run; raises as ``read_replay_file`` does."""
    return _read(Divergences, directory / DIVERGENCES_FILE)


def _read(kind: type[T], file: Path) -> T:
    try:
        value = json.loads(regular(file).read_text("utf-8"))
        if isinstance(value, dict):
            check_sealed(value)
            _check_version(value.get("version", 0), file)
        return decode(kind, value)
    except (OSError, ValueError) as error:
        raise damaged(file, error) from None


def _check_version(version: object, file: Path) -> None:
    if type(version) is not int or not 0 <= version <= VERSION:
        raise SpoolscopeError(
            f"{file} has results of version {version}, and {VERSION} is the newest known here",
            remedy="use the spoolscope that made them, or a newer one",
        )


def damaged(path: Path, error: object) -> SpoolscopeError:
    """Return the error for results that cannot be read."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return SpoolscopeError(f"replay output {path} is damaged: {line}", remedy="replay again")
