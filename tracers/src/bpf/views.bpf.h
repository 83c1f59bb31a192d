/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The meaning of absolute names in processes that see other mounts than the recorder: services that
 * systemd gives a /tmp of their own (Debian's dovecot.service), containers, chroots.
 *
 * No BPF program can walk a namespace, so user space is asked: it reads the mountinfo of the
 * process and enters the names of the spools (views.rs).
 */
#ifndef SPOOLSCOPE_VIEWS_BPF_H
#define SPOOLSCOPE_VIEWS_BPF_H

#include "mounted.bpf.h"
#include "tops.bpf.h"

/* The place where absolute names begin. */
struct view_key {
	u64 root_ino;
	u32 root_mount; /* its id */
	u32 mount_ns;
};

/* The names of the spools in that view. */
struct view {
	u64 event; /* mnt_namespace.event at the question; each mount changes it */
	u32 number; /* of this answer, from 1; views.rs has its names, `ways` where they lead */
	u32 unsure; /* there are names that are not in `ways` */
	struct heads heads;
};

/* value: entered by user space. Full: calls of views that are not in it stay unjudged. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct view_key);
	__type(value, struct view);
} views SEC(".maps");

/* value: the event for which user space was asked, which removes it if it has no answer. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct view_key);
	__type(value, u64);
} views_asked SEC(".maps");

/* Calls that could not be judged, by the place where their names begin, with the first task as
 * example. Read and emptied by the recorder. Full: only COUNT_UNJUDGED counts them. */
struct unjudged {
	u64 calls;
	u64 cgroup_id;
	u32 pid;
	u32 why; /* enum unjudged_why */
	char comm[SPSC_COMM];
};

enum unjudged_why {
	UNJUDGED_NEW = 1, /* its mounts have not been looked at yet */
	UNJUDGED_MANY = 2, /* there are more names of the spools than are compared */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct view_key);
	__type(value, struct unjudged);
} unjudged_calls SEC(".maps");

struct ring_view {
	struct ring_head head;
	struct view_key key;
	u64 event;
	u32 tid; /* of a thread that has that view */
	u32 pad;
};

/* Return true if the root is on a spool, as in Postfix services: then every absolute name is. */
static __always_inline bool root_on_spool(struct task_struct *t)
{
	struct dentry *root = untrusted(t)->fs->root.dentry;

	return dentry_on_spool(root, root->d_sb->s_dev);
}

static __always_inline u32 root_mount_of(struct task_struct *t)
{
	char *root = (char *)untrusted(t)->fs->root.mnt;

	return MEMBER(struct mount, root - bpf_core_field_offset(struct mount, mnt), mnt_id);
}

static __always_inline bool sees_our_mounts(struct task_struct *t)
{
	return untrusted(t)->fs->root.dentry->d_inode->i_ino == root_ino &&
	       root_mount_of(t) == root_mount;
}

static __always_inline u32 mount_ns_of(struct task_struct *t)
{
	return BPF_CORE_READ(t, nsproxy, mnt_ns, ns.inum);
}

/* Return true for the same directory, also in a namespace that was made as a copy of ours. */
static __always_inline bool has_our_root(struct task_struct *t)
{
	return untrusted(t)->fs->root.dentry->d_inode->i_ino == root_ino &&
	       (!root_dev || untrusted(t)->fs->root.dentry->d_sb->s_dev == root_dev);
}

static __always_inline struct view_key view_key_of(struct task_struct *t)
{
	return (struct view_key){
		.root_ino = untrusted(t)->fs->root.dentry->d_inode->i_ino,
		.root_mount = root_mount_of(t),
		.mount_ns = untrusted(t)->nsproxy->mnt_ns->ns.inum,
	};
}

/* This is a function of its own as the stacks of its callers have no room for it. */
__noinline int count_unjudged(u32 why)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct view_key key = view_key_of(t);
	struct unjudged first = {.calls = 1, .pid = t->tgid, .why = why};
	struct unjudged *known = bpf_map_lookup_elem(&unjudged_calls, &key);

	count(COUNT_UNJUDGED);
	if (known) {
		__sync_fetch_and_add(&known->calls, 1);
		return 0;
	}
	first.cgroup_id = bpf_get_current_cgroup_id();
	BPF_CORE_READ_STR_INTO(&first.comm, t, comm);
	bpf_map_update_elem(&unjudged_calls, &key, &first, BPF_ANY);
	return 0;
}

