#!/usr/bin/python3
#
# spooltop  file system calls on one mount, by process, with the reasons of their waits.
#           For Linux, uses BCC, eBPF.
#
# USAGE: spooltop.py [-h] [-p PID] [-c COMM] [-d MOUNT] [-C] [-r MAXROWS] [interval] [count]
#
# It uses tracepoints only, so it needs no kprobes. The calls are those of traces/calls.txt, two
# directories above.
#
# SPDX-License-Identifier: Apache-2.0
"""Calls on the spool by process: number, time, and reasons of blocking."""

import os
from pathlib import Path
from typing import Any

from bcctop import BTF, fail, load, milliseconds, options, refresh
from btf import Btf

EXAMPLES = """examples:
    ./spooltop -d /srv/mail       # calls on this mount, 1 second refresh
    ./spooltop -C -d /srv/mail    # don't clear the screen
    ./spooltop -d /srv/mail 5 10  # 5 second summaries, 10 times only
    ./spooltop -p 185             # this process, on the working directory's mount
    ./spooltop -c imap            # processes of this name only
"""

TABLE = Path(__file__).resolve().parents[2] / "traces" / "calls.txt"
# Calls that are counted, by class; those of ioctl are mostly none of the filesystem.
CLASSES = ("open", "data", "meta", "dir", "sync", "lock")
NOT_COUNTED = ("-", "clone")


def places(table: str) -> dict[str, str]:
    """Return where each call has its descriptor or directory (d) and its path (p).

    Of two paths the new one counts.

    Args:
        table: The text of calls.txt.
    """
    found = {}
    for line in table.splitlines():
        if not line[:1].isdigit():
            continue
        _, name, klass, kind, _, _, *args = line.split()
        last = {"fd": "d", "dirfd2" if "path2" in args else "dirfd": "d"}
        last |= {"path2" if "path2" in args else "path": "p"}
        where = "".join(last.get(word, "-") for word in args).rstrip("-")
        if klass in CLASSES and kind not in NOT_COUNTED and where:
            found[name] = where
    return found


if not TABLE.exists():
    fail(f"{TABLE} is missing: run spooltop where it lies in the sources")
CALLS = places(TABLE.read_text())

# Functions that are on the stack of every sleep, or show only the kind of sleep.
GENERIC = (
    "__traceiter", "bpf_", "perf_trace", "trace_", "__schedule", "schedule", "io_schedule",
    "bit_wait", "__wait_on_bit", "out_of_line_wait", "wait_for_completion", "__wait_on_buffer",
    "folio_wait_bit", "wait_on_page", "__lock_buffer", "submit_bio_wait", "rwsem_down",
    "__mutex_lock", "mutex_lock", "down_write", "down_read", "__down_", "wait_woken",
    "__wait_for_common", "preempt_schedule", "__cond_resched", "wait_on_bit",
)  # fmt: skip

