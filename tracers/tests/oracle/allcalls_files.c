/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, reading, writing, descriptors and locks. */
#include "allcalls.h"

#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/uio.h>

static void open_wrongly(void)
{
	char name[300];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	CALL(open, S("o1"), O_RDWR | O_CREAT | O_EXCL, 0600); /* EEXIST */
	CALL(open, S("none/x"), O_RDONLY, 0); /* ENOENT */
	CALL(open, S("o1/x"), O_RDONLY, 0); /* ENOTDIR */
	CALL(open, S(absolute(".")), O_WRONLY, 0); /* EISDIR */
	CALL(open, S("olink"), O_RDONLY | O_NOFOLLOW, 0); /* ELOOP */
	CALL(open, S(name), O_RDONLY, 0); /* ENAMETOOLONG */
	CALL(open, S(""), O_RDONLY, 0); /* ENOENT */
	CALL(creat, S("odir"), 0600); /* EISDIR */
	CALL(openat, AT_FDCWD, S("o1"), O_RDONLY | O_DIRECTORY, 0); /* ENOTDIR */
}

static void open_at(void)
{
	struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH};
	long dir, fd;

	CALL(mkdir, S("odir"), 0755);
	dir = CALL(open, S("odir"), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	fd = CALL(openat, dir, S("inside"), O_RDWR | O_CREAT | O_EXCL, 0604);
	CALL(close, fd);
	fd = CALL(openat, -1, S(absolute("odir/inside")), O_RDONLY, 0);
	CALL(openat, fd, S("x"), O_RDONLY, 0); /* ENOTDIR: a file as directory */
	CALL(close, fd);
	fd = CALL(openat, dir, S("."), O_RDWR | O_TMPFILE, 0600);
	CALL(write, fd, S(buffer), 17);
	CALL(close, fd);
	fd = CALL(openat2, dir, S("inside"), S(&how), sizeof(how));
	CALL(close, fd);
	CALL(openat2, dir, S("../o1"), S(&how), sizeof(how)); /* EXDEV */
	CALL(openat2, dir, S("nothing"), S(&how), sizeof(how)); /* ENOENT */
	how.flags = O_RDWR | O_CREAT;
	how.mode = 0640;
	fd = CALL(openat2, AT_FDCWD, S("o2"), S(&how), sizeof(how));
	CALL(close, fd);
	CALL(close, dir);
}

/* A path of more than 256 bytes: longer than the recorder's short records. */
static void open_deep(void)
{
	char name[512] = "";
	long fd;

	for (int level = 0; level < 3; level++) {
		memset(name + strlen(name), 'a' + level, 120);
		CALL(mkdirat, AT_FDCWD, S(name), 0755);
		strcat(name, "/");
	}
	strcat(name, "file");
	fd = CALL(open, S(name), O_WRONLY | O_CREAT, 0600);
	CALL(close, fd);
	CALL(rename, S(name), S(absolute("shallow")));
}

void make_opens(void)
{
	long fd;

	fd = CALL(creat, S("o1"), 0644);
	CALL(close, fd);
	CALL(symlink, S("o1"), S("olink"));
	fd = CALL(open, S("olink"), O_RDWR | O_APPEND, 0);
	CALL(close, fd);
	fd = CALL(open, S(absolute("o1")), O_RDWR | O_TRUNC | O_NOATIME | O_SYNC, 0);
	CALL(close, fd);
	fd = CALL(open, S(".//./o1"), O_RDONLY | O_NONBLOCK, 0);
	CALL(close, fd);
	open_at();
	open_wrongly();
	open_deep();
}

static void write_and_read(int fd, struct iovec *iov)
{
	REPEAT(3)
	{
		CALL(write, fd, S(buffer), 1000 + round);
		CALL(pwrite64, fd, S(buffer), 100, 50 + round);
		CALL(writev, fd, S(iov), 3);
		CALL(pwritev, fd, S(iov), 2, 4096, 0);
		CALL(pwritev2, fd, S(iov), 2, 8192, 0, 0);
	}
	CALL(lseek, fd, 0, SEEK_SET);
	REPEAT(3)
	{
		CALL(read, fd, S(buffer), 700);
		CALL(pread64, fd, S(buffer), 33, 9);
		CALL(readv, fd, S(iov), 3);
		CALL(preadv, fd, S(iov), 2, 100, 0);
		CALL(preadv2, fd, S(iov), 2, 100, 0, 0);
	}
}

