// SPDX-License-Identifier: Apache-2.0
/*
 * Loads whose calls are known: every process repeats one operation in DIRECTORY.
 * usage: mailload delivery|metadata|elsewhere|getppid DIRECTORY PROCESSES SECONDS
 * prints {"ops", "calls", "ns", "cpu_ns", "p50_ns", "p99_ns"}; calls: those on files, of all
 * processes, between the first operation and the last; cpu_ns: of all processes; p50_ns and
 * p99_ns: of one operation.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"

#define MAX_PROCESSES 64
#define MAX_LATENCIES (1 << 20) /* per process; later operations are not in the percentiles */
#define BOXES 12
#define BATCH 8 /* messages that a reader finds at once */
#define CHUNK 8192

/* One call that a recorder of DIRECTORY must see. */
#define CALL(expression) (mine->calls++, (expression))

struct process {
	long ops, calls;
	long long latency_ns[MAX_LATENCIES];
};

struct shared {
	volatile int ready, go;
	struct process processes[MAX_PROCESSES];
};

static struct process *mine;
static char data[65536];

static int open_checked(const char *name, int flags)
{
	int fd = CALL(open(name, flags | O_CLOEXEC, 0600));

	check(fd >= 0, name);
	return fd;
}

static void close_checked(int fd)
{
	check(!CALL(close(fd)), "close");
}

static void write_all(int fd, long bytes)
{
	long n;

	for (; bytes > 0; bytes -= n) {
		n = bytes < CHUNK ? bytes : CHUNK;
		check(CALL(write(fd, data, n)) == n, "write");
	}
}

/* Append a line to the mailbox's log, under its lock, as Dovecot does with its index log. */
static void note(const char *box)
{
	struct flock lock = {.l_type = F_WRLCK};
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "%s/index.log", box);
	fd = open_checked(name, O_RDWR | O_CREAT | O_APPEND);
	check(!CALL(fcntl(fd, F_SETLKW, &lock)), "lock");
	write_all(fd, 104);
	lock.l_type = F_UNLCK;
	check(!CALL(fcntl(fd, F_SETLK, &lock)), "unlock");
	close_checked(fd);
}

static void sync_directory(const char *box)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "%s/new", box);
	fd = open_checked(name, O_RDONLY | O_DIRECTORY);
	check(!CALL(fdatasync(fd)), "fdatasync");
	close_checked(fd);
}

/* Deliver: tmp, fsync, into new by rename (Dovecot) or by link (Postfix), fdatasync of new. */
static void deliver(const char *box, long id)
{
	static const int sizes[] = {1700, 2900, 4800, 7400, 11600, 18000, 33000, 64000};
	char tmp[96], new[96];
	struct stat s;
	int fd;

	snprintf(tmp, sizeof(tmp), "%s/tmp", box);
	check(!CALL(stat(tmp, &s)), tmp);
	snprintf(tmp, sizeof(tmp), "%s/tmp/%ld.P%d", box, id, getpid());
	snprintf(new, sizeof(new), "%s/new/%ld.P%d", box, id, getpid());
	fd = open_checked(tmp, O_WRONLY | O_CREAT | O_EXCL);
	write_all(fd, sizes[id % 8]);
	check(!CALL(fsync(fd)), "fsync");
	close_checked(fd);
	if (id & 1) {
		check(!CALL(rename(tmp, new)), "rename");
	} else {
		check(!CALL(link(tmp, new)), "link");
		check(!CALL(unlink(tmp)), "unlink");
	}
	sync_directory(box);
	note(box);
}

/* List new, read the messages of the last batch, mark them seen, remove them. */
static void fetch(const char *box, long first)
{
	char new[96], cur[96];
	long id;
	int fd;

	snprintf(new, sizeof(new), "%s/new", box);
	fd = open_checked(new, O_RDONLY | O_DIRECTORY);
	while (CALL(syscall(SYS_getdents64, fd, data, sizeof(data))) > 0)
		;
	close_checked(fd);
	for (id = first; id < first + BATCH; id++) {
		snprintf(new, sizeof(new), "%s/new/%ld.P%d", box, id, getpid());
		snprintf(cur, sizeof(cur), "%s/cur/%ld.P%d:2,S", box, id, getpid());
		fd = open_checked(new, O_RDONLY);
		while (CALL(read(fd, data, CHUNK)) > 0)
			;
		close_checked(fd);
		check(!CALL(rename(new, cur)), "rename");
		check(!CALL(unlink(cur)), "unlink");
	}
}

static long long delivery(long i)
{
	long batch = i / BATCH;
	char box[32];
	long long begin = now_ns(), took;

	snprintf(box, sizeof(box), "box%ld", (batch + getpid()) % BOXES);
	deliver(box, i);
	took = now_ns() - begin;
	if (i % BATCH == BATCH - 1)
		fetch(box, batch * BATCH);
	return took;
}

