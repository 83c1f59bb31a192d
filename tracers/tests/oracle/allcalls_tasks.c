/* SPDX-License-Identifier: Apache-2.0 */
/* Maps, watches; processes and threads; the padding to prime counts. */
#include "allcalls.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PAGE 4096

void make_maps(void)
{
	int fd = make_file("mapped");
	long shared, private;

	CALL(ftruncate, fd, 3 * PAGE);
	shared = CALL(mmap, 0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	private = CALL(mmap, 0, PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE);
	memset((void *)shared, 'x', 2 * PAGE);
	CALL(msync, shared, 3 * PAGE, MS_SYNC);
	CALL(msync, shared, PAGE, MS_ASYNC);
	CALL(munmap, shared, 3 * PAGE);
	CALL(munmap, private, PAGE);
	CALL(mmap, 0, 0, PROT_READ, MAP_SHARED, fd, 0); /* EINVAL: no length */
	CALL(close, fd);
}

void make_watches(void)
{
	int watcher = inotify_init1(IN_NONBLOCK);
	long watch = CALL(inotify_add_watch, watcher, S("."), IN_CREATE | IN_DELETE);

	CALL(inotify_add_watch, watcher, S(absolute("from")), IN_MODIFY);
	CALL(inotify_add_watch, watcher, S("nothing"), IN_MODIFY); /* ENOENT */
	CALL(inotify_rm_watch, watcher, watch);
	close(watcher);
}

/* Calls of every process and thread: inherited descriptor, relative and absolute paths. */
static void work(int inherited, int number)
{
	char name[32], shared[32] = "shared-name";
	long fd;

	snprintf(name, sizeof(name), "child%d", number);
	if (getenv("ALLCALLS_APART")) /* no race for one name */
		snprintf(shared, sizeof(shared), "shared-name%d", number);
	CALL(write, inherited, S(buffer), 100 + number);
	fd = CALL(open, S(name), O_RDWR | O_CREAT | O_EXCL, 0600);
	CALL(write, fd, S(buffer), number);
	CALL(fsync, fd);
	CALL(close, fd);
	CALL(rename, S(name), S(absolute(shared)));
	CALL(unlink, S(absolute(shared))); /* one of the racers wins */
}

/* Children of fork and clone without CLONE_VM: own descriptors, own cwd. */
static void child(int inherited, int number, const char *self, char **again)
{
	CALL(chdir, S("odir"));
	CALL(umask, 077);
	work(inherited, number);
	CALL(fchdir, inherited); /* ENOTDIR */
	CALL(close, inherited);
	if (number == 0)
		CALL(execve, S(self), S(again), S(environ));
	if (number == 1)
		CALL(execveat, AT_FDCWD, S(self), S(again), S(environ), 0);
	CALL(exit_group, number);
}

static int clone_body(void *inherited)
{
	static int number = 100;

	work(*(int *)inherited, __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED));
	CALL(exit, 0);
	return 0;
}

/* exit(2) is only counted here: glibc issues it when the thread returns. */
static void *thread_body(void *inherited)
{
	static int number = 200;

	work(*(int *)inherited, __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED));
	counts[SYS_exit]++;
	return NULL;
}

static void make_threads(int inherited)
{
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			  CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID;
	static char stacks[4][65536];
	static volatile int alive[4];
	pthread_t threads[3];

	for (int i = 0; i < 4; i++) {
		alive[i] = 1;
		clone(clone_body, stacks[i] + sizeof(stacks[i]), flags, &inherited, &alive[i], NULL,
		      &alive[i]);
		counts[SYS_clone]++;
		while (alive[i]) /* it shares our errno: wait for its end */
			usleep(1000);
	}
	for (int i = 0; i < 3; i++) {
		counts[SYS_clone3]++;
		pthread_create(&threads[i], NULL, thread_body, &inherited);
		pthread_join(threads[i], NULL);
	}
}

void make_tasks(const char *self)
{
	struct clone_args plain = {.exit_signal = SIGCHLD};
	char *again[] = {(char *)self, (char *)directory, "again", NULL};
	char *nothing[] = {NULL};
	int inherited = make_file("inherited");
	long root = CALL(open, S("."), O_RDONLY | O_DIRECTORY, 0);

	REPEAT(5)
	if (CALL(fork) == 0)
		child(inherited, round, self, again);
	REPEAT(2)
	{
		counts[SYS_vfork]++;
		if (vfork() == 0) {
			CALL(access, S("odir"), X_OK);
			CALL(exit_group, 3);
		}
	}
	if (CALL(clone, SIGCHLD, 0, 0, 0, 0) == 0)
		child(inherited, 10, self, again);
	REPEAT(2)
	if (CALL(clone3, S(&plain), sizeof(plain)) == 0)
		child(inherited, 20 + round, self, again);
	while (wait(NULL) > 0)
		;
	make_threads(inherited);
	CALL(execve, S("nothing"), S(nothing), S(environ)); /* ENOENT */
	CALL(execveat, root, S("o1"), S(nothing), S(environ), 0); /* EACCES */
	CALL(chdir, S("nothing"));
	CALL(chdir, S("names"));
	CALL(fchdir, root);
	CALL(close, root);
	CALL(close, inherited);
}