void make_data(void)
{
	struct iovec iov[3] = {{buffer, 11}, {buffer + 100, 0}, {buffer + 200, 1300}};
	int fd = make_file("data");
	int closed = CALL(open, S("data"), O_RDONLY, 0);

	write_and_read(fd, iov);
	CALL(lseek, fd, -5, SEEK_END);
	CALL(read, fd, S(buffer), 100); /* short: 5 bytes */
	CALL(read, fd, S(buffer), 100); /* 0: end of file */
	CALL(lseek, fd, -1, SEEK_SET); /* EINVAL */
	CALL(pread64, fd, S(buffer), 10, -1); /* EINVAL */
	CALL(write, closed, S(buffer), 10); /* EBADF: not open for writing */
	CALL(ftruncate, closed, 10); /* EINVAL */
	CALL(read, fd, 8, 10); /* EFAULT */
	CALL(ftruncate, fd, 5000);
	CALL(truncate, S(absolute("data")), 6000);
	CALL(truncate, S("nothing"), 6000); /* ENOENT */
	CALL(fallocate, fd, 0, 0, 65536);
	CALL(fallocate, fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 4096, 8192);
	CALL(fallocate, fd, 0, 0, 0); /* EINVAL */
	CALL(fsync, fd);
	CALL(fdatasync, fd);
	CALL(sync_file_range, fd, 0, 4096, 2);
	CALL(syncfs, fd);
	CALL(sync);
	CALL(fadvise64, fd, 0, 0, POSIX_FADV_WILLNEED);
	CALL(readahead, fd, 0, 16384);
	CALL(close, closed);
	CALL(close, fd);
}

void make_descriptors(void)
{
	int fd = make_file("fds");
	long copy;

	copy = CALL(dup, fd);
	CALL(write, copy, S(buffer), 10);
	CALL(dup2, fd, 77);
	CALL(dup2, 77, 77); /* same: nothing happens */
	CALL(dup3, fd, 78, O_CLOEXEC);
	CALL(dup3, fd, fd, 0); /* EINVAL */
	CALL(read, 77, S(buffer), 3); /* shares the offset: end of file */
	CALL(close, copy);
	copy = CALL(fcntl, fd, F_DUPFD, 90);
	CALL(fcntl, copy, F_SETFD, FD_CLOEXEC);
	CALL(fcntl, copy, F_GETFD);
	CALL(close, copy);
	copy = CALL(fcntl, fd, F_DUPFD_CLOEXEC, 91);
	CALL(close_range, copy, copy, 0);
	CALL(close_range, 77, 78, 0);
	CALL(close, fd);
}

void make_locks(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 40};
	int fd = make_file("locks"), other = make_file("locks");

	CALL(fcntl, fd, F_SETLK, S(&lock));
	CALL(fcntl, fd, F_SETLKW, S(&lock));
	CALL(fcntl, fd, F_GETLK, S(&lock));
	lock = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 100};
	CALL(fcntl, other, F_OFD_SETLK, S(&lock));
	lock.l_type = F_WRLCK;
	CALL(fcntl, fd, F_OFD_SETLK, S(&lock)); /* EAGAIN */
	lock.l_type = F_UNLCK;
	CALL(fcntl, other, F_OFD_SETLKW, S(&lock));
	CALL(fcntl, fd, F_SETLK, S(&lock));
	CALL(fcntl, fd, F_GETFL);
	CALL(fcntl, fd, F_SETFL, O_APPEND | O_NONBLOCK);
	CALL(fcntl, fd, 4711, 0); /* EINVAL */
	CALL(flock, fd, LOCK_EX);
	CALL(flock, other, LOCK_SH | LOCK_NB); /* EAGAIN */
	CALL(flock, fd, LOCK_UN);
	CALL(close, other);
	CALL(close, fd);
}
