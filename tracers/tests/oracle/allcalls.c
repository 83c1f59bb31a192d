/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes every call of traces/calls.txt below one directory, a prime number of times each,
 * failing calls among them, from several processes and threads.
 *
 * usage: allcalls DIRECTORY          prints "name count" of the calls made
 *        allcalls DIRECTORY again    executed by its children: two calls
 */
#include "allcalls.h"

#include <stdlib.h>
#include <sys/mman.h>

unsigned *counts;
char buffer[8192];
const char *directory;

long issue(long nr, const long args[6])
{
	long ret;

	__atomic_add_fetch(&counts[nr], 1, __ATOMIC_RELAXED);
	ret = syscall(nr, args[0], args[1], args[2], args[3], args[4], args[5]);
	return ret;
}

char *absolute(const char *name)
{
	static char names[4][4096];
	static unsigned next;
	char *to = names[next++ % 4];

	snprintf(to, sizeof(names[0]), "%s/%s", directory, name);
	return to;
}

int make_file(const char *name)
{
	return CALL(openat, AT_FDCWD, S(name), O_RDWR | O_CREAT, 0644);
}

/* The counts live in a file outside the spool, so that an exec'ed child adds to them. */
static unsigned *map_counts(const char *name, int create)
{
	int fd = open(name, O_RDWR | (create ? O_CREAT | O_TRUNC : 0), 0600);
	void *at;

	if (fd < 0 || (create && ftruncate(fd, MAX_NR * sizeof(unsigned))))
		return NULL;
	at = mmap(NULL, MAX_NR * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

static int run_again(void)
{
	CALL(access, S(absolute(".")), F_OK);
	CALL(access, S(absolute("nothing")), F_OK);
	CALL(exit_group, 7);
	return 0;
}

int main(int argc, char **argv)
{
	const char *counts_file = getenv("ALLCALLS_COUNTS");

	if (argc < 2 || !counts_file) {
		fprintf(stderr, "usage: ALLCALLS_COUNTS=FILE allcalls DIRECTORY\n");
		return 2;
	}
	directory = argv[1];
	counts = map_counts(counts_file, argc == 2);
	if (!counts)
		return 1;
	if (argc > 2)
		return run_again();
	memset(buffer, 'm', sizeof(buffer));
	CALL(umask, 022);
	CALL(chdir, S(directory));
	make_opens();
	make_data();
	make_descriptors();
	make_locks();
	make_stats();
	make_names();
	make_modes();
	make_xattrs();
	make_mounts();
	make_maps();
	make_copies();
	make_ioctls();
	make_sockets();
	make_watches();
	make_tasks(argv[0]);
	make_primes();
	CALL(exit_group, 0);
}
