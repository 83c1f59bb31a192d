/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Decides if a path, as text, leads to a spool. */
#ifndef SPOOLSCOPE_NAMES_BPF_H
#define SPOOLSCOPE_NAMES_BPF_H

#include "state.bpf.h"

enum way {
	WAY_NONE,
	WAY_OUT, /* to another filesystem, mounted below a spool */
	WAY_IN, /* in the map its device is added */
};

/*
 * Targets of names. A key is a directory and the beginning of a path seen from it, which ends after
 * a '/' or with its NUL; the longest that fits counts. Directory (0, 0) stands for absolute paths,
 * (VIEW_PLACE, n) for those of view n. Written by ways.rs. A name that is too long for a key is
 * cut: paths that begin like the cut name are taken for it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, NAME_KEY); /* of struct name */
	__uint(value_size, sizeof(u32));
	__uint(max_entries, 1 << 16); /* set by the recorder */
} ways SEC(".maps");

#define VIEW_PLACE (~0U)

struct place {
	u64 ino;
	u32 dev, pad;
};

/* key: a directory from which relative names lead to a spool. Set by the recorder. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct place);
	__type(value, u8);
} places SEC(".maps");

/* Return true if relative names lead to a spool from this directory. */
__noinline bool is_place(u64 ino, u32 dev)
{
	struct place place = {.ino = ino, .dev = dev};

	return above[ino >> 6 & 63] >> (ino & 63) & 1 && bpf_map_lookup_elem(&places, &place);
}

/* Return where the path that was read, or the tidy one, leads as seen from directory (dev, ino);
 * note the device of the spool it leads to.
 * 6.1 takes a key from the value of another map, but not from an argument of a global function. */
static __always_inline int way_of(struct task_state *st, bool tidy, u64 ino, u32 dev)
{
	struct name *name = tidy ? &st->tidy : &st->name;
	u32 *way;

	name->ino = ino;
	name->dev = dev;
	name->bits = 8 * (NAME_KEY - sizeof(name->bits));
	way = bpf_map_lookup_elem(&ways, name);
	if (!way || *way < WAY_IN)
		return way ? *way : WAY_NONE;
	st->named_dev = *way - WAY_IN;
	return WAY_IN;
}

/* Return not 0 if "//" or "/." is among these eight bytes; `next` is the word one byte further. */
static __always_inline u64 untidy_word(u64 word, u64 next)
{
	const u64 ones = 0x0101010101010101, tops = 0x8080808080808080;
	u64 slash = word ^ 0x2f2f2f2f2f2f2f2f;
	u64 again = next ^ 0x2f2f2f2f2f2f2f2f;
	u64 dot = next ^ 0x2e2e2e2e2e2e2e2e;

	return ((slash - ones) & ~slash & tops) &
	       (((again - ones) & ~again) | ((dot - ones) & ~dot));
}

/* Return true if "//" or "/." is in the part that is compared. */
static __always_inline bool untidy(const struct name *name, u32 bytes)
{
	const u64 *word = (const u64 *)name->text;
	u64 found;

	found = name->text[0] == '.';
	for (u32 i = 0; i < PATH_SHORT / 8 - 1 && i * 8 < bytes; i++) {
		found |= untidy_word(word[i], word[i] >> 8 | word[i + 1] << 56);
	}
	return found;
}

struct tidying {
	struct task_state *st;
	u32 used, skip;
	u32 up;
	char before;
};

static long tidy_byte(u32 i, struct tidying *t)
{
	const char *text = t->st->name.text;
	char c = text[i & (PATH_SHORT - 1)];
	char next = text[(i + 1) & (PATH_SHORT - 1)];
	char third = text[(i + 2) & (PATH_SHORT - 1)];

	if (!c)
		return 1;
	if (t->skip) {
		t->skip--;
		return 0;
	}
	if (t->before == '/' && (c == '/' || (c == '.' && (next == '/' || !next))))
		return 0;
	if (t->before == '/' && !t->used && c == '.' && next == '.' && (third == '/' || !third)) {
		t->up++;
		t->skip = 1;
		return 0;
	}
	t->st->tidy.text[t->used & (PATH_SHORT - 1)] = c;
	t->used++;
	t->before = c;
	return 0;
}

#define NOT_TIDIED (-1)

/* Write the path to `tidy` in the form of names of spools and return the number of ".." with which
 * it begins; paths with ".." elsewhere keep it. Return NOT_TIDIED if it already has that form.
 * Functions that read a path are global: the verifier checks them once, not on every way to them. */
__noinline int tidied(struct task_state *st)
{
	struct tidying t = {};

	if (!st || !untidy(&st->name, st->name_read))
		return NOT_TIDIED;
	t.st = st;
	t.before = st->name.text[0] == '/' ? 0 : '/';
	bpf_loop(PATH_SHORT - 1, tidy_byte, &t, 0);
	st->tidy.text[t.used & (PATH_SHORT - 1)] = 0;
	return t.up;
}

/* True if none of these names begins with these eight bytes. */
#define NONE_BEGINS_WITH(heads, first)                                                             \
	({                                                                                         \
		bool none_ = true;                                                                 \
		for (u32 i_ = 0; i_ < MAX_HEADS && i_ < (heads)->n; i_++)                          \
			if (((first) & (heads)->mask[i_]) == (heads)->word[i_])                    \
				none_ = false;                                                     \
		none_;                                                                             \
	})

/* Return true if no absolute name of a spool begins with these eight bytes. */
__noinline bool no_spool_begins_with(u64 first)
{
	if (untidy_word(first, first >> 8))
		return false;
	return NONE_BEGINS_WITH(&own_heads, first);
}

#endif
