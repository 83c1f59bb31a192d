#!/usr/bin/python3
#
# kjournaltop  work of the journals of ext3 and ext4, by the process that causes it.
#              For Linux, uses BCC, eBPF.
#
# USAGE: kjournaltop.py [-h] [-p PID] [-c COMM] [-d DISK] [-C] [-r MAXROWS] [interval] [count]
#
# It uses tracepoints only and reads no member of a kernel structure, so it needs no kprobes. The
# comment at the top of commitblame.bt describes how a commit is charged, which is the same here.
#
# SPDX-License-Identifier: Apache-2.0
"""Work of jbd2 by process: commits asked for, handles, blocks, waits and their causes."""

from contextlib import suppress
from pathlib import Path

from bcctop import fail, load, milliseconds, options, refresh

EXAMPLES = """examples:
    ./kjournaltop            # who makes the journals work, 1 second refresh
    ./kjournaltop -C         # don't clear the screen
    ./kjournaltop 5 10       # 5 second summaries, 10 times only
    ./kjournaltop -d sda1    # the journal of this disk only
    ./kjournaltop -p 185     # this process only
    ./kjournaltop -c imap    # processes of this name only
"""

PROGRAM = r"""
#include <linux/sched.h>

typedef unsigned int tid_t; /* of jbd2, in the fields of its tracepoints */

struct who_t {
    u32 pid;
    u32 dev;
    char comm[TASK_COMM_LEN];
};

struct work_t {
    u64 commits, handles, blocks, waited_ns, caused_ns;
};

/* A journal thread. */
struct journal_t {
    u32 dev;
    u32 pid;              /* who asked for the commit under way, or to come */
    char comm[TASK_COMM_LEN];
    u8 busy, asked, known, ended;
};

/* A sleeper. */
struct sleep_t {
    u64 out_ns;
    u32 pid;
};

BPF_HASH(works, struct who_t, struct work_t);
BPF_HASH(journals, u32, struct journal_t);
BPF_HASH(sleeps, u32, struct sleep_t, 65536);
BPF_PERCPU_ARRAY(timers, u64, 1);

static struct work_t *work_of(u32 pid, u32 dev, const char *comm)
{
    struct who_t who = {.pid = pid, .dev = dev};
    struct work_t zero = {};

    __builtin_memcpy(who.comm, comm, sizeof(who.comm));
    return works.lookup_or_try_init(&who, &zero);
}

static struct work_t *my_work(u32 dev)
{
    char comm[TASK_COMM_LEN] = {};

    bpf_get_current_comm(comm, sizeof(comm));
    return work_of(bpf_get_current_pid_tgid() >> 32, dev, comm);
}

static int timer_runs(void)
{
    int zero = 0;
    u64 *on = timers.lookup(&zero);

    return on && *on;
}

static int set_timer(u64 on)
{
    int zero = 0;
    u64 *now = timers.lookup(&zero);

    if (now)
        *now = on;
    return 0;
}

/* Timers run in soft interrupts (vector 1), upon whatever task was running. */
TRACEPOINT_PROBE(irq, softirq_entry)
{
    return args->vec == 1 ? set_timer(1) : 0;
}

TRACEPOINT_PROBE(irq, softirq_exit)
{
    return args->vec == 1 ? set_timer(0) : 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_handle_stats)
{
    struct work_t *work = my_work(args->dev);

    if (work) {
        lock_xadd(&work->handles, 1);
        /* The kernel tells less than none at times: credits asked for, less those it counts. */
        if (args->dirtied_blocks > 0)
            lock_xadd(&work->blocks, args->dirtied_blocks);
    }
    return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_start_commit)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct journal_t zero = {}, *journal = journals.lookup_or_try_init(&tid, &zero);
    struct work_t *work;

    if (!journal)
        return 0;
    journal->dev = args->dev;
    journal->busy = 1;
    journal->ended = 0;
    journal->known = journal->asked;
    journal->asked = 0;
    if (!journal->known) {
        __builtin_memset(journal->comm, 0, sizeof(journal->comm));
        journal->pid = 0;
        return 0;
    }
    work = work_of(journal->pid, journal->dev, journal->comm);
    if (work)
        lock_xadd(&work->commits, 1);
    return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_end_commit)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct journal_t *journal = journals.lookup(&tid);

    if (journal)
        journal->ended = 1;
    return 0;
}

/* The idle journal thread is woken: who does it asks for a commit. */
static int asked(u32 tid)
{
    struct journal_t zero = {}, *journal = journals.lookup_or_try_init(&tid, &zero);

    if (!journal || journal->busy)
        return 0;
    journal->asked = 1;
    if (timer_runs()) {
        __builtin_memset(journal->comm, 0, sizeof(journal->comm));
        __builtin_memcpy(journal->comm, "(timer)", 8);
        journal->pid = 0;
        return 0;
    }
    journal->pid = bpf_get_current_pid_tgid() >> 32;
    bpf_get_current_comm(journal->comm, sizeof(journal->comm));
    return 0;
}

/* A journal thread ends somebody's sleep. */
static void waited(struct journal_t *journal, struct sleep_t *slept, const char *comm)
{
    u64 ns = bpf_ktime_get_ns() - slept->out_ns;
    struct work_t *work;

    /* No waking asked for this commit: then who was the first to wait for its end. */
    if (journal->ended && !journal->known) {
        journal->known = 1;
        journal->pid = slept->pid;
        __builtin_memcpy(journal->comm, comm, sizeof(journal->comm));
        work = work_of(journal->pid, journal->dev, journal->comm);
        if (work)
            lock_xadd(&work->commits, 1);
    }
    work = work_of(slept->pid, journal->dev, comm);
    if (work)
        lock_xadd(&work->waited_ns, ns);
    work = work_of(journal->pid, journal->dev, journal->comm);
    if (work)
        lock_xadd(&work->caused_ns, ns);
}

TRACEPOINT_PROBE(sched, sched_waking)
{
    u32 waker = bpf_get_current_pid_tgid(), tid = args->pid;
    struct journal_t *journal;
    struct sleep_t *slept;
    char comm[TASK_COMM_LEN] = {};

    __builtin_memcpy(comm, args->comm, sizeof(comm));
    if (comm[0] == 'j' && comm[1] == 'b' && comm[2] == 'd' && comm[3] == '2' && comm[4] == '/')
        return asked(tid);
    journal = journals.lookup(&waker);
    slept = sleeps.lookup(&tid);
    if (journal && slept && !timer_runs())
        waited(journal, slept, comm);
    return 0;
}

/* prev_state: 1 interruptible, 2 uninterruptible; a worker that idles would be 128. */
TRACEPOINT_PROBE(sched, sched_switch)
{
    u32 prev = args->prev_pid, next = args->next_pid;
    struct journal_t *journal = journals.lookup(&prev);
    struct sleep_t slept = {};

    if (journal && args->prev_state == 2)
        journal->busy = 1;
    if (journal && args->prev_state == 1)
        journal->busy = 0;
    if (!journal && args->prev_state == 2) {
        slept.out_ns = bpf_ktime_get_ns();
        slept.pid = bpf_get_current_pid_tgid() >> 32;
        sleeps.update(&prev, &slept);
    }
    sleeps.delete(&next);
    return 0;
}
"""

