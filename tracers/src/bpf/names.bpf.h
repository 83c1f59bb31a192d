/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Does a path, as text, lead to a spool? */
#ifndef SPOOLSCOPE_NAMES_BPF_H
#define SPOOLSCOPE_NAMES_BPF_H

#include "state.bpf.h"

/* What of a path is compared. Functions that read it are global: the verifier looks at
 * them once, not on every way to them. */
struct path_head {
	char text[PATH_HEAD];
};

/* Does a path begin with the name of a way in? Compared word by word. */
static __always_inline bool begins_with(const volatile struct way_in *way,
					const struct path_head *head)
{
	const u64 *word = (const u64 *)head;
	u64 differs = 0;
	char next;

	if ((word[0] & way->mask[0]) != way->word[0])
		return false;
	for (u32 w = 0; w < MOUNT_WORDS; w++)
		differs |= (word[w] & way->mask[w]) ^ way->word[w];
	next = head->text[way->length & (PATH_HEAD - 1)];
	return !differs && (next == '/' || next == 0);
}

/* Does the path in `head`, seen from directory (dev, ino), lie below a spool's
 * mount point? ino 0 stands for an absolute path. */
__noinline bool head_on_spool(const struct path_head *head, u64 ino, u32 dev)
{
	if (!head)
		return false;
	for (u32 i = 0; i < MAX_WAYS; i++) {
		const volatile struct way_in *way = &ways_in[i];

		if (i >= n_ways)
			break;
		if (way->ino != ino || (way->dev && way->dev != dev))
			continue;
		if (begins_with(way, head))
			return true;
	}
	return false;
}

/* Not 0 if "//" or "/." is among these eight bytes; `next` is the same one byte further. */
static __always_inline u64 untidy_word(u64 word, u64 next)
{
	const u64 ones = 0x0101010101010101, tops = 0x8080808080808080;
	u64 slash = word ^ 0x2f2f2f2f2f2f2f2f;
	u64 again = next ^ 0x2f2f2f2f2f2f2f2f;
	u64 dot = next ^ 0x2e2e2e2e2e2e2e2e;

	return ((slash - ones) & ~slash & tops) &
	       (((again - ones) & ~again) | ((dot - ones) & ~dot));
}

/* "//" or "/." in the part that is compared? */
__noinline bool untidy(const struct path_head *head, u32 bytes)
{
	const u64 *word = (const u64 *)head;
	u64 found;

	if (!head)
		return false;
	found = head->text[0] == '.';
	for (u32 i = 0; i < PATH_HEAD / 8 - 1 && i * 8 < bytes; i++) {
		found |= untidy_word(word[i], word[i] >> 8 | word[i + 1] << 56);
	}
	return found;
}

struct tidying {
	struct task_state *st;
	u32 used;
	char before;
};

static long tidy_byte(u32 i, struct tidying *t)
{
	char c = t->st->head[i & (PATH_HEAD - 1)];
	char next = t->st->head[(i + 1) & (PATH_HEAD - 1)];

	if (!c)
		return 1;
	if (t->before == '/' && (c == '/' || (c == '.' && (next == '/' || !next))))
		return 0;
	t->st->tidy[t->used & (PATH_HEAD - 1)] = c;
	t->used++;
	t->before = c;
	return 0;
}

/* The path as the mount path is written; names with ".." stay as they are. */
static __always_inline const struct path_head *tidied(struct task_state *st)
{
	struct tidying t = {.st = st, .before = st->head[0] == '/' ? 0 : '/'};

	if (!untidy((const struct path_head *)st->head, st->head_bytes))
		return (const struct path_head *)st->head;
	bpf_loop(PATH_HEAD - 1, tidy_byte, &t, 0);
	st->tidy[t.used & (PATH_HEAD - 1)] = 0;
	return (const struct path_head *)st->tidy;
}

/* No absolute name of a spool begins with these eight bytes. */
__noinline bool no_spool_begins_with(u64 first)
{
	if (untidy_word(first, first >> 8))
		return false;
	for (u32 i = 0; i < MAX_WAYS && i < n_ways; i++)
		if (!ways_in[i].ino && (first & ways_in[i].mask[0]) == ways_in[i].word[0])
			return false;
	return true;
}

#endif
