"""Questions that a recording can answer, by the BPF programs that each one needs.

The questions are the same on every kernel; the answers depend on the programs that load there.
"""

from dataclasses import dataclass
from typing import Any

from spoolscope.traces.filesystems import FILESYSTEMS

YES, PARTLY, NO = "yes", "partly", "no"
JBD2 = tuple(kind.type for kind in FILESYSTEMS.values() if "jbd2_" in kind.symbols)


@dataclass(frozen=True)
class Question:
    """One thing that the operator of a slow mail spool wants to know.

    Attributes:
        name: Stable name for scripts.
        text: The question for readers.
        needs: Programs without which there is no answer.
        better: Programs without which the answer is coarser.
        coarser: How the answer is then coarser.
        filesystems: Filesystems for which it makes sense; empty: all.
    """

    name: str
    text: str
    needs: tuple[str, ...]
    better: tuple[str, ...] = ()
    coarser: str = ""
    filesystems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The answer to whether a recording can answer a question.

    Attributes:
        name: Name of the question.
        question: Its text.
        answer: "yes", "partly" or "no".
        reason: What is missing, why, and how to get it; "" for yes.
        unloaded: Only the module of the filesystem is not loaded; the kernel lacks nothing else.
        filesystems: Filesystems for which the question makes sense; empty: all.
    """

    name: str
    question: str
    answer: str
    reason: str = ""
    unloaded: bool = False
    filesystems: tuple[str, ...] = ()


QUESTIONS = (
    Question(
        "calls",
        "which calls, with arguments and results",
        ("on_enter", "on_exit"),
        better=("find_tops",),
        coarser="a spool has to be a mount point",
    ),
    Question(
        "processes",
        "which process made them, and which one forked it",
        ("on_fork", "on_exec", "on_task_exit"),
        better=("on_rename",),
        coarser="threads keep their first name",
    ),
    Question("open_files", "which files were open when it began", ("dump_open_files",)),
    Question(
        "under way",
        "calls that have not returned yet, for --freeze-on",
        ("dump_calls",),
    ),
    Question("loss", "which calls of which thread were lost, if any", ("dump_tasks",)),
    Question(
        "split",
        "how long each call ran, slept and waited for a CPU, exactly",
        ("on_switch", "on_waking"),
    ),
    Question("causes", "what it slept for, by kernel stack", ("on_switch", "on_waking")),
    Question(
        "wakers",
        "what ended the sleep: a process or a device",
        ("on_waking",),
        better=("on_irq_in", "on_irq_out", "on_softirq_in", "on_softirq_out"),
        coarser="interrupts are taken for the process they interrupted",
    ),
    Question(
        "lookups",
        "directory lookups: their waits for blocks and locks",
        ("on_switch", "on_waking"),
    ),
    Question(
        "commit_phases",
        "ext4: the phases of every journal commit",
        (
            "on_jbd2_start",
            "on_jbd2_locking",
            "on_jbd2_flushing",
            "on_jbd2_logging",
            "on_jbd2_end",
        ),
        better=("on_jbd2_stats",),
        coarser="without the blocks it wrote",
        filesystems=JBD2,
    ),
    Question(
        "commit_trigger",
        "ext4: which process asked for the commit",
        ("on_waking", "watch_kernel_threads"),
        filesystems=JBD2,
    ),
    Question(
        "handles",
        "ext4: whose handle the commit had to wait for",
        ("on_jbd2_handle",),
        filesystems=JBD2,
    ),
    Question(
        "checkpoints",
        "ext4: checkpoints, and what they freed of the log",
        ("on_jbd2_checkpoint", "on_jbd2_checkpoint_done", "on_jbd2_log_tail"),
        better=("on_jbd2_lock_stall",),
        coarser="without stalls on a buffer",
        filesystems=JBD2,
    ),
    Question(
        "xfs_log",
        "xfs: forces and writes of the log",
        ("on_xfs_log_force", "on_xfs_iclog_sync", "on_xfs_iclog_done"),
        filesystems=("xfs",),
    ),
    Question(
        "xfs_waits",
        "xfs: waits for the log, for space in it and for its pushes",
        ("on_xfs_iclog_wait", "on_xfs_grant_sleep", "on_xfs_cil_wait"),
        better=("on_xfs_ail_pinned", "on_xfs_ail_locked", "on_xfs_ail_flushing"),
        coarser="without what held up the writing back of metadata",
        filesystems=("xfs",),
    ),
    Question(
        "btrfs_log",
        "btrfs: writes of the log tree and commits",
        ("on_btrfs_sync_file", "on_btrfs_commit"),
        better=("on_btrfs_sync_fs", "on_btrfs_write"),
        coarser="without what a commit wrote, and which process asked for it",
        filesystems=("btrfs",),
    ),
    Question(
        "ordered_data",
        "btrfs: data that a log write had to wait for",
        ("on_btrfs_ordered", "on_btrfs_ordered_done"),
        filesystems=("btrfs",),
    ),
    Question(
        "lock_owners",
        "which thread had the lock in the kernel that a call waited for",
        ("on_contention", "on_contention_end"),
    ),
    Question(
        "file_locks",
        "which process had the lock on a file that a call waited for",
        ("on_posix_lock", "on_flock"),
    ),
    Question(
        "writeback",
        "waits for writeback, and throttling of writers",
        ("on_writeback_wait", "on_dirty_limit"),
    ),
    Question(
        "mapped_reads",
        "page faults on mapped files",
        ("on_fault_page",),
        better=("on_fault_around",),
        coarser="without the pages that a fault maps around its own",
    ),
    Question("mapped_writes", "pages written to through a mapping", ("on_fault_dirty",)),
    Question(
        "io_uring",
        "io_uring operations: files, offsets, results",
        ("on_uring_submit", "on_uring_complete"),
        better=("on_uring_async",),
        coarser="without telling those of worker threads apart",
    ),
    Question(
        "block",
        "block requests: time in the queue and in the device",
        ("on_rq_issue", "on_rq_complete"),
        better=("on_rq_insert", "on_io_start", "on_rq_requeue"),
        coarser="the time in the queue begins as the kernel's statistics have it",
    ),
    Question(
        "disks_below",
        "which request of a partition, dm or md a disk's request was made for",
        ("on_remap", "on_rq_issue", "on_rq_complete"),
    ),
    Question("samples", "what calls did while they ran, by samples", ("on_sample",)),
    Question(
        "workers",
        "what workers of the kernel did for the spool, and when they slept",
        ("on_work", "on_work_done", "on_switch", "on_waking"),
    ),
)


def answers(programs: dict[str, Any]) -> list[Answer]:
    """Answer every question for the ``programs`` of a survey or of a trace's meta.json."""
    return [_answer(question, programs) for question in QUESTIONS]


def _answer(question: Question, programs: dict[str, Any]) -> Answer:
    attached = set(programs.get("attached", []))
    instead: dict[str, str] = programs.get("instead", {})
    attached |= {name for name, stand_in in instead.items() if stand_in in attached}
    lacking = [name for name in question.needs if name not in attached]
    coarser = [name for name in question.better if name not in attached]
    missing: dict[str, str] = programs.get("missing", {})
    tried = [(p, *([instead[p]] if p in instead else [])) for p in lacking or coarser]
    # Several programs may lack the same thing: the reason is given once.
    reasons = dict.fromkeys(missing.get(p, f"no program {p}") for ways in tried for p in ways)
    reason = "; ".join(reasons)
    if coarser and not lacking:
        reason = f"{question.coarser}: {reason}"
    return Answer(
        question.name,
        question.text,
        NO if lacking else PARTLY if coarser else YES,
        reason,
        bool(lacking) and set(lacking) <= set(programs.get("unloaded", [])),
        question.filesystems,
    )
