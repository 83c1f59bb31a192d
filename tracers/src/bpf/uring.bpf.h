/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * io_uring operations on files of a spool: one record each, written at completion.
 *
 * At submission the entry of the queue is read again: only there do all operations have their
 * offset and length. The program may have changed it since; then opcode and user_data disagree and
 * offset and length are left unknown. A file given by descriptor is judged at once; a registered
 * file, and the file that an open returns, at completion. Operations on names are judged by their
 * path as calls are; the name itself is not recorded.
 *
 * The tracepoint was called io_uring_submit_sqe before v6.4: see uring_older.bpf.h. Where
 * these programs do not load, nothing of io_uring is recorded.
 */
#ifndef SPOOLSCOPE_URING_BPF_H
#define SPOOLSCOPE_URING_BPF_H

#include "emit.bpf.h"
#include "target.bpf.h"

/* include/uapi/linux/io_uring.h */
#define IORING_SETUP_SQE128 (1U << 10)
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#define IOSQE_FIXED_FILE (1U << 0)
#define IOSQE_CQE_SKIP_SUCCESS (1U << 6)

enum uring_op {
	URING_OPENAT = 18,
	URING_STATX = 21,
	URING_OPENAT2 = 28,
	URING_RENAMEAT = 35,
	URING_UNLINKAT = 36,
	URING_MKDIRAT = 37,
	URING_SYMLINKAT = 38,
	URING_LINKAT = 39,
};

struct uring_sqe {
	u8 opcode;
	u8 flags;
	u16 ioprio;
	s32 fd;
	u64 off; /* or the address of a second path */
	u64 addr;
	u32 len;
	u32 op_flags;
	u64 user_data;
};

struct ring_uring {
	struct ring_head head;
	struct spsc_uring rec;
};

/* key: address of the request; value: its record so far; deleted when it is done.
 * Full: the operation is not recorded and counted as a lost URING record. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct spsc_uring);
} uring_ops SEC(".maps");

static __always_inline void read_entry(struct io_kiocb *req, struct uring_sqe *sqe)
{
	struct io_ring_ctx *ctx = untrusted(req)->ctx;
	u32 at = (ctx->cached_sq_head - 1) & (ctx->sq_entries - 1);

	if (!(ctx->flags & IORING_SETUP_NO_SQARRAY) &&
	    bpf_probe_read_kernel(&at, sizeof(at), ctx->sq_array + at))
		return;
	if (ctx->flags & IORING_SETUP_SQE128)
		at <<= 1;
	bpf_probe_read_kernel(sqe, sizeof(*sqe), (char *)ctx->sq_sqes + 64ULL * at);
}

static __always_inline void note_file(struct spsc_uring *op, struct file *f)
{
	struct inode *inode;

	if (!f)
		return;
	inode = inode_of(f);
	if (!file_on_spool(f, dev_of(inode)))
		return;
	op->dev = dev_of(inode);
	op->ino = MEMBER(struct inode, inode, i_ino);
	op->obj_mode = MEMBER(struct inode, inode, i_mode);
	op->flags |= SPSC_URING_ON_SPOOL;
}

static __always_inline bool opens(u8 opcode)
{
	return opcode == URING_OPENAT || opcode == URING_OPENAT2;
}

/* Judge by the file of the descriptor, or by the path that is used or created; of two paths by
 * the second, which is on the same filesystem or gives EXDEV. */
static __always_inline void judge(struct task_struct *t, struct task_state *st,
				  const struct uring_sqe *sqe, struct spsc_uring *op)
{
	enum answer answer = NO;

	switch (sqe->opcode) {
	case URING_OPENAT:
	case URING_OPENAT2:
	case URING_STATX:
	case URING_UNLINKAT:
	case URING_MKDIRAT:
		answer = path_on_spool(t, st, sqe->fd, sqe->addr);
		break;
	case URING_RENAMEAT:
	case URING_LINKAT:
		answer = path_on_spool(t, st, (s32)sqe->len, sqe->off);
		break;
	case URING_SYMLINKAT:
		answer = path_on_spool(t, st, sqe->fd, sqe->off);
		break;
	default:
		note_file(op, file_of_fd(t, sqe->fd));
	}
	if (answer == YES)
		op->flags |= SPSC_URING_ON_SPOOL;
}

