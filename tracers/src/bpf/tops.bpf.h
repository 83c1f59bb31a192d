/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Decides if an object lies on a spool: by its filesystem or, where only a directory of that is the
 * spool, by the name under which the object was reached: its dentry's parents lead through the
 * directory.
 */
#ifndef SPOOLSCOPE_TOPS_BPF_H
#define SPOOLSCOPE_TOPS_BPF_H

#include "state.bpf.h"

#define DEEPEST 4096 /* directories; a path has at most half as many */
#define SELDOM_DEEPER 16
#define MOST_NAMES 64 /* most names of one inode that are looked at */

static __always_inline bool is_whole(u32 dev)
{
	for (u32 i = 0; i < MAX_SPOOLS && i < n_spools; i++)
		if (spools[i].dev == dev && !spools[i].part)
			return true;
	return false;
}

/* The address of a dentry, on its way up. */
struct ascent {
	u64 at;
	u32 found, ended;
};

static __always_inline bool is_top(u64 inode)
{
	for (u32 i = 0; i < MAX_SPOOLS && i < n_spools; i++)
		if (spools[i].part && tops[i] == inode)
			return true;
	return false;
}

static __always_inline u64 one_up(u64 name)
{
	return (u64)MEMBER(struct dentry, name, d_parent);
}

static __always_inline u64 inode_behind(u64 name)
{
	return (u64)MEMBER(struct dentry, name, d_inode);
}

static long climb_one(u32 i, struct ascent *c)
{
	u64 parent = one_up(c->at);

	c->found = is_top(inode_behind(c->at));
	c->ended = c->found || parent == c->at;
	c->at = parent;
	return c->ended;
}

/* Return true for a name below a directory that is a spool. A global function takes an address
 * only in memory. */
__noinline bool below_top(const struct ascent *from)
{
	struct ascent c = {};
	u64 at, parent;

	if (!from)
		return false;
	at = from->at;
	/* Most names are not deeper; a loop of this kind costs a third of bpf_loop(). */
	for (u32 i = 0; i < SELDOM_DEEPER; i++) {
		if (is_top(inode_behind(at)))
			return true;
		parent = one_up(at);
		if (parent == at)
			return false;
		at = parent;
	}
	c.at = at;
	bpf_loop(DEEPEST, climb_one, &c, 0);
	if (!c.ended)
		count(COUNT_UNJUDGED);
	return c.found;
}

static __always_inline bool dentry_on_spool(const struct dentry *name, u32 dev)
{
	struct ascent c = {.at = (u64)name};

	if (!is_spool(dev))
		return false;
	return !n_parts || is_whole(dev) || below_top(&c);
}

/* Judge by any name of the inode that the kernel has at hand: that of an open file is. */
static __always_inline bool inode_on_spool(struct inode *inode, u32 dev)
{
	struct ascent c = {};
	struct hlist_node *node;

	if (!is_spool(dev))
		return false;
	if (!n_parts || is_whole(dev))
		return true;
	node = MEMBER(struct inode, inode, i_dentry.first);
	for (u32 i = 0; i < MOST_NAMES && node; i++) {
		c.at = (u64)node - bpf_core_field_offset(struct dentry, d_u.d_alias);
		if (below_top(&c))
			return true;
		node = MEMBER(struct hlist_node, node, next);
	}
	if (node)
		count(COUNT_UNJUDGED);
	return false;
}

#endif
