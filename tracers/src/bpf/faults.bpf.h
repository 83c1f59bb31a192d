/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Page faults of files on a spool: reads and writes of a program through mmap.
 *
 * One fault may show as several events, which share `n_faults`: the kernel counts a
 * fault when it ends, also after it slept for the page and tried again.
 *  - PAGE: filemap_fault() looks for this page. If it is not in the cache, the kernel
 *    counts a major fault.
 *  - AROUND: filemap_map_pages() mapped those of up to 16 pages around the fault that
 *    were in the cache. If one of them is touched later, there is no fault. If the page
 *    that was touched is among them, there is no PAGE event, and it is not known which.
 *  - DIRTY: a clean page is about to be written through a mapping. Pages that are
 *    dirty already give no event, nor does data that the kernel itself copies into a
 *    mapping (read(2) to it).
 *
 * The filemap tracepoints came with "filemap: add trace events for get_pages, map_pages, and fault"
 * in 2024. On older kernels fault_functions.bpf.h replaces them.
 */
#ifndef SPOOLSCOPE_FAULTS_BPF_H
#define SPOOLSCOPE_FAULTS_BPF_H

#include "emit.bpf.h"
#include "target.bpf.h"

struct ring_fault {
	struct ring_head head;
	struct spsc_fault rec;
};

/* include/linux/xarray.h: entries with low bits 10 are nodes, or below 4096 internal;
 * odd ones are values, in a page cache the shadows of evicted pages. */
#define XA_LEVELS 11 /* of 6 bits: 64 */
#define XA_SMALLEST_NODE 4096

static __always_inline u64 xa_slot(u64 node, u64 i)
{
	u64 entry = 0, at = bpf_core_field_offset(struct xa_node, slots) + 8 * (i & 63);

	bpf_core_read(&entry, sizeof(entry), (void *)(node - 2 + at));
	return entry;
}

/* Return the page cache's entry at an index: 0, a shadow (odd) or a folio. */
static __always_inline u64 cached(struct address_space *mapping, u64 index)
{
	u64 node = 0, entry = (u64)mapping->i_pages.xa_head;

	for (int level = 0; level < XA_LEVELS; level++) {
		u64 place;

		if ((entry & 3) != 2 || entry < XA_SMALLEST_NODE)
			break;
		node = entry;
		place = index >> BPF_CORE_READ((struct xa_node *)(node - 2), shift);
		if (level == 0 && place > 63)
			return 0;
		entry = xa_slot(node, place);
		if ((entry & 3) == 2 && entry < 64 << 2) /* sibling: the slot of its folio */
			entry = xa_slot(node, entry >> 2);
	}
	return entry;
}

/* The flags are a struct since 53fbef56e07d "mm: introduce memdesc_flags_t", v6.18. */
static __always_inline u64 folio_flags(const void *folio)
{
	const struct folio___desc *now = folio;
	const struct folio___word *before = folio;

	if (bpf_core_field_exists(now->flags.f))
		return BPF_CORE_READ(now, flags.f);
	return BPF_CORE_READ(before, flags);
}

static __always_inline bool absent(struct address_space *mapping, u64 index)
{
	u64 entry = cached(mapping, index);

	return !entry || entry & 1;
}

static __always_inline void emit_fault(struct address_space *mapping, u64 page, u32 n_pages,
				       u32 event, bool look)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct inode *inode = untrusted(mapping)->host;
	struct task_state *st;
	struct ring_fault *e;
	struct spsc_fault *r;

	st = target_state(t);
	if (!st)
		return;
	if (!st->seen)
		emit_seen(t, st, bpf_ktime_get_ns(), untrusted(t)->fs->umask);
	e = reserve(SPSC_KIND_FAULT, sizeof(*e));
	if (!e)
		return;
	r = &e->rec;
	r->ts_ns = bpf_ktime_get_ns();
	r->call_ns = st->call ? st->start_ns : SPSC_NO_CALL;
	r->n_faults = t->maj_flt + t->min_flt;
	r->ino = inode->i_ino;
	r->page = page;
	r->n_pages = n_pages;
	r->dev = inode->i_sb->s_dev;
	r->pid = t->tgid;
	r->tid = t->pid;
	r->event = event;
	r->flags = look && absent(mapping, page) ? SPSC_FAULT_ABSENT : 0;
	r->pad = 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline bool of_spool(struct address_space *mapping)
{
	struct inode *inode = untrusted(mapping)->host;

	return armed && inode && inode_on_spool(inode, inode->i_sb->s_dev);
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(on_fault_page, struct address_space *mapping, unsigned long index)
{
	if (of_spool(mapping))
		emit_fault(mapping, index, 1, SPSC_FAULT_PAGE, true);
	return 0;
}

SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(on_fault_around, struct address_space *mapping, unsigned long start, unsigned long end)
{
	if (of_spool(mapping))
		emit_fault(mapping, start, end - start + 1, SPSC_FAULT_AROUND, false);
	return 0;
}

/* Return true in a page fault from user mode, which has no system call; write(2) has one. */
static __always_inline bool in_user_fault(struct task_struct *t)
{
	struct pt_regs *regs;

	if (t->flags & PF_KTHREAD || !untrusted(t)->mm)
		return false;
	regs = (struct pt_regs *)bpf_task_pt_regs(t);
#if defined(__TARGET_ARCH_x86)
	return (s64)regs->orig_ax == -1;
#else
	return (s32)regs->syscallno == -1;
#endif
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(on_fault_dirty, struct folio *folio, struct address_space *mapping)
{
	u32 n_pages = 1;

	/* Pages of block devices themselves are dirtied here, too. */
	if (!mapping || !of_spool(mapping) || !in_user_fault(bpf_get_current_task_btf()))
		return 0;
	if (folio_flags(folio) >> bpf_core_enum_value(enum pageflags, PG_head) & 1 &&
	    bpf_core_field_exists(folio->_flags_1))
		n_pages = 1 << (folio->_flags_1 & 31);
	emit_fault(mapping, folio->index, n_pages, SPSC_FAULT_DIRTY, false);
	return 0;
}

#endif