/* Return true if no absolute name that begins with these eight bytes leads to a spool in the
 * view of the current task; false also if that is not known. */
__noinline bool no_spool_in_view(u64 first)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct view_key key = view_key_of(t);
	struct view *view = bpf_map_lookup_elem(&views, &key);

	if (!view || view->unsure || view->event != untrusted(t)->nsproxy->mnt_ns->event)
		return false;
	if (view->heads.n && untidy_word(first, first >> 8))
		return false;
	return NONE_BEGINS_WITH(&view->heads, first);
}

/* Return an ancestor with the same view, as most programs of a delivery end before they are
 * looked at. It is the thread, not its process: a thread may have a root directory of its own. */
static __always_inline u32 longest_living(struct task_struct *t, const struct view_key *key)
{
	u32 tid = t->pid;

	for (int i = 0; i < 8; i++) {
		t = untrusted(t)->real_parent;
		if (!t->pid || untrusted(t)->fs->root.dentry->d_inode->i_ino != key->root_ino ||
		    root_mount_of(t) != key->root_mount)
			break;
		tid = t->pid;
	}
	return tid;
}

__noinline int ask_for_view(void)
{
	struct task_struct *t = bpf_get_current_task_btf();
	u64 event = untrusted(t)->nsproxy->mnt_ns->event;
	struct view_key key = view_key_of(t);
	u64 *asked = bpf_map_lookup_elem(&views_asked, &key);
	struct ring_view *e;

	if (asked && *asked == event)
		return 0;
	e = reserve(RING_VIEW, sizeof(*e));
	if (!e)
		return 0; /* the next call asks again */
	e->key = key;
	e->event = event;
	e->tid = longest_living(t, &key);
	e->pad = 0;
	bpf_map_update_elem(&views_asked, &key, &event, BPF_ANY);
	bpf_ringbuf_submit(e, 0);
	return 0;
}

/* Return what is known of the current task's view; ask for it if it is missing or outdated. */
static __always_inline struct view *view_of(struct task_struct *t)
{
	struct view_key key = view_key_of(t);
	struct view *view = bpf_map_lookup_elem(&views, &key);

	if (!view || view->event != untrusted(t)->nsproxy->mnt_ns->event)
		ask_for_view();
	return view;
}

/* Return true if a name that led off a spool, to a mount below, may lead to the spool: that
 * mount may be gone since user space looked. Such calls are recorded, and the converter decides
 * by the calls that unmount. */
__noinline bool may_lead_in(void)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);
	struct view *view = view_of(t);

	return (st && st->mounts) || !view || view->event != untrusted(t)->nsproxy->mnt_ns->event;
}

static __always_inline bool leads_in(int way)
{
	return way == WAY_IN || (way == WAY_OUT && may_lead_in());
}

/*
 * Return true if an absolute path leads to a spool in the view of the current task. After a mount
 * the older names hold until user space has looked again. Before its first look, a namespace with
 * our root directory has our names: services begin like that.
 */
__noinline bool named_in_view(bool tidy)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);
	struct view *view;
	int way;

	if (!st) { /* a thread of the kernel that submits for a ring */
		count_unjudged(UNJUDGED_NEW);
		return false;
	}
	view = view_of(t);
	if (!view && has_our_root(t)) {
		if (way_of(st, tidy, 0, 0) == WAY_IN)
			return true;
		st->view = VIEW_ASSUMED;
		return false;
	}
	if (!view && !spool_below_root(tidy))
		return false;
	if (!view) {
		st->view = VIEW_UNKNOWN;
		st->unjudged = UNJUDGED_NEW;
		return false;
	}
	st->view = view->number;
	way = way_of(st, tidy, view->number, VIEW_PLACE);
	if (view->unsure && way == WAY_NONE)
		st->unjudged = UNJUDGED_MANY;
	return leads_in(way);
}

/* Return true if an absolute path leads off the spool on which the root directory lies, to a
 * mount below. */
__noinline bool leaves_root(bool tidy)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_state *st = state_of(t);
	struct view *view;

	if (!st)
		return false;
	view = view_of(t);
	return view && way_of(st, tidy, view->number, VIEW_PLACE) == WAY_OUT && !may_lead_in();
}

#endif