HEADING = (
    f"{'PID':<7} {'COMM':<16} {'DISK':<9} {'COMMITS':>7} {'HANDLES':>8} {'BLOCKS':>8}"
    f" {'WAITms':>8} {'CAUSEDms':>8}"
)


def disks() -> dict[int, str]:
    """Return the names of block devices by the kernel's device number."""
    names = {}
    for number in Path("/sys/class/block").glob("*/dev"):
        with suppress(OSError):  # it goes away meanwhile
            major, minor = map(int, number.read_text().split(":"))
            names[major << 20 | minor] = number.parent.name
    return names


def main() -> None:
    """Trace until Ctrl-C or the last output."""
    args = options(
        "Who makes the journals of ext3 and ext4 work", EXAMPLES, "the journal of this disk only"
    ).parse_args()
    if args.ebpf:
        print(PROGRAM)
        return
    disk = Path(args.device).name if args.device else None
    if disk and disk not in disks().values():
        fail(f"no disk {disk}: see lsblk")
    tracing = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
    if any((t / "events").is_dir() for t in tracing) and not any(
        (t / "events/jbd2").is_dir() for t in tracing
    ):
        fail("this kernel has no jbd2: no ext3 or ext4 is mounted")
    works = load(PROGRAM)["works"]

    def rows() -> list[str]:
        names = disks()
        found = []
        for who, work in works.items():
            where, comm = names.get(who.dev, "?"), who.comm.decode("utf-8", "replace") or "?"
            if disk not in (None, where) or args.comm not in (None, comm):
                continue
            if args.pid not in (None, who.pid):
                continue
            order = (work.commits, work.caused_ns, work.handles)
            row = (
                f"{who.pid:<7} {comm:<16} {where:<9} {work.commits:>7} {work.handles:>8}"
                f" {work.blocks:>8} {milliseconds(work.waited_ns):>8}"
                f" {milliseconds(work.caused_ns):>8}"
            )
            found.append((order, row))
        works.clear()
        return [row for _, row in sorted(found, reverse=True)]

    refresh(args, HEADING, rows)


if __name__ == "__main__":
    main()
