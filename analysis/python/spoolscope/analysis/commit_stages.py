"""Stages that look at commits: their parts, the waits for them, and which calls asked for them."""

from spoolscope.analysis.blame import charge_commits, name_triggers
from spoolscope.analysis.commit_parts import PARTS, lay_over_waits, number_commits, take_apart
from spoolscope.analysis.services import find_services
from spoolscope.analysis.stage import (
    CAUSE,
    FROM,
    TO,
    Made,
    Stage,
    columns,
    on,
)
from spoolscope.traces.schema import TABLES

_PART = ("", f"What it was doing, by number from 0: {', '.join(PARTS)}.")
_COMMIT = ("", "Number of the commit, from 1 in order of time.")
_WAIT = ("", "Number of the wait for a commit, from 1.")

COMMIT_STAGES: tuple[Stage, ...] = (
    Stage(
        "services",
        ("block_ios",),
        (
            Made(
                "services",
                "one stage of a block request",
                columns(
                    ("block_ios",),
                    "disk pid tid comm seq part from_ns to_ns",
                    disk=("", "Device or partition that a filesystem lies on."),
                    part=("", "queue, device, flush (waits for one) or disk_flush."),
                    from_ns=FROM,
                    to_ns=TO,
                ),
            ),
        ),
        on(find_services),
    ),
    Stage(
        "commit_spans",
        ("commits", "stacks"),
        (
            Made(
                "commit_spans",
                "one commit, numbered; a btrfs fsync that joined the log commit of another is none",
                columns(
                    ("commits",),
                    f"commit_id {' '.join(TABLES['commits'].schema.names)} from_ns to_ns "
                    "filesystem",
                    commit_id=_COMMIT,
                    from_ns=FROM,
                    to_ns=TO,
                    filesystem=("", "Whose rules explain it."),
                ),
            ),
        ),
        lambda work: number_commits(work.con, work.meta),
    ),
    Stage(
        "commit_parts",
        ("commits", "commit_spans", "segments", "stacks", "stack_causes", "services"),
        (
            Made(
                "commit_parts",
                "one interval of a commit; those of a commit add up to its length",
                columns(
                    (),
                    "commit_id from_ns to_ns part",
                    commit_id=_COMMIT,
                    from_ns=FROM,
                    to_ns=TO,
                    part=_PART,
                ),
            ),
        ),
        on(take_apart),
        inner=("absences", "watched_threads", "batch"),
    ),
    Stage(
        "wait_parts",
        ("commit_spans", "commit_parts", "absences", "named_waits"),
        (
            Made(
                "journal_waits",
                "one wait of a call for a commit",
                columns(
                    ("segments", "syscalls"),
                    "wait_id from_ns to_ns dur_ns pid tid seq dev cause filesystem",
                    wait_id=_WAIT,
                    from_ns=FROM,
                    to_ns=TO,
                    cause=CAUSE,
                    filesystem=("", "Whose rules explain it."),
                ),
            ),
            Made(
                "commit_waits",
                "one interval of such a wait in which a commit ran",
                columns(
                    ("segments",),
                    "wait_id cause pid tid seq commit_id from_ns to_ns is_last",
                    wait_id=_WAIT,
                    cause=CAUSE,
                    commit_id=_COMMIT,
                    from_ns=FROM,
                    to_ns=TO,
                    is_last=("", "It is the last commit that the wait met."),
                ),
            ),
            Made(
                "wait_parts",
                "time of such a wait by what the commit was doing; all of a wait add up to it",
                columns(
                    (),
                    "wait_id commit_id filesystem part ns",
                    wait_id=_WAIT,
                    commit_id=("", "The last commit that the wait met."),
                    filesystem=("", "Whose rules explain it."),
                    part=_PART,
                    ns=("ns", "Time."),
                ),
            ),
        ),
        on(lay_over_waits),
        inner=("commit_starts", "leading_commits", "commit_sums"),
    ),
    Stage(
        "commit_triggers",
        ("commit_spans", "waited", "paths"),
        (
            Made(
                "commit_triggers",
                "one commit, with the call that asked for it",
                columns(
                    ("syscalls", "paths"),
                    "commit_id charged comm pid tid seq syscall path_id path path_class mailbox",
                    commit_id=_COMMIT,
                    charged=("", "A call asked for it."),
                    comm=("", "What asked; in brackets what is known instead."),
                    path_class=("", "What the mail server uses the path for."),
                    mailbox=("", "Mailbox or queue that it belongs to."),
                ),
            ),
        ),
        on(name_triggers),
    ),
    Stage(
        "charges",
        ("commit_spans", "commit_waits", "commit_triggers"),
        (
            Made(
                "charges",
                "the commits that a process asked for by one call on one kind of file",
                columns(
                    ("syscalls",),
                    "charged comm pid syscall path_class mailbox n commit_ns own_ns others_ns "
                    "n_others",
                    charged=("", "A call asked for them."),
                    path_class=("", "What the mail server uses the path for."),
                    mailbox=("", "Mailbox or queue that it belongs to."),
                    n=("", "Commits."),
                    commit_ns=("ns", "Their length in sum."),
                    own_ns=("ns", "Time that the asking threads waited for them."),
                    others_ns=("ns", "Time that all others waited for them."),
                    n_others=("", "Waits of others."),
                ),
            ),
        ),
        on(charge_commits),
    ),
)