static int is_prime(unsigned n)
{
	for (unsigned i = 2; i * i <= n; i++)
		if (n % i == 0)
			return 0;
	return n > 1;
}

static void pad(const long rows[][7], int n)
{
	for (int i = 0; i < n; i++)
		while (!is_prime(counts[rows[i][0]]))
			issue(rows[i][0], rows[i] + 1);
}

#define FD_ROW(name, ...)                                                                          \
	{                                                                                          \
		SYS_##name, fd, ##__VA_ARGS__                                                      \
	}
#define PATH_ROW(name, ...)                                                                        \
	{                                                                                          \
		SYS_##name, S("nothing"), ##__VA_ARGS__                                            \
	}
#define AT_ROW(name, ...)                                                                          \
	{                                                                                          \
		SYS_##name, dir, S("nothing"), ##__VA_ARGS__                                       \
	}
#define COUNT(array) ((int)(sizeof(array) / sizeof(array[0])))

static void pad_descriptors(int fd, int watcher, int *ends, int nameless)
{
	const long b = S(buffer);
	const long rows[][7] = {
		FD_ROW(read, b, 1),
		FD_ROW(write, b, 1),
		FD_ROW(pread64, b, 1, 0),
		FD_ROW(pwrite64, b, 1, 0),
		FD_ROW(readv, b, 0),
		FD_ROW(writev, b, 0),
		FD_ROW(preadv, b, 0, 0),
		FD_ROW(pwritev, b, 0, 0),
		FD_ROW(preadv2, b, 0, 0, 0, 0),
		FD_ROW(pwritev2, b, 0, 0, 0, 0),
		FD_ROW(dup2, fd),
		FD_ROW(dup3, fd, 0),
		FD_ROW(fcntl, F_GETFD),
		FD_ROW(flock, 8),
		FD_ROW(lseek, 0, SEEK_CUR),
		FD_ROW(fsync),
		FD_ROW(fdatasync),
		FD_ROW(sync_file_range, 0, 0, 0),
		FD_ROW(syncfs),
		FD_ROW(ftruncate, 100),
		FD_ROW(fallocate, 0, 0, 0),
		FD_ROW(fstat, b),
		FD_ROW(fstatfs, b),
		FD_ROW(getdents, b, 100),
		FD_ROW(getdents64, b, 100),
		FD_ROW(fchmod, 0600),
		FD_ROW(fchown, 0, 0),
		FD_ROW(fgetxattr, S("user.n"), b, 1),
		FD_ROW(fsetxattr, S("user.n"), b, 1, 0),
		FD_ROW(flistxattr, b, 0),
		FD_ROW(fremovexattr, S("user.none")),
		FD_ROW(fadvise64, 0, 0, 0),
		FD_ROW(readahead, 0, 0),
		FD_ROW(copy_file_range, 0, fd, 0, 0, 0),
		FD_ROW(sendfile, fd, 0, 0),
		FD_ROW(splice, 0, ends[1], 0, 0, 0),
		FD_ROW(fchdir),
		FD_ROW(ioctl, FIOCLEX),
		{SYS_mmap, 0, 0, 0, MAP_SHARED, fd, 0},
		{SYS_sync},
		{SYS_umask, 022},
		{SYS_setuid, 0},
		{SYS_setgid, 0},
		{SYS_setreuid, -1, 0},
		{SYS_setregid, -1, 0},
		{SYS_setresuid, 0, -1, 0},
		{SYS_setresgid, 0, 0, -1},
		{SYS_setfsuid, 0},
		{SYS_setfsgid, 0},
		{SYS_inotify_add_watch, watcher, S("nothing"), 1},
		{SYS_bind, nameless, S(&socket_name), sizeof(socket_name)},
	};

	pad(rows, COUNT(rows));
}

