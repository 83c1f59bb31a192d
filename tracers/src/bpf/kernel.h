/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The kernel types that spoolscope reads, and only the members it reads.
 * CO-RE relocates every access against the running kernel's BTF, so offsets,
 * order and members not named here do not matter. A member that some kernels
 * lack is guarded by bpf_core_field_exists() where it is used.
 */
#ifndef SPOOLSCOPE_KERNEL_H
#define SPOOLSCOPE_KERNEL_H

#define __VMLINUX_H__ /* makes bpf_tracing.h use kernel member names */
#define SPSC_TYPES_DEFINED

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __le16, __be16;
typedef __u32 __le32, __be32, __wsum;
typedef __u64 __le64, __be64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef __s32 s32;
typedef __s8 s8;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

typedef u32 dev_t;

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_USER_STACK = 256,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum pageflags {
	PG_uptodate = 2,
	PG_head = 6,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
#if defined(__TARGET_ARCH_x86)
	unsigned long r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, sp, flags;
#elif defined(__TARGET_ARCH_arm64)
	int syscallno;
#endif
};

#if defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	u64 regs[31];
	u64 sp, pc, pstate;
};
#endif

typedef struct {
	s64 counter;
} atomic64_t;

struct mutex {
	atomic64_t owner;
};

struct rw_semaphore {
	atomic64_t owner;
};

struct semaphore {
	unsigned long last_holder;
};

struct super_block {
	dev_t s_dev;
	void *s_fs_info;
	struct mutex s_vfs_rename_mutex;
};

struct xarray {
	void *xa_head;
};

struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct address_space {
	struct inode *host;
	struct xarray i_pages;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct inode {
	u16 i_mode;
	unsigned long i_ino;
	s64 i_size;
	struct super_block *i_sb;
	struct rw_semaphore i_rwsem;
	struct address_space i_data;
	union {
		struct hlist_head i_dentry;
	};
};

struct file_lock_core {
	struct file_lock_core *flc_blocker;
	s32 flc_pid;
};

struct file_lock {
	struct file_lock_core c;
	s64 fl_start;
};

struct file_lock___before_core {
	struct file_lock___before_core *fl_blocker;
	u32 fl_pid;
};

struct io_cqe {
	u64 user_data;
	s32 res;
};

struct io_ring_ctx {
	unsigned int flags;
	u32 *sq_array;
	struct io_uring_sqe *sq_sqes;
	unsigned int cached_sq_head;
	unsigned int sq_entries;
};

struct io_kiocb {
	struct file *file;
	u8 opcode;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
};

struct folio {
	unsigned long index;
	unsigned long _flags_1; /* large folios: order in the low 8 bits */
};

struct folio___word {
	unsigned long flags;
};

struct folio___desc {
	struct {
		unsigned long f;
	} flags;
};

struct qstr {
	u32 hash; /* salted with the directory */
	u32 len; /* the verifier of 6.1 cannot read both at once, as hash_len */
	const unsigned char *name;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	unsigned int f_flags;
	s64 f_pos;
	struct path f_path;
	struct address_space *f_mapping;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *close_on_exec;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	int umask;
	struct path root;
	struct path pwd;
};

struct mm_struct {
	struct rw_semaphore mmap_lock;
	struct file *exe_file;
};

struct vm_area_struct {
	struct file *vm_file;
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};

typedef struct {
	u32 val;
} kuid_t;
typedef struct {
	u32 val;
} kgid_t;

struct cred {
	kuid_t fsuid;
	kgid_t fsgid;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct thread_info {
#if defined(__TARGET_ARCH_x86)
	u32 status; /* TS_COMPAT while in a 32-bit system call */
#else
	unsigned long flags; /* TIF_32BIT in a program of 32 bits */
#endif
};

struct sched_info {
	unsigned long long last_arrival;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int pid;
	int tgid;
	int exit_code;
	int exit_state;
	char comm[16];
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct fs_struct *fs;
	struct files_struct *files;
	struct mm_struct *mm;
	const struct cred *cred;
	struct css_set *cgroups;
	struct nsproxy *nsproxy;
	unsigned long min_flt; /* page faults that ended, without and with reading */
	unsigned long maj_flt;
	struct nameidata *nameidata;
	struct sched_info sched_info;
};

struct filename {
	const char *name;
	const char *uptr;
};

/* A walk along a path, fs/namei.c: path is the directory reached so far, last the name that is
 * looked up in it; depth counts the symlinks under way. */
struct nameidata {
	struct path path;
	struct qstr last;
	unsigned int depth;
	struct filename *name;
};

struct linux_binprm {
	struct file *file;
	const char *filename;
};

struct gendisk {
	int major;
	int first_minor;
};

struct block_device {
	dev_t bd_dev;
	struct gendisk *bd_disk;
};

struct bvec_iter {
	u64 bi_sector;
};

struct bio {
	struct block_device *bi_bdev;
	struct blkcg_gq *bi_blkg; /* with CONFIG_BLK_CGROUP */
	struct bvec_iter bi_iter;
};

struct work_struct {
	void *func;
};

struct delayed_work {
	struct work_struct work;
};

struct backing_dev_info {
	char dev_name[64];
};

struct bdi_writeback {
	struct backing_dev_info *bdi;
	struct delayed_work dwork;
};

struct loop_device {
	struct work_struct rootcg_work;
	struct gendisk *lo_disk;
};

struct loop_worker {
	struct work_struct work;
	struct loop_device *lo;
};

struct request_queue {
	struct gendisk
		*disk; /* since d152c682f03c "block: add an explicit ->disk backpointer", v5.15 */
};

struct request {
	struct request_queue *q;
	struct bio *bio;
	unsigned int cmd_flags;
	unsigned int __data_len;
	u64 __sector;
	u64 start_time_ns;
};

struct journal_s {
	struct block_device *j_fs_dev; /* the filesystem's; the journal may be on another */
};
typedef struct journal_s journal_t;

struct transaction_s {
	u32 t_tid;
};
typedef struct transaction_s transaction_t;

struct transaction_run_stats_s {
	u32 rs_handle_count;
	u32 rs_blocks;
	u32 rs_blocks_logged;
};

struct transaction_chp_stats_s {
	unsigned long cs_chp_time;
	u32 cs_written;
};

struct xfs_mount {
	struct super_block *m_super;
};

struct xlog {
	struct xfs_mount *l_mp;
};

struct xfs_cil {
	struct xlog *xc_log;
};

struct xfs_cil_ctx {
	struct xfs_cil *cil;
	s64 sequence;
	struct work_struct push_work;
};

struct xfs_inode {
	struct xfs_mount *i_mount;
	struct work_struct i_ioend_work;
};

struct ext4_inode_info {
	struct inode vfs_inode;
	struct work_struct i_rsv_conversion_work;
};

struct xfs_ail {
	struct xlog *ail_log;
};

struct xlog_in_core {
	struct xlog *ic_log;
	u32 ic_offset;
};

struct btrfs_fs_info {
	struct super_block *sb;
	u64 generation;
};

struct btrfs_workqueue {
	struct btrfs_fs_info *fs_info;
};

struct btrfs_work {
	struct work_struct normal_work;
	struct btrfs_workqueue *wq;
};

struct extent_io_tree {
	struct btrfs_fs_info *fs_info;
};

struct btrfs_inode {
	struct inode vfs_inode;
};

struct btrfs_ordered_extent {
	u64 num_bytes;
};

struct extent_buffer {
	u64 start;
	struct btrfs_fs_info *fs_info;
	struct rw_semaphore lock;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

#pragma clang attribute pop

#define PF_IO_WORKER 0x00000010
#define PF_KTHREAD 0x00200000
#define TS_COMPAT 0x0002
#define TIF_32BIT (1ul << 22)
#define AT_FDCWD -100
#define AF_UNIX 1
#define ACL_USER_OBJ 1
#define ACL_GROUP_OBJ 4
#define ACL_MASK 16
#define ACL_OTHER 32
#define FICLONE 0x40049409
#define FICLONERANGE 0x4020940d
#define FIONCLEX 0x5450
#define FIOCLEX 0x5451

#define O_CLOEXEC 02000000

#endif
