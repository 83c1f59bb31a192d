/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that race for names, as hard as they can, and log the winners.
 *
 *	races SPOOL LOG SEED ROUNDS
 *
 * Deliverers and readers of one Maildir; files replaced and removed under one name; lock files
 * made by O_EXCL and by link(); an index under fcntl locks; folders made, filled and removed by
 * all at once. Every call whose result another process may decide becomes a line of LOG/<number>:
 *
 *	pid call path errno		(in the order of the calls of that process)
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dirent.h>

enum { DELIVERERS = 4, READERS = 4 };

static FILE *out;
static unsigned int seed;
static char data[4096];

/* A call that others may make fail. */
#define RACE(call, path, ...) noted(#call, path, call(__VA_ARGS__))

static long noted(const char *call, const char *path, long ret)
{
	int error = ret < 0 ? errno : 0;

	fprintf(out, "%d %s %s %d\n", getpid(), call, path, error);
	errno = error;
	return ret;
}

static const char *name_of(char *place, const char *format, ...)
{
	va_list rest;

	va_start(rest, format);
	vsnprintf(place, 64, format, rest);
	va_end(rest);
	return place;
}

static int chance(int of)
{
	return rand_r(&seed) % of == 0;
}

static void make(const char *path, int bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd < 0 || write(fd, data, bytes) != bytes || close(fd))
		exit(3);
}

/* One name that all processes replace and remove. */
static void replace(int number, int round)
{
	char own[64];
	int fd;

	make(name_of(own, "tmp/hot%d.%d", number, round), 1 + number);
	RACE(rename, "hot", own, "hot");
	if ((fd = RACE(open, "hot", "hot", O_RDONLY)) >= 0) {
		if (read(fd, data, sizeof(data)) < 0)
			exit(3);
		close(fd);
	}
	RACE(unlink, "hot", "hot");
}

/* Lock files: by O_EXCL, and the way that is safe over NFS. */
static void with_lock_file(int number, int round)
{
	char own[64];
	int fd = RACE(open, "list.lock", "list.lock", O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd >= 0) {
		if (write(fd, data, 100 + number) < 0)
			exit(3);
		close(fd);
		RACE(rename, "list.lock", "list.lock", "list");
	}
	make(name_of(own, "tmp/link%d.%d", number, round), 1);
	if (RACE(link, "mbox.lock", own, "mbox.lock") == 0)
		RACE(unlink, "mbox.lock", "mbox.lock");
	unlink(own);
}

/* An index that grows under a record lock. */
static void append(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open("index", O_RDWR | O_APPEND);

	if (fd < 0 || fcntl(fd, F_SETLKW, &lock) || write(fd, data, 24) != 24)
		exit(3);
	lock.l_type = F_UNLCK;
	fcntl(fd, F_SETLK, &lock);
	close(fd);
}

/* A folder that all processes make, fill, empty and remove. */
static void folder(int number)
{
	char inside[64], moved[64];
	int fd;

	name_of(inside, "box/m%d", number);
	RACE(mkdir, "box", "box", 0700);
	fd = RACE(open, inside, inside, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd >= 0)
		close(fd);
	RACE(rmdir, "box", "box");
	if (chance(3))
		RACE(rename, "box", "box", name_of(moved, "trash%d", number));
	RACE(unlink, inside, inside);
	RACE(rmdir, "box", "box");
	if (chance(2)) {
		unlink(name_of(inside, "trash%d/m%d", number, number));
		rmdir(name_of(moved, "trash%d", number));
	}
}

static void deliver(int number, int rounds)
{
	char from[64], to[64];

	for (int round = 0; round < rounds; round++) {
		make(name_of(from, "tmp/%d.%d", number, round), 1 + rand_r(&seed) % 4000);
		RACE(rename, from, from, name_of(to, "new/%d.%d", number, round));
		append();
		replace(number, round);
		with_lock_file(number, round);
		folder(number);
	}
}

static void take(const char *name)
{
	char from[400], to[400];

	snprintf(from, sizeof(from), "new/%s", name);
	snprintf(to, sizeof(to), "cur/%s:2,", name);
	RACE(rename, from, from, to);
}

static void look(const char *name)
{
	char path[400], flagged[400];
	int fd;

	snprintf(path, sizeof(path), "cur/%s", name);
	snprintf(flagged, sizeof(flagged), "cur/%sS", name);
	if ((fd = RACE(open, path, path, O_RDONLY)) >= 0) {
		if (read(fd, data, sizeof(data)) < 0)
			exit(3);
		close(fd);
	}
	if (name[strlen(name) - 1] == ',')
		RACE(rename, path, path, flagged);
	else if (chance(2))
		RACE(unlink, path, path);
}

static void scan(const char *directory, void (*act)(const char *), int at_most)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;

	if (!dir)
		exit(3);
	while (at_most > 0 && (entry = readdir(dir)))
		if (entry->d_name[0] != '.') {
			act(entry->d_name);
			at_most--;
		}
	closedir(dir);
}

static void watch(int number, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		scan("new", take, 8);
		scan("cur", look, 8);
		replace(number, round);
		with_lock_file(number, round);
		folder(number);
	}
}

int main(int argc, char **argv)
{
	char path[400];
	int status, failed = 0;

	if (argc != 5 || chdir(argv[1]))
		return 2;
	mkdir("tmp", 0700);
	mkdir("new", 0700);
	mkdir("cur", 0700);
	make("index", 1);
	for (int number = 0; number < DELIVERERS + READERS; number++)
		if (fork() == 0) {
			seed = atoi(argv[3]) * 100 + number;
			snprintf(path, sizeof(path), "%s/%d", argv[2], number);
			if (!(out = fopen(path, "w")))
				return 3;
			(number < DELIVERERS ? deliver : watch)(number, atoi(argv[4]));
			return fclose(out) != 0;
		}
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
