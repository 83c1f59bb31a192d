// Asks for fsyncs from functions of known names, so often as the arguments say: PATH INDEX MAIL RAW.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static volatile int done; // so that no call is the last thing that a function does

APART void sync_index(int fd)
{
	fsync(fd);
	done++;
}

APART void sync_mail(int fd)
{
	fdatasync(fd);
	done++;
}

APART void sync_raw(int fd)
{
	syscall(SYS_fsync, fd);
	done++;
}

APART void deliver(int fd, void (*sync)(int), int n)
{
	for (int i = 0; i < n; i++) {
		if (write(fd, "x", 1) != 1)
			exit(1);
		sync(fd);
		done++;
	}
}

int main(int argc, char **argv)
{
	int fd = argc == 5 ? open(argv[1], O_CREAT | O_WRONLY, 0600) : -1;

	if (fd < 0)
		return 1;
	deliver(fd, sync_index, atoi(argv[2]));
	deliver(fd, sync_mail, atoi(argv[3]));
	deliver(fd, sync_raw, atoi(argv[4]));
	getchar(); // until it has been looked at
	return 0;
}