PROGRAM = r"""
#include <linux/sched.h>

struct call_t {
    u64 start, out, blocked, runq, longest, path;
    s32 dir, stack, why;
    u8 woken;
};

struct who_t {
    u32 pid;
    s32 why;              /* -1 in the rows of processes */
    char comm[TASK_COMM_LEN];
};

struct sum_t {
    u64 calls, total, longest, blocked, runq;
};

BPF_HASH(calls, u32, struct call_t, 65536);
BPF_HASH(sums, struct who_t, struct sum_t, 65536);
BPF_STACK_TRACE(stacks, 16384);

static u64 pointer_at(u64 object, u32 offset)
{
    u64 value = 0;

    bpf_probe_read_kernel(&value, sizeof(value), (void *)(object + offset));
    return value;
}

static u32 device_of_file(u64 task, s32 fd)
{
    u64 table = pointer_at(pointer_at(task, TASK_FILES), FILES_FDT);
    u64 file, inode;
    u32 size = pointer_at(table, FDTABLE_MAX), dev = 0;

    if (fd < 0 || fd >= size)
        return 0;
    file = pointer_at(pointer_at(table, FDTABLE_FD) + 8 * (u64)fd, 0);
    if (!file)
        return 0;
    inode = pointer_at(file, FILE_INODE);
    bpf_probe_read_kernel(&dev, sizeof(dev), (void *)(pointer_at(inode, INODE_SB) + SB_DEV));
    return dev;
}

static u32 device_of_cwd(u64 task)
{
    u64 dentry = pointer_at(pointer_at(task, TASK_FS), FS_PWD_DENTRY);
    u32 dev = 0;

    bpf_probe_read_kernel(&dev, sizeof(dev), (void *)(pointer_at(dentry, DENTRY_SB) + SB_DEV));
    return dev;
}

/* The mount point, then the end or a slash. A branch for each byte is too much for the verifier. */
static int below_mount(const char *head)
{
    char next = head[MOUNT_LENGTH];
    u8 differs = 0;

    MOUNT_COMPARED
    return !differs && (next == 0 || next == '/');
}

static int on_mount(struct call_t *call)
{
    u64 task = bpf_get_current_task();
    char head[MOUNT_LENGTH + 2] = {};

    if (call->path) {
        bpf_probe_read_user_str(head, sizeof(head), (void *)call->path);
        if (head[0] == '/')
            return below_mount(head);
    }
    if (call->dir == -100)
        return device_of_cwd(task) == MOUNT_DEVICE;
    return device_of_file(task, call->dir) == MOUNT_DEVICE;
}

TRACEPOINT_PROBE(raw_syscalls, sys_enter)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct call_t call = {.dir = -100, .why = -1};

    if (ONLY_PID && bpf_get_current_pid_tgid() >> 32 != ONLY_PID)
        return 0;
    switch (args->id) {
    SWITCH_OF_CALLS
    default:
        return 0;
    }
    call.start = bpf_ktime_get_ns();
    calls.update(&tid, &call);
    return 0;
}

TRACEPOINT_PROBE(sched, sched_switch)
{
    u32 prev = args->prev_pid, next = args->next_pid;
    struct call_t *call = calls.lookup(&prev);
    u64 now = bpf_ktime_get_ns();

    if (call) {
        call->out = now;
        /* 256 is "R+": preempted */
        call->woken = args->prev_state == 0 || args->prev_state == 256;
        if (!call->woken)
            call->stack = stacks.get_stackid(args, 0);
    }
    call = calls.lookup(&next);
    if (call && call->out) {
        call->runq += now - call->out;
        call->out = 0;
    }
    return 0;
}

/* Raw: an interrupt may wake while another program runs here, and tracepoints skip theirs then. */
RAW_TRACEPOINT_PROBE(sched_waking)
{
    u64 now = bpf_ktime_get_ns(), slept;
    struct call_t *call;
    u32 tid = 0;

    bpf_probe_read_kernel(&tid, sizeof(tid), (void *)(ctx->args[0] + TASK_PID));
    call = calls.lookup(&tid);
    if (!call || !call->out || call->woken)
        return 0;
    slept = now - call->out;
    call->blocked += slept;
    if (slept > call->longest) {
        call->longest = slept;
        call->why = call->stack;
    }
    call->out = now;
    call->woken = 1;
    return 0;
}

static void add(struct who_t *who, u64 took, struct call_t *call)
{
    struct sum_t zero = {}, *sum = sums.lookup_or_try_init(who, &zero);

    if (!sum)
        return;
    lock_xadd(&sum->calls, 1);
    lock_xadd(&sum->total, took);
    lock_xadd(&sum->blocked, call->blocked);
    lock_xadd(&sum->runq, call->runq);
    if (took > sum->longest)
        sum->longest = took;
}

TRACEPOINT_PROBE(raw_syscalls, sys_exit)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct call_t *call = calls.lookup(&tid);
    struct who_t who = {.pid = bpf_get_current_pid_tgid() >> 32, .why = -1};
    u64 took;

    if (!call)
        return 0;
    took = bpf_ktime_get_ns() - call->start;
    if (on_mount(call)) {
        bpf_get_current_comm(who.comm, sizeof(who.comm));
        add(&who, took, call);
        if (call->blocked && call->why >= 0) {
            who.why = call->why;
            add(&who, took, call);
        }
    }
    calls.delete(&tid);
    return 0;
}
"""

HEADING = (
    f"{'PID':<6} {'COMM':<15} {'CALLS':>6} {'TOTALms':>7} {'MAXms':>6} {'BLKms':>6} {'RUNQms':>6}"
    " TOPWAIT"
)


