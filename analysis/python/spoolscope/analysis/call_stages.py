"""Stages that look at calls: what they waited for, which thread had it, and where."""

from spoolscope.analysis.callers import time_callers
from spoolscope.analysis.claims import find_askers, find_phases, find_sleeps, find_turns
from spoolscope.analysis.cpu import label_samples, study_cpu
from spoolscope.analysis.culprits import find_culprits
from spoolscope.analysis.latency import sum_calls
from spoolscope.analysis.lookups import find_directory_waits
from spoolscope.analysis.split import find_waited, name_causes, name_waits, show_calls
from spoolscope.analysis.stack_rules import load_rules
from spoolscope.analysis.stacks import label_stacks
from spoolscope.analysis.stage import (
    CAUSE,
    FROM,
    SHOWN,
    TO,
    Made,
    Stage,
    Work,
    columns,
    on,
)
from spoolscope.traces.schema import TABLES


def _stacks(work: Work) -> None:
    label_stacks(work.con, load_rules() if work.rules is None else work.rules)


def _directories(work: Work) -> None:
    cpu = study_cpu(work)
    per_sample = cpu.exact_ns / cpu.samples if cpu and cpu.samples else None
    find_directory_waits(work.con, per_sample)


CALL_STAGES: tuple[Stage, ...] = (
    Stage(
        "stack_causes",
        ("stacks",),
        (
            Made(
                "stack_causes",
                "one kernel stack that a rule names",
                columns(
                    ("stacks",),
                    "stack_id cause filesystem",
                    cause=CAUSE,
                    filesystem=("", "That of the rule; any."),
                ),
            ),
        ),
        _stacks,
    ),
    Stage(
        "shown_calls",
        ("syscalls",),
        (
            Made(
                "shown_calls",
                "one call that is shown",
                columns(("syscalls",), " ".join(TABLES["syscalls"].schema.names)),
            ),
        ),
        lambda work: show_calls(work.con, work.shown),
    ),
    Stage(
        "waited",
        ("syscalls", "samples", "commits"),
        (
            Made(
                "waited",
                "one call that was not on the CPU all the time, syncs, or is named by a sample or "
                "a commit",
                columns(
                    ("syscalls",),
                    "ts_ns dur_ns oncpu_ns blocked_ns runq_ns preempted_ns stolen_ns pid tid seq "
                    "comm syscall dev path_id errno flags shown",
                    shown=SHOWN,
                ),
            ),
        ),
        lambda work: find_waited(work.con, work.shown),
    ),
    Stage(
        "call_totals",
        ("shown_calls", "waited"),
        (
            Made(
                "call_totals",
                "one name of a call, all that are shown in sum",
                columns(
                    ("syscalls",),
                    "syscall n n_done dur_ns oncpu_ns blocked_ns runq_ns preempted_ns stolen_ns "
                    "max_ns",
                    n=("", "Calls."),
                    n_done=("", "Calls that returned within the recording."),
                    max_ns=("ns", "The longest."),
                ),
            ),
        ),
        on(sum_calls),
        inner=("call_lengths",),
    ),
    Stage(
        "named_waits",
        ("segments", "waited", "stack_causes", "block_ios"),
        (
            Made(
                "named_waits",
                "one interval in which a call was blocked; those of a call add up to blocked_ns",
                columns(
                    ("segments", "syscalls"),
                    "call ts_ns dur_ns call_ns pid tid seq comm syscall dev path_id errno flags "
                    "stack_id cause filesystem waker waker_pid waker_tid waker_comm waker_seq "
                    "dir_id name_id placed shown",
                    call=("", "rowid of the call in waited."),
                    call_ns=("ns", "Start of the call, since the epoch."),
                    cause=CAUSE,
                    filesystem=("", "That of the rule; any."),
                    placed=("", "It is known when it was."),
                    shown=SHOWN,
                ),
            ),
        ),
        on(name_waits),
        inner=("covered",),
    ),
    Stage(
        "call_causes",
        ("syscalls", "named_waits"),
        (
            Made(
                "call_causes",
                "one cause of the time of one call; those of a call add up to its dur_ns",
                columns(
                    ("syscalls",),
                    "ts_ns pid tid seq comm syscall cause ns",
                    cause=CAUSE,
                    ns=("ns", "Time that went into it."),
                ),
            ),
        ),
        on(name_causes),
    ),
    Stage(
        "cpu_stacks",
        ("samples", "stacks"),
        (
            Made(
                "cpu_stacks",
                "one kernel stack that was sampled",
                columns(("stacks",), "stack_id class", **{"class": ("", "A class of CPU time.")}),
            ),
        ),
        on(label_samples),
    ),
    Stage(
        "callers",
        ("shown_calls", "waited", "named_waits"),
        tuple(
            Made(
                name,
                row,
                columns(
                    ("syscalls",),
                    f"{words} cause n ns",
                    cause=CAUSE,
                    n=("", "Calls; in the rows of the cause cpu."),
                    ns=("ns", "Time."),
                ),
            )
            for name, row, words in (
                ("process_causes", "the time of a process by cause", "pid comm"),
                ("path_causes", "the time of calls on a path by cause", "path_id"),
            )
        ),
        on(time_callers),
    ),
    Stage(
        "directory_waits",
        (
            "waited", "named_waits", "call_totals", "waits", "tree", "syscalls", "paths",
            "samples", "cpu_stacks", "stacks",
        ),
        (
            Made(
                "directory_waits",
                "what finding a name, or the lock of its directory, cost in a directory",
                columns(
                    (),
                    "dir spool cause name absent n ns",
                    dir=("", "The directory, below its spool."),
                    spool=("", "Index into meta.spools."),
                    cause=("", "lookup_io, dir_lock, or cpu (by samples)."),
                    name=("", "The name that was looked for."),
                    absent=("", "It was not there."),
                    n=("", "Waits or samples."),
                    ns=("ns", "Time."),
                ),
            ),
        ),
        _directories,
    ),
    Stage(
        "lock_turns",
        ("waits",),
        (
            Made(
                "lock_turns",
                "one interval in which a thread waited for a lock that another one had",
                columns(
                    ("waits",),
                    "turn victim dev ino from_ns to_ns pid tid comm seq via_tid mechanism evidence",
                    turn=("", "Number, from 1."),
                    victim=("", "Thread that waited."),
                    from_ns=FROM,
                    to_ns=TO,
                    pid=("", "Process that had it."),
                    tid=("", "Its thread."),
                    comm=("", "Its name, if the kernel gave it."),
                    seq=("", "seq of the call that it was in."),
                    via_tid=("", "Thread that had it for that one."),
                    mechanism=("", "lock_holder or file_lock."),
                    evidence=("", "recorded or inferred."),
                ),
            ),
        ),
        on(find_turns),
    ),
    Stage(
        "sleeps",
        ("segments", "threads", "commits", "stack_causes", "named_waits", "block_ios"),
        (),
        on(find_sleeps),
        inner=("kernel_sleeps", "all_sleeps"),
    ),
    Stage(
        "guilty_phases",
        ("commit_spans", "commit_parts", "named_waits", "stacks", "syscalls"),
        (),
        on(find_phases),
        inner=("guilty_phases",),
    ),
    Stage(
        "asked",
        ("leading_commits", "commit_triggers", "commit_spans"),
        (),
        on(find_askers),
        inner=("asked",),
    ),
    Stage(
        "edges",
        (
            "segments", "threads", "commits", "syscalls", "waited", "services", "all_sleeps",
            "lock_turns", "guilty_phases", "asked", "block_ios", "kernel_sleeps",
        ),
        (
            Made(
                "edges",
                "one interval in which a call waited for another thread (hop 1), or that thread "
                "for a third one meanwhile",
                columns(
                    (),
                    "edge_id hop parent_id from_ns to_ns victim_pid victim_tid victim_comm "
                    "victim_seq victim_syscall victim_path_id cause mechanism culprit_pid "
                    "culprit_tid culprit_comm culprit_seq culprit_syscall culprit_path_id evidence",
                    edge_id=("", "Number, from 1."),
                    hop=("", "1: a call waits; more: its culprit waits."),
                    parent_id=("", "The edge whose culprit waits."),
                    from_ns=FROM,
                    to_ns=TO,
                    cause=CAUSE,
                    mechanism=("", "How the culprit kept it waiting; null where nobody did."),
                    evidence=("", "recorded or inferred."),
                    **{
                        f"{who}_{what}": ("", f"{meaning} of the {role}.")
                        for who, role in (("victim", "one that waits"), ("culprit", "culprit"))
                        for what, meaning in (
                            ("pid", "Process"), ("tid", "Thread"), ("comm", "Name"),
                            ("seq", "seq of the call"), ("syscall", "Call"),
                            ("path_id", "Path of the call (paths.path_id)"),
                        )
                    },
                ),
            ),
        ),
        on(find_culprits),
        inner=(
            "sleep_pieces", "sleeps", "claims", "cpu_waits", "hops", "asleep",
        ),
    ),
)  # fmt: skip