/* Do everything that happens to a message except waiting for the disk. */
static long long metadata(long i)
{
	long long begin = now_ns();
	char tmp[64], new[64];
	struct stat s;
	int fd;

	snprintf(tmp, sizeof(tmp), "tmp/%ld.P%d", i, getpid());
	snprintf(new, sizeof(new), "new/%ld.P%d", i, getpid());
	fd = open_checked(tmp, O_WRONLY | O_CREAT | O_EXCL);
	write_all(fd, 4096);
	close_checked(fd);
	check(!CALL(rename(tmp, new)), "rename");
	check(!CALL(stat(new, &s)), "stat");
	fd = open_checked(new, O_RDONLY);
	check(CALL(read(fd, data, CHUNK)) == 4096, "read");
	close_checked(fd);
	check(!CALL(unlink(new)), "unlink");
	return now_ns() - begin;
}

/* Make the same kinds of calls on one file that exists, in a directory that is not recorded. */
static long long elsewhere(long i)
{
	long long begin = now_ns();
	struct stat s;
	int fd;

	if (i == 0)
		close_checked(open_checked("file", O_RDWR | O_CREAT));
	check(!CALL(stat("/tmp", &s)), "stat");
	fd = open_checked("file", O_RDWR);
	write_all(fd, 1024);
	check(!CALL(fstat(fd, &s)), "fstat");
	close_checked(fd);
	return now_ns() - begin;
}

static long long parent(long i)
{
	(void)i;
	syscall(SYS_getppid);
	return 0;
}

static long long (*operation_of(const char *name))(long)
{
	if (!strcmp(name, "delivery"))
		return delivery;
	if (!strcmp(name, "metadata"))
		return metadata;
	if (!strcmp(name, "elsewhere"))
		return elsewhere;
	if (!strcmp(name, "getppid"))
		return parent;
	fprintf(stderr, "no workload %s\n", name);
	exit(2);
}

static void make_directories(void)
{
	static const char *const folders[] = {"tmp", "new", "cur"};
	char name[64];
	int box, i;

	for (i = 0; i < 3; i++)
		check(!mkdir(folders[i], 0700), folders[i]);
	for (box = 0; box < BOXES; box++) {
		snprintf(name, sizeof(name), "box%d", box);
		check(!mkdir(name, 0700), name);
		for (i = 0; i < 3; i++) {
			snprintf(name, sizeof(name), "box%d/%s", box, folders[i]);
			check(!mkdir(name, 0700), name);
		}
	}
}

static int ascending(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

static long long cpu_ns(void)
{
	struct rusage r;

	check(!getrusage(RUSAGE_CHILDREN, &r), "getrusage");
	return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000LL +
	       (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000LL;
}

static void print(struct shared *shared, int n, long long ns)
{
	long ops = 0, calls = 0, known = 0, here;
	long long *all = malloc(sizeof(*all) * MAX_LATENCIES * n);
	int i;

	check(all != NULL, "malloc");
	for (i = 0; i < n; i++) {
		struct process *p = &shared->processes[i];

		here = p->ops < MAX_LATENCIES ? p->ops : MAX_LATENCIES;
		memcpy(all + known, p->latency_ns, here * sizeof(*all));
		known += here;
		ops += p->ops;
		calls += p->calls;
	}
	check(ops > 0, "not one operation in the time");
	qsort(all, known, sizeof(*all), ascending);
	printf("{\"ops\": %ld, \"calls\": %ld, \"ns\": %lld, \"cpu_ns\": %lld, ", ops, calls, ns,
	       cpu_ns());
	printf("\"p50_ns\": %lld, \"p99_ns\": %lld}\n", all[known / 2], all[known * 99 / 100]);
}

int main(int argc, char **argv)
{
	long long (*operation)(long), begin, end, took;
	struct shared *shared;
	int i, n, status;

	check(argc == 5, "usage: mailload WORKLOAD DIRECTORY PROCESSES SECONDS");
	operation = operation_of(argv[1]);
	check(!chdir(argv[2]), argv[2]);
	n = atoi(argv[3]);
	check(n > 0 && n <= MAX_PROCESSES, "PROCESSES");
	make_directories();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(shared != MAP_FAILED, "mmap");
	for (i = 0; i < n; i++) {
		if (fork())
			continue;
		mine = &shared->processes[i];
		__sync_fetch_and_add(&shared->ready, 1);
		while (!shared->go)
			usleep(100);
		end = now_ns() + (long long)(atof(argv[4]) * 1e9);
		while (now_ns() < end) {
			took = operation(mine->ops);
			if (mine->ops < MAX_LATENCIES)
				mine->latency_ns[mine->ops] = took;
			mine->ops++;
		}
		_exit(0);
	}
	while (shared->ready < n)
		usleep(100);
	begin = now_ns();
	shared->go = 1;
	for (i = 0; i < n; i++) {
		wait(&status);
		check(status == 0, "a process failed");
	}
	print(shared, n, now_ns() - begin);
	return 0;
}
