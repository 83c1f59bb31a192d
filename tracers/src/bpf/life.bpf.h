/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Fork, exec, rename and exit of tasks: replay and path resolution follow them. */
#ifndef SPOOLSCOPE_LIFE_BPF_H
#define SPOOLSCOPE_LIFE_BPF_H

#include "emit.bpf.h"
#include "exits.bpf.h"
#include "target.bpf.h"

static __always_inline struct ring_task *task_event(struct task_struct *t, u32 event)
{
	struct ring_task *e = reserve(SPSC_KIND_TASK, sizeof(*e));

	if (!e)
		return NULL;
	__builtin_memset(&e->rec, 0, sizeof(e->rec));
	e->rec.ts_ns = bpf_ktime_get_ns();
	e->rec.event = event;
	e->rec.pid = BPF_CORE_READ(t, tgid);
	e->rec.tid = BPF_CORE_READ(t, pid);
	BPF_CORE_READ_STR_INTO(&e->rec.comm, t, comm);
	return e;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct task_state *from, *to;
	struct ring_task *e;

	from = bpf_task_storage_get(&tasks, parent, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (from && !from->decided)
		decide(parent, from);
	to = bpf_task_storage_get(&tasks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (from && to) {
		to->target = from->target;
		to->decided = from->decided;
	} else {
		count(COUNT_NO_STATE);
	}
	e = task_event(child, SPSC_TASK_FORK);
	if (!e)
		return 0;
	e->rec.parent_pid = parent->tgid;
	e->rec.parent_tid = parent->pid;
	e->rec.uid = BPF_CORE_READ(child, cred, fsuid.val);
	e->rec.gid = BPF_CORE_READ(child, cred, fsgid.val);
	e->rec.umask = BPF_CORE_READ(child, fs, umask);
	e->rec.mount_ns = mount_ns_of(child);
	if (BPF_CORE_READ(parent, files) == BPF_CORE_READ(child, files))
		e->rec.flags |= SPSC_TASK_SHARE_FILES;
	if (BPF_CORE_READ(parent, fs) == BPF_CORE_READ(child, fs))
		e->rec.flags |= SPSC_TASK_SHARE_FS;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *t, int old_pid, struct linux_binprm *bprm)
{
	struct task_state *st = state_of(t);
	struct ring_task *e;
	long n;

	if (st && filter_tasks && !st->target)
		st->decided = 0; /* a new program, perhaps a new cgroup: decide again */
	e = task_event(t, SPSC_TASK_EXEC);
	if (!e)
		return 0;
	e->rec.exe_ino = BPF_CORE_READ(bprm, file, f_inode, i_ino);
	e->rec.cgroup_id = bpf_get_current_cgroup_id();
	e->rec.mount_ns = mount_ns_of(t);
	n = bpf_probe_read_kernel_str(e->text, sizeof(e->text), BPF_CORE_READ(bprm, filename));
	e->head.len1 = n > 0 ? n - 1 : 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *t, const char *comm)
{
	struct task_state *st = state_of(t);
	struct ring_task *e;

	if (!st || !st->touched)
		return 0;
	e = task_event(t, SPSC_TASK_COMM);
	if (!e)
		return 0;
	bpf_probe_read_kernel_str(e->rec.comm, sizeof(e->rec.comm), comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_task_exit, struct task_struct *t)
{
	struct task_state *st = state_of(t);
	struct ring_task *e;

	if (st && st->call) { /* exit itself, or killed inside a call */
		if (st->certain)
			emit_call(t, st, 0, bpf_ktime_get_ns(), SPSC_CALL_IN_FLIGHT);
		st->call = 0;
	}
	if (st)
		st->exited = 1;
	e = task_event(t, SPSC_TASK_EXIT);
	if (!e) {
		keep_exit(t, st);
		return 0;
	}
	e->rec.n_calls = st ? st->n_calls : 0;
	e->rec.skipped = st ? st->skipped : 0;
	e->rec.exit_code = BPF_CORE_READ(t, exit_code);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
