/* Touches pages of a mapped file and says after each what the kernel counted.
 *
 * mapped FILE [sequential] COPY: prints "page how in-cache-before major minor" for every touch.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE 4096L
#define PAGES 128L

enum { READ, WRITE, CALL }; /* CALL: write(2) reads the page */

struct touch {
	long page;
	int how;
};

/* Read what is absent; what the cache has; what is mapped; write likewise; in a call. */
static const struct touch touches[] = {
	{5, 0}, {40, 0}, {21, 0}, {5, 0},  {6, 0},   {100, 0},	 {5, 1},
	{5, 1}, {60, 1}, {61, 0}, {40, 1}, {100, 1}, {80, CALL}, {80, READ},
};

static int copy;

static int report(volatile unsigned char *file, struct touch t)
{
	static unsigned char cached[PAGES];
	static struct rusage before, after;
	int bad = 0;

	if (mincore((void *)file, PAGES * PAGE, cached))
		return 4;
	getrusage(RUSAGE_THREAD, &after); /* its own pages are there from here on */
	getrusage(RUSAGE_THREAD, &before);
	if (t.how == WRITE)
		file[t.page * PAGE] = 1;
	else if (t.how == CALL)
		bad = write(copy, (void *)(file + t.page * PAGE), 10) != 10;
	else
		(void)file[t.page * PAGE];
	getrusage(RUSAGE_THREAD, &after);
	printf("%ld %d %d %ld %ld\n", t.page, t.how, cached[t.page] & 1,
	       after.ru_majflt - before.ru_majflt, after.ru_minflt - before.ru_minflt);
	return bad;
}

int main(int argc, char **argv)
{
	int fd = argc > 2 ? open(argv[1], O_RDWR) : -1, bad = 0;
	unsigned char *file;
	char one[PAGE];

	if (fd < 0 || fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) ||
	    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM))
		return 1;
	if (pread(fd, one, PAGE, 100 * PAGE) != PAGE)
		return 2;
	file = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	copy = open(argv[argc - 1], O_WRONLY | O_CREAT, 0600);
	if (file == MAP_FAILED || copy < 0)
		return 3;
	printf("begin\n"); /* stdout's buffer is there from here on */
	if (argc > 3) {
		for (long page = 0; page < PAGES && !bad; page++)
			bad = report(file, (struct touch){page, 0});
		return bad;
	}
	if (madvise(file, PAGES * PAGE, MADV_RANDOM))
		return 3;
	for (unsigned i = 0; i < sizeof(touches) / sizeof(*touches) && !bad; i++)
		bad = report(file, touches[i]);
	return bad;
}
