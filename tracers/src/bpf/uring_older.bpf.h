/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* io_uring's submissions under their older name, before v6.4; loaded only without the newer. */
#ifndef SPOOLSCOPE_URING_OLDER_BPF_H
#define SPOOLSCOPE_URING_OLDER_BPF_H

#include "uring.bpf.h"

SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(on_uring_submit_sqe, struct io_kiocb *req)
{
	return ____on_uring_submit(ctx, req);
}

#endif
