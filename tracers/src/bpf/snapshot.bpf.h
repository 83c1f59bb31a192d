/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * State that existed before, or is left after, the stream of events: read once
 * through BPF iterators, which write plain records to a file descriptor.
 */
#ifndef SPOOLSCOPE_SNAPSHOT_BPF_H
#define SPOOLSCOPE_SNAPSHOT_BPF_H

#include "files.bpf.h"
#include "watch.bpf.h"

struct seq_file;

struct open_file_line {
	struct spsc_open_file rec; /* rec.path = bytes of text in use */
	char text[PATH_LONG];
};

/* index 0: the place where one iterator line is assembled. One reader at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct open_file_line);
} line SEC(".maps");

/* O_CLOEXEC belongs to the descriptor, not to f_flags. */
static __always_inline u32 cloexec_of(struct task_struct *t, u32 fd)
{
	unsigned long *bits = BPF_CORE_READ(t, files, fdt, close_on_exec);
	unsigned long word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), bits + fd / 64);
	return word >> (fd % 64) & 1 ? O_CLOEXEC : 0;
}

/* Addresses of the recorder's own open files, which its child processes inherit. */
u64 top_files[MAX_SPOOLS];

static __always_inline bool is_ours(struct file *f)
{
	for (u32 i = 0; i < MAX_SPOOLS && i < n_spools; i++)
		if (top_files[i] == (u64)f)
			return true;
	return false;
}

SEC("iter/task_file")
int dump_open_files(struct bpf_iter__task_file *ctx)
{
	struct open_file_line *out;
	struct file *f = ctx->file;
	struct task_struct *t = ctx->task;
	u32 zero = 0;
	long n;

	if (!f || !t || !file_on_spool(f, dev_of(inode_of(f))) || is_ours(f))
		return 0;
	out = bpf_map_lookup_elem(&line, &zero);
	if (!out)
		return 0;
	/* Descriptions differ by address, which is a number only when read back: the verifier
	 * allows no arithmetic on pointers. */
	*(struct file *volatile *)&out->rec.ino = f;
	out->rec.description = *(volatile u64 *)&out->rec.ino >> 6;
	out->rec.ts_ns = bpf_ktime_get_ns();
	out->rec.ino = BPF_CORE_READ(f, f_inode, i_ino);
	out->rec.pos = BPF_CORE_READ(f, f_pos);
	out->rec.size = BPF_CORE_READ(f, f_inode, i_size);
	out->rec.pid = t->tgid;
	out->rec.tid = t->pid;
	out->rec.fd = ctx->fd;
	out->rec.flags = BPF_CORE_READ(f, f_flags) | cloexec_of(t, ctx->fd);
	out->rec.dev = dev_of(inode_of(f));
	out->rec.mode = BPF_CORE_READ(f, f_inode, i_mode);
	n = bpf_d_path(&f->f_path, out->text, sizeof(out->text));
	out->rec.path = n > 0 ? n - 1 : 0;
	bpf_seq_write(ctx->meta->seq, out, sizeof(*out));
	return 0;
}

/* Note the superblocks of the spools, whose root directories the recorder holds: mounted.bpf.h. */
static long note_block(u32 i, struct descriptors *own)
{
	struct file *f = (struct file *)MEMBER(struct hlist_head, own->first + i, first);
	struct super_block *block;
	s32 spool;

	if (!f)
		return 0;
	block = MEMBER(struct inode, inode_of(f), i_sb);
	spool = spool_index(MEMBER(struct super_block, block, s_dev));
	/* An address as a number, as above. */
	if (spool >= 0 && spool < MAX_SPOOLS)
		bpf_probe_read_kernel(&spool_blocks[spool], sizeof(u64), &block);
	return 0;
}

/* Note the directories that the recorder has open as spools. */
SEC("iter/task_file")
int find_tops(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *f = ctx->file;

	if (!f || !t || t->tgid != self_pid)
		return 0;
	for (u32 i = 0; i < MAX_SPOOLS && i < n_spools; i++)
		if (spools[i].part && spools[i].top_fd == ctx->fd) {
			*(struct inode *volatile *)&tops[i] = f->f_inode;
			*(struct file *volatile *)&top_files[i] = f;
		}
	return 0;
}

/* Watch kernel threads that do a journal's work: their switches are recorded too. */
SEC("iter/task")
int watch_kernel_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct descriptors own = {};
	struct spsc_task rec = {};
	struct task_state *st;
	u8 watch = 0;

	if (t && t->tgid == self_pid) {
		own.first = untrusted(t)->files->fdt->fd;
		bpf_loop(untrusted(t)->files->fdt->max_fds, note_block, &own, 0);
	}
	if (!t || !(t->flags & PF_KTHREAD))
		return 0;
	BPF_CORE_READ_STR_INTO(&rec.comm, t, comm);
	watch = watch_kind(rec.comm);
	if (!watch)
		return 0;
	st = bpf_task_storage_get(&tasks, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!st)
		return 0;
	st->watched = watch;
	st->decided = 1;
	rec.ts_ns = st->last_ns = bpf_ktime_get_ns();
	rec.event = SPSC_TASK_WATCHED;
	rec.flags = SPSC_TASK_KTHREAD;
	rec.pid = t->tgid;
	rec.tid = t->pid;
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	return 0;
}

/* Write the last record of each thread that has not reported its exit: its number of calls, and
 * if it is in one now. */
SEC("iter/task")
int dump_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct spsc_task rec = {};
	struct task_state *st;

	if (!t)
		return 0;
	st = bpf_task_storage_get(&tasks, t, 0, 0);
	/* A thread may end while programs are detached, and is not waited for yet. */
	if (!st || !st->n_calls || st->exited)
		return 0;
	rec.ts_ns = bpf_ktime_get_ns();
	rec.event = SPSC_TASK_END;
	rec.n_calls = st->n_calls;
	rec.skipped = st->skipped;
	rec.pid = t->tgid;
	rec.tid = t->pid;
	rec.flags = st->call && st->certain ? SPSC_TASK_IN_CALL : 0;
	BPF_CORE_READ_STR_INTO(&rec.comm, t, comm);
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	return 0;
}

#endif
