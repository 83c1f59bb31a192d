/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The page faults of faults.bpf.h, from the functions themselves, on kernels without the
 * tracepoints. Loaded only if one of those is missing; function tracing may be refused.
 */
#ifndef SPOOLSCOPE_FAULT_FUNCTIONS_BPF_H
#define SPOOLSCOPE_FAULT_FUNCTIONS_BPF_H

#include "faults.bpf.h"

#define VM_FAULT_NOPAGE 0x100 /* the page that was touched is mapped now */

SEC("fentry/filemap_fault")
int BPF_PROG(in_fault_page, struct vm_fault *vmf)
{
	struct address_space *mapping = vmf->vma->vm_file->f_mapping;

	if (of_spool(mapping))
		emit_fault(mapping, vmf->pgoff, 1, SPSC_FAULT_PAGE, true);
	return 0;
}

SEC("fexit/filemap_map_pages")
int BPF_PROG(in_fault_around, struct vm_fault *vmf, unsigned long start, unsigned long end,
	     unsigned int ret)
{
	struct address_space *mapping = vmf->vma->vm_file->f_mapping;

	if ((ret & VM_FAULT_NOPAGE) && of_spool(mapping))
		emit_fault(mapping, start, end - start + 1, SPSC_FAULT_AROUND, false);
	return 0;
}

#endif
