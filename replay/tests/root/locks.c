/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that spend their time waiting for locks, and log how long each wait was.
 *
 *	locks SPOOL LOG ROUNDS
 *
 * Each appends a line of its own length to a file under a lock, asks for the size, and releases
 * the lock: the sizes show the order of the holders. LOG/<number> has a line for every lock call:
 *
 *	pid lock wait_ns		(CLOCK_MONOTONIC around the call)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 6 };

static FILE *out;
static unsigned int seed;

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Kinds: POSIX locks, locks of open files, and flock. */
static int change(int kind, int fd, int type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET};

	if (kind == 2)
		return flock(fd, type == F_WRLCK ? LOCK_EX : type == F_RDLCK ? LOCK_SH : LOCK_UN);
	return fcntl(fd, kind == 1 ? F_OFD_SETLKW : F_SETLKW, &lock);
}

static void pause_up_to(int us)
{
	usleep(1 + rand_r(&seed) % us);
}

/* One in four takes a shared lock and only reads. */
static void visit(int kind, int fd, int number)
{
	static const char line[PROCESSES + 1] = "......";
	int reads = rand_r(&seed) % 4 == 0;
	struct stat stat;
	long began = now();

	if (change(kind, fd, reads ? F_RDLCK : F_WRLCK))
		exit(3);
	fprintf(out, "%d %d %ld\n", getpid(), kind, now() - began);
	if (!reads && write(fd, line, number + 1) != number + 1)
		exit(3);
	pause_up_to(1500);
	if (fstat(fd, &stat) || change(kind, fd, F_UNLCK))
		exit(3);
}

static void work(int number, int rounds)
{
	static const char *names[] = {"posix", "ofd", "flock"};
	int fd[3];

	for (int kind = 0; kind < 3; kind++)
		if ((fd[kind] = open(names[kind], O_RDWR | O_APPEND | O_CREAT, 0600)) < 0)
			exit(3);
	for (int round = 0; round < rounds; round++) {
		int kind = rand_r(&seed) % 3;

		visit(kind, fd[kind], number);
		pause_up_to(800);
	}
}

int main(int argc, char **argv)
{
	int status, failed = 0;
	char path[400];

	if (argc != 4 || chdir(argv[1]))
		return 2;
	for (int number = 0; number < PROCESSES; number++)
		if (fork() == 0) {
			seed = number + 1;
			snprintf(path, sizeof(path), "%s/%d", argv[2], number);
			if (!(out = fopen(path, "w")))
				return 3;
			work(number, atoi(argv[3]));
			return fclose(out) != 0;
		}
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