def switch_of_calls(numbers: dict[bytes, int]) -> str:
    """Return C code that notes descriptor and path of each call, by its number here."""
    cases = []
    for name, where in CALLS.items():
        if (number := numbers.get(name.encode())) is None:
            continue
        notes = {"d": "call.dir = args->args[{}];", "p": "call.path = args->args[{}];", "-": ""}
        note = " ".join(notes[what].format(i) for i, what in enumerate(where))
        cases.append(f"case {number}: {note} break;")
    return "\n    ".join(cases)


def program(mount: Path, pid: int) -> str:
    """Return the BPF program for one mount; ``pid`` 0 is every process."""
    from bcc.syscall import syscalls

    kernel = Btf(BTF)
    raw = os.fsencode(mount)
    dev = mount.stat().st_dev
    text = PROGRAM
    for name, value in {
        "SWITCH_OF_CALLS": switch_of_calls({name: n for n, name in syscalls.items()}),
        "MOUNT_COMPARED": "\n    ".join(
            f"differs |= (u8)head[{i}] ^ {c};" for i, c in enumerate(raw)
        ),
        "MOUNT_DEVICE": os.major(dev) << 20 | os.minor(dev),
        "MOUNT_LENGTH": len(raw),
        "ONLY_PID": pid,
        "TASK_FILES": kernel.offset("task_struct", "files"),
        "TASK_PID": kernel.offset("task_struct", "pid"),
        "TASK_FS": kernel.offset("task_struct", "fs"),
        "FILES_FDT": kernel.offset("files_struct", "fdt"),
        "FDTABLE_MAX": kernel.offset("fdtable", "max_fds"),
        "FDTABLE_FD": kernel.offset("fdtable", "fd"),
        "FILE_INODE": kernel.offset("file", "f_inode"),
        "INODE_SB": kernel.offset("inode", "i_sb"),
        "SB_DEV": kernel.offset("super_block", "s_dev"),
        "FS_PWD_DENTRY": kernel.offset("fs_struct", "pwd") + kernel.offset("path", "dentry"),
        "DENTRY_SB": kernel.offset("dentry", "d_sb"),
    }.items():
        text = text.replace(name, str(value))
    return text


def cause(bpf: Any, stack: int) -> str:
    """Name the innermost function that shows the reason of a sleep."""
    frames = [bpf.ksym(address).decode() for address in bpf["stacks"].walk(stack)]
    return next((f for f in frames if not f.startswith(GENERIC)), frames[0] if frames else "?")


def main() -> None:
    """Trace until Ctrl-C or the last output."""
    parser = options(
        "File system calls on one mount, by process", EXAMPLES, "mount point, default that of $PWD"
    )
    args = parser.parse_args()
    mount = Path(args.device or ".").resolve()
    while not args.device and not mount.is_mount():
        mount = mount.parent
    if not mount.is_mount():
        fail(f"{mount} is not a mount point: see findmnt -T {mount}")
    if not BTF.exists():
        fail("this kernel has no BTF: it needs CONFIG_DEBUG_INFO_BTF")
    if len(os.fsencode(mount)) > 200:
        fail("the mount point has more than 200 characters: mount --bind it to a shorter one")
    text = program(mount, args.pid or 0)
    if args.ebpf:
        print(text)
        return
    bpf = load(text)

    def rows() -> list[str]:
        processes, waits = {}, {}
        for who, sums in bpf["sums"].items():
            key = (who.pid, who.comm.decode("utf-8", "replace"))
            if args.comm not in (None, key[1]):
                continue
            if who.why < 0:
                processes[key] = sums
            elif sums.blocked > waits.get(key, (0, 0))[0]:
                waits[key] = (sums.blocked, who.why)
        causes = {key: cause(bpf, why) for key, (_, why) in waits.items()}
        bpf["sums"].clear()
        bpf["stacks"].clear()
        ordered = sorted(processes.items(), key=lambda item: item[1].total, reverse=True)
        return [
            f"{pid:<6} {comm:<15} {s.calls:>6} {milliseconds(s.total):>7}"
            f" {milliseconds(s.longest):>6} {milliseconds(s.blocked):>6}"
            f" {milliseconds(s.runq):>6} {causes.get((pid, comm), '-'):.20}"
            for (pid, comm), s in ordered
        ]

    refresh(args, HEADING, rows)


if __name__ == "__main__":
    main()
