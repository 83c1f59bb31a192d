// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* Programs that do nothing: they show what any program costs at these places in this kernel. */
#define PLACE(name)                                                                                \
	__attribute__((section("tp_btf/" #name), used)) int empty_##name(void *ctx)                \
	{                                                                                          \
		return 0;                                                                          \
	}

PLACE(sys_enter)
PLACE(sys_exit)
PLACE(sched_switch)

__attribute__((section("license"), used)) char LICENSE[] = "Dual BSD/GPL";