static void pad_paths(long dir)
{
	const long b = S(buffer), n = S("user.n"), to = S("nothing2");
	const long rows[][7] = {
		PATH_ROW(stat, b),
		PATH_ROW(lstat, b),
		PATH_ROW(access),
		PATH_ROW(readlink, b, 1),
		PATH_ROW(statfs, b),
		PATH_ROW(truncate),
		PATH_ROW(rename, to),
		PATH_ROW(link, to),
		PATH_ROW(unlink),
		PATH_ROW(rmdir),
		PATH_ROW(chmod),
		PATH_ROW(chown),
		PATH_ROW(lchown),
		PATH_ROW(utime, b),
		PATH_ROW(utimes, 0),
		PATH_ROW(chdir),
		PATH_ROW(chroot),
		PATH_ROW(getxattr, n, b, 1),
		PATH_ROW(lgetxattr, n, b, 1),
		PATH_ROW(setxattr, n, b, 1),
		PATH_ROW(lsetxattr, n, b, 1),
		PATH_ROW(listxattr, b, 1),
		PATH_ROW(llistxattr, b, 1),
		PATH_ROW(removexattr, n),
		PATH_ROW(lremovexattr, n),
		{SYS_mkdir, S("names"), 0700},
		{SYS_symlink, S("text"), S("names")},
		{SYS_mknod, S("names"), S_IFREG, 0},
		{SYS_creat, S("names"), 0600},
		{SYS_open, S("nothing"), 0, 0},
		{SYS_openat2, dir, S("nothing"), b, 1},
		AT_ROW(openat, 0),
		AT_ROW(newfstatat, b, 0),
		AT_ROW(statx, 0, 0, b),
		AT_ROW(faccessat, 0),
		AT_ROW(faccessat2, 0, 0),
		AT_ROW(name_to_handle_at, b, b, 0),
		AT_ROW(readlinkat, b, 1),
		AT_ROW(renameat, dir, to),
		AT_ROW(renameat2, dir, to, 0),
		AT_ROW(linkat, dir, to, 0),
		{SYS_symlinkat, S("text"), dir, S("names")},
		AT_ROW(unlinkat, 0),
		{SYS_mkdirat, dir, S("names"), 0700},
		{SYS_mknodat, dir, S("names"), S_IFREG, 0},
		AT_ROW(fchmodat, 0),
		AT_ROW(fchmodat2, 0, 0),
		AT_ROW(fchownat, 0, 0, 0),
		AT_ROW(futimesat, 0),
		AT_ROW(utimensat, 0, 0),
		AT_ROW(execveat, S(&(char *){NULL}), S(environ), 0),
	};

	pad(rows, COUNT(rows));
}

/* These create or remove something each time: they are padded in pairs, before the calls that
 * pad them. */
static void pad_pairs(int fd, int watcher)
{
	long at;

	while (!is_prime(counts[SYS_inotify_rm_watch])) {
		at = CALL(inotify_add_watch, watcher, S("."), IN_CREATE);
		CALL(inotify_rm_watch, watcher, at);
	}
	while (!is_prime(counts[SYS_dup]))
		CALL(close, CALL(dup, fd));
	while (!is_prime(counts[SYS_munmap])) {
		at = CALL(mmap, 0, PAGE, PROT_READ, MAP_SHARED, fd, 0);
		CALL(munmap, at, PAGE);
	}
	while (!is_prime(counts[SYS_msync])) {
		at = CALL(mmap, 0, PAGE, PROT_READ, MAP_SHARED, fd, 0);
		CALL(msync, at, PAGE, MS_ASYNC);
	}
	while (!is_prime(counts[SYS_close_range]))
		CALL(close_range, CALL(openat, AT_FDCWD, S("odir"), 0, 0), 0, 0); /* EINVAL */
}

void make_primes(void)
{
	int fd = make_file("padding"), watcher = inotify_init1(0), ends[2];
	long dir = CALL(openat, AT_FDCWD, S("."), O_RDONLY | O_DIRECTORY, 0);

	if (pipe(ends))
		return;
	pad_pairs(fd, watcher);
	pad_descriptors(fd, watcher, ends, socket(AF_UNIX, SOCK_STREAM, 0));
	pad_paths(dir);
	while (!is_prime(counts[SYS_execve] + 1)) /* one more started us */
		CALL(execve, S("nothing"), S(&(char *){NULL}), S(environ));
	CALL(close, dir);
	while (!is_prime(counts[SYS_close] + 1))
		CALL(close, CALL(openat, AT_FDCWD, S("o1"), O_RDONLY, 0));
	/* openat may have left its prime: nothing else depends on it now */
	while (!is_prime(counts[SYS_openat]))
		CALL(openat, AT_FDCWD, S("nothing"), O_RDONLY, 0);
	CALL(close, fd);
}
