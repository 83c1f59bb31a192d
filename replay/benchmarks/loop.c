/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit for a replayer on one CPU: the calls of a plan, one after the other in one process,
 * from arguments that are ready. No threads, no order, no verdict, no paths to put together.
 *
 * usage: loop SCRIPT STRINGS     in the target directory; prints "calls ns failed"
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum kind { NUMBER, STRING, SLOT, BUFFER, LOCK };

struct call {
	int64_t nr;
	int64_t args[6];
	int64_t ret; /* recorded; below 0 it failed */
	int32_t slot; /* of the new descriptor, -1 none */
	int16_t lock_type;
	int16_t pad;
	uint8_t kinds[8];
};

static const void *map(const char *path, size_t *size)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	*size = st.st_size;
	return mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long issue(const struct call *call, const char *strings, const int *slots, char *buffer)
{
	struct flock lock = {.l_type = call->lock_type, .l_whence = SEEK_SET};
	long r[6];
	for (int i = 0; i < 6; i++) {
		int64_t value = call->args[i];
		switch (call->kinds[i]) {
		case STRING:
			r[i] = (long)(strings + value);
			break;
		case SLOT:
			r[i] = value < 0 ? -1 : slots[value];
			break;
		case BUFFER:
			r[i] = (long)buffer;
			break;
		case LOCK:
			r[i] = (long)&lock;
			break;
		default:
			r[i] = value;
		}
	}
	return syscall(call->nr, r[0], r[1], r[2], r[3], r[4], r[5]);
}

int main(int argc, char **argv)
{
	size_t size = 0, length = 0;
	if (argc != 3)
		return 2;
	const struct call *calls = map(argv[1], &size);
	const char *strings = map(argv[2], &length);
	char *buffer = calloc(1, 16 << 20);
	int *slots = malloc((1 << 20) * sizeof(int));
	if (!calls || !strings || !buffer || !slots)
		return 1;
	for (int i = 0; i < 1 << 20; i++)
		slots[i] = -1;
	size_t n = size / sizeof(*calls);
	long failed = 0;
	int64_t began = now_ns();
	for (size_t i = 0; i < n; i++) {
		long ret = issue(&calls[i], strings, slots, buffer);
		failed += (ret < 0) != (calls[i].ret < 0);
		if (calls[i].slot >= 0 && ret >= 0)
			slots[calls[i].slot] = (int)ret;
	}
	printf("%zu %lld %ld\n", n, (long long)(now_ns() - began), failed);
	return 0;
}
