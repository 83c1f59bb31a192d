// SPDX-License-Identifier: Apache-2.0
/* The delivery loop: create, write, [fsync], close, rename, open, read, close, unlink.
 * usage: maildir_loop DIRECTORY SECONDS fsync|nosync; prints loops and ns per loop. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void deliver(long i, int sync)
{
	static char mail[4096];
	char tmp[64], new[64];
	int fd;

	snprintf(tmp, sizeof(tmp), "tmp/%ld", i);
	snprintf(new, sizeof(new), "new/%ld", i);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL, 0600);
	check(fd >= 0, tmp);
	check(write(fd, mail, sizeof(mail)) == sizeof(mail), "write");
	check(!sync || !fsync(fd), "fsync");
	check(!close(fd), "close");
	check(!rename(tmp, new), "rename");
	fd = open(new, O_RDONLY);
	check(fd >= 0, new);
	check(read(fd, mail, sizeof(mail)) == sizeof(mail), "read");
	check(!close(fd), "close");
	check(!unlink(new), "unlink");
}

int main(int argc, char **argv)
{
	long long begin, end;
	long loops = 0;
	int sync;

	check(argc == 4, "usage: maildir_loop DIRECTORY SECONDS fsync|nosync");
	sync = !strcmp(argv[3], "fsync");
	check(!chdir(argv[1]), argv[1]);
	mkdir("tmp", 0700);
	mkdir("new", 0700);
	begin = now_ns();
	end = begin + (long long)(atof(argv[2]) * 1e9);
	while (now_ns() < end)
		deliver(loops++, sync);
	printf("%ld %lld\n", loops, (now_ns() - begin) / loops);
	return 0;
}
