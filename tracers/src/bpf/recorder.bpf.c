// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* The recorder's BPF object: every part shares one state, so they are one unit. */
#include "syscalls.bpf.h"
#include "life.bpf.h"
#include "sched.bpf.h"
#include "journal.bpf.h"
#include "handles.bpf.h"
#include "xfs_log.bpf.h"
#include "btrfs_log.bpf.h"
#include "workers.bpf.h"
#include "block.bpf.h"
#include "samples.bpf.h"
#include "snapshot.bpf.h"
#include "under_way.bpf.h"
#include "fault_functions.bpf.h"
#include "uring_older.bpf.h"

/* clang-format off */
const char LICENSE[] SEC("license") = "Dual BSD/GPL";