static __always_inline void emit_uring(const struct spsc_uring *op)
{
	struct ring_uring *e = reserve(SPSC_KIND_URING, sizeof(*e));

	if (!e)
		return;
	e->rec = *op;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* Return the submitting task. With IORING_SETUP_SQPOLL a thread of the kernel submits, which no
 * fork announced: then its process's leader, which has the same descriptors and directories. */
static __always_inline struct task_struct *submitter(void)
{
	struct task_struct *t = bpf_get_current_task_btf();

	return t->flags & PF_IO_WORKER ? t->group_leader : t;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(on_uring_submit, struct io_kiocb *req)
{
	struct task_struct *t = submitter();
	struct spsc_uring op = {};
	struct uring_sqe sqe = {};
	struct task_state *st;
	u64 key = (u64)req;

	if (!armed)
		return 0;
	st = target_state(t);
	if (!st)
		return 0;
	read_entry(req, &sqe);
	op.opcode = req->opcode;
	op.user_data = req->cqe.user_data;
	op.offset = -1;
	if (sqe.opcode != op.opcode || sqe.user_data != op.user_data)
		__builtin_memset(&sqe, 0, sizeof(sqe));
	else
		op.flags = SPSC_URING_ENTRY;
	if (op.flags && !(sqe.flags & IOSQE_FIXED_FILE)) {
		st->unjudged = 0;
		judge(t, st, &sqe, &op);
		/* A read or write of another file: nothing later will change that. */
		if (!(op.flags & SPSC_URING_ON_SPOOL) && !opens(op.opcode)) {
			if (st->unjudged)
				count_unjudged(st->unjudged);
			return 0;
		}
	}
	op.submit_ns = bpf_ktime_get_ns();
	op.ring = (u64)untrusted(req)->ctx;
	op.offset = sqe.off;
	op.size = sqe.len;
	op.op_flags = sqe.op_flags;
	op.fd = sqe.fd;
	op.sqe_flags = sqe.flags;
	op.pid = t->tgid;
	op.tid = t->pid;
	if (!st->seen) {
		note_cwd(t, st);
		emit_seen(t, st, op.submit_ns, untrusted(t)->fs->umask);
	}
	if (op.sqe_flags & IOSQE_CQE_SKIP_SUCCESS) { /* its completion is not reported */
		if (op.flags & SPSC_URING_ON_SPOOL)
			emit_uring(&op);
		return 0;
	}
	if (bpf_map_update_elem(&uring_ops, &key, &op, BPF_ANY))
		count(SPSC_KIND_URING);
	return 0;
}

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(on_uring_async, struct io_kiocb *req)
{
	u64 key = (u64)req;
	struct spsc_uring *op = bpf_map_lookup_elem(&uring_ops, &key);

	if (op)
		op->flags |= SPSC_URING_WORKER;
	return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(on_uring_complete, struct io_ring_ctx *ring, void *request)
{
	struct io_kiocb *req = request;
	u64 key = (u64)request;
	struct spsc_uring *op = bpf_map_lookup_elem(&uring_ops, &key);

	if (!op)
		return 0;
	op->done_ns = bpf_ktime_get_ns();
	op->res = BPF_CORE_READ(req, cqe.res);
	if (opens(op->opcode)) {
		if (op->res >= 0)
			note_file(op, file_of_fd(bpf_get_current_task_btf(), op->res));
	} else if (!op->ino && (op->sqe_flags & IOSQE_FIXED_FILE)) {
		note_file(op, BPF_CORE_READ(req, file));
	}
	if (op->flags & SPSC_URING_ON_SPOOL)
		emit_uring(op);
	bpf_map_delete_elem(&uring_ops, &key);
	return 0;
}

#endif
