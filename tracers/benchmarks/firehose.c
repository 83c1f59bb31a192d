// SPDX-License-Identifier: Apache-2.0
/*
 * Cheap calls on one file at a given rate: pread, lseek and fstat by turns.
 * usage: firehose FILE THREADS CALLS_PER_SECOND SECONDS
 * prints {"calls", "ns"}. A thread that is late catches up: the mean rate is the given one if the
 * machine can do it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop.h"

#define MAX_THREADS 64
#define TICK_NS 1000000LL

static const char *name;
static double calls_per_tick;
static long long begin, end;

static void *work(void *result)
{
	long calls = 0;
	long long tick = 0, next;
	struct timespec until;
	struct stat s;
	char byte;
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	check(fd >= 0, name);
	for (next = begin; next < end; next = begin + ++tick * TICK_NS) {
		until.tv_sec = next / 1000000000;
		until.tv_nsec = next % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		while (calls < (long)((tick + 1) * calls_per_tick)) {
			check(pread(fd, &byte, 1, 0) == 1, "pread");
			check(lseek(fd, calls & 4095, SEEK_SET) >= 0, "lseek");
			check(!fstat(fd, &s), "fstat");
			calls += 3;
		}
		if (now_ns() > end)
			break;
	}
	*(long *)result = calls;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS];
	long calls[MAX_THREADS], total = 0;
	int i, n;

	check(argc == 5, "usage: firehose FILE THREADS CALLS_PER_SECOND SECONDS");
	name = argv[1];
	n = atoi(argv[2]);
	check(n > 0 && n <= MAX_THREADS, "THREADS");
	calls_per_tick = atof(argv[3]) / n * TICK_NS / 1e9;
	begin = now_ns() + 10 * TICK_NS;
	end = begin + (long long)(atof(argv[4]) * 1e9);
	for (i = 0; i < n; i++)
		check(!pthread_create(&threads[i], NULL, work, &calls[i]), "pthread_create");
	for (i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		total += calls[i];
	}
	printf("{\"calls\": %ld, \"ns\": %lld}\n", total, now_ns() - begin);
	return 0;
}
