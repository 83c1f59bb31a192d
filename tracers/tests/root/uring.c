/* io_uring by bare system calls: one operation after the other, each with its result.
 *
 * uring SPOOL ELSEWHERE [sqpoll]: prints a line "opcode offset size result" for every operation
 * on SPOOL, in order, and then whether the others went well.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	int fd, flags;
	unsigned *head, *tail, *mask, *array, *cq_head, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static char data[8192];

static void set_up(unsigned flags)
{
	struct io_uring_params p = {.flags = flags, .sq_thread_idle = 1000};
	char *sq, *cq;

	ring.fd = syscall(__NR_io_uring_setup, 8, &p);
	ring.flags = flags & IORING_SETUP_SQPOLL ? IORING_ENTER_SQ_WAKEUP : 0;
	if (ring.fd < 0)
		exit(77); /* not here: kernel.io_uring_disabled, seccomp */
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || ring.sqes == MAP_FAILED)
		exit(1);
	ring.tail = (unsigned *)(sq + p.sq_off.tail);
	ring.mask = (unsigned *)(sq + p.sq_off.ring_mask);
	ring.array = (unsigned *)(sq + p.sq_off.array);
	ring.cq_head = (unsigned *)(cq + p.cq_off.head);
	ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static int done(struct io_uring_sqe sqe)
{
	static unsigned long long number;
	unsigned tail = *ring.tail, at = (tail + 3) & *ring.mask; /* not the tail's own place */
	struct io_uring_cqe *cqe;
	int result;

	sqe.user_data = ++number;
	ring.sqes[at] = sqe;
	ring.array[tail & *ring.mask] = at;
	__atomic_store_n(ring.tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(__NR_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS | ring.flags, NULL,
		    0) != 1)
		exit(2);
	cqe = &ring.cqes[*ring.cq_head & *ring.cq_mask];
	if (cqe->user_data != number)
		exit(3);
	result = cqe->res;
	__atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
	return result;
}

static int shown(struct io_uring_sqe sqe)
{
	int result = done(sqe);

	printf("%d %lld %u %d\n", sqe.opcode, (long long)sqe.off, sqe.len, result);
	return result;
}

#define OP(name, ...) ((struct io_uring_sqe){.opcode = IORING_OP_##name, __VA_ARGS__})
#define OPEN(dir, path)                                                                            \
	OP(OPENAT, .fd = dir, .addr = (long)(path), .len = 0600, .open_flags = O_RDWR | O_CREAT)
#define DATA .addr = (long)data

int main(int argc, char **argv)
{
	int fd, other, dir = argc >= 3 ? open(argv[1], O_RDONLY | O_DIRECTORY) : -1;

	if (dir < 0 || chdir(argv[1]))
		return 1;
	set_up(argc > 3 ? IORING_SETUP_SQPOLL : 0);
	other = done(OPEN(AT_FDCWD, argv[2]));
	fd = shown(OPEN(AT_FDCWD, "mail"));
	if (fd < 0 || other < 0)
		return 4;
	shown(OP(WRITE, .fd = fd, DATA, .len = 4096, .off = 8192));
	shown(OP(FSYNC, .fd = fd));
	shown(OP(READ, .fd = fd, DATA, .len = 100, .off = 8200));
	shown(OP(READ, .fd = fd, DATA, .len = 100, .off = 1 << 20));
	shown(OP(READ, .fd = fd, DATA, .len = 50, .off = 10, .flags = IOSQE_ASYNC));
	shown(OP(WRITE, .fd = fd, DATA, .len = 10, .off = -1));
	shown(OP(OPENAT, .fd = dir, .addr = (long)"missing"));
	if (syscall(__NR_io_uring_register, ring.fd, IORING_REGISTER_FILES, &fd, 1))
		return 5;
	shown(OP(READ, .fd = 0, DATA, .len = 10, .off = 8192, .flags = IOSQE_FIXED_FILE));
	shown(OP(RENAMEAT, .fd = dir, .addr = (long)"mail", .len = dir, .off = (long)"letter"));
	shown(OP(UNLINKAT, .fd = AT_FDCWD, .addr = (long)"letter"));
	shown(OP(CLOSE, .fd = fd));
	printf("%d ", done(OP(NOP)));
	printf("%d ", done(OP(WRITE, .fd = other, DATA, .len = 20)));
	printf("%d\n", done(OP(CLOSE, .fd = other)));
	return 0;
}
