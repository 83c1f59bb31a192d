/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, clones, names of sockets. */
#include "allcalls.h"

#include <linux/fs.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define PAGE 4096

void make_copies(void)
{
	int from = make_file("from"), to = make_file("to"), ends[2];
	int64_t in = 100, out = 0;

	CALL(write, from, S(buffer), 8000);
	CALL(copy_file_range, from, S(&in), to, S(&out), 500, 0);
	CALL(copy_file_range, from, S(&in), to, S(&out), 500, 1); /* EINVAL */
	CALL(lseek, from, 0, SEEK_SET);
	CALL(sendfile, to, from, 0, 300);
	in = 7;
	CALL(sendfile, to, from, S(&in), 200);
	if (pipe(ends))
		return;
	CALL(splice, from, 0, ends[1], 0, 1000, 0);
	CALL(splice, ends[0], 0, to, 0, 1000, 0);
	close(ends[0]);
	close(ends[1]);
	CALL(close, from);
	CALL(close, to);
}

void make_ioctls(void)
{
	int from = make_file("from"), to = make_file("clone");
	struct file_clone_range range = {from, PAGE, PAGE, 2 * PAGE}, odd = {from, 1, 1, 1};
	int flags;

	CALL(ioctl, to, FICLONE, from); /* EOPNOTSUPP on ext4 */
	CALL(ioctl, to, FICLONERANGE, S(&range));
	CALL(ioctl, to, FICLONERANGE, S(&odd)); /* EINVAL or EOPNOTSUPP */
	CALL(ioctl, from, FIONCLEX);
	CALL(ioctl, from, FIOCLEX);
	ioctl(to, FS_IOC_GETFLAGS, &flags); /* not recorded */
	CALL(close, from);
	CALL(close, to);
}

const struct sockaddr_un socket_name = {AF_UNIX, "socket"};

void make_sockets(void)
{
	struct sockaddr_un whole = {.sun_family = AF_UNIX}, abstract = {AF_UNIX, "\0spoolscope"};
	const struct sockaddr_un longer = {AF_UNIX, "name and more"};
	struct sockaddr_in port = {.sin_family = AF_INET};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(whole.sun_path, sizeof(whole.sun_path), "%s", absolute("other-socket"));
	CALL(bind, fd, S(&socket_name), sizeof(socket_name));
	CALL(bind, other, S(&socket_name), sizeof(socket_name)); /* EADDRINUSE */
	CALL(bind, other, S(&whole), sizeof(whole));
	close(fd);
	/* The given length counts: the name is "name", though more follows. */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CALL(bind, fd, S(&longer), sizeof(sa_family_t) + 4);
	close(fd);
	close(other);
	/* None of these is recorded; the kernel chooses the name of the first. */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(fd, (void *)&longer, sizeof(sa_family_t));
	close(fd);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(fd, (void *)&abstract, sizeof(abstract));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	bind(fd, (void *)&port, sizeof(port));
	close(fd);
}
