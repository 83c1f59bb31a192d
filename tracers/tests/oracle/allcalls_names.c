/* SPDX-License-Identifier: Apache-2.0 */
/* Names and attributes: stat, rename, link, modes, times, extended attributes. */
#include "allcalls.h"

#include <linux/stat.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <utime.h>

static void look(const char *name, int dir)
{
	struct stat st;
	char answer[512]; /* larger than a struct statx */
	unsigned int handle[40] = {128}, small[2] = {0}; /* struct file_handle */
	int mount;

	CALL(stat, S(name), S(&st));
	CALL(lstat, S(name), S(&st));
	CALL(newfstatat, dir, S(name), S(&st), AT_SYMLINK_NOFOLLOW);
	CALL(statx, dir, S(name), AT_STATX_SYNC_AS_STAT, STATX_BASIC_STATS, S(answer));
	CALL(access, S(name), R_OK);
	CALL(faccessat, dir, S(name), W_OK);
	CALL(faccessat2, dir, S(name), F_OK, AT_SYMLINK_NOFOLLOW);
	CALL(readlink, S(name), S(answer), 100);
	CALL(readlinkat, dir, S(name), S(answer), 3);
	CALL(statfs, S(name), S(answer));
	CALL(name_to_handle_at, dir, S(name), S(handle), S(&mount), 0);
	CALL(name_to_handle_at, dir, S(name), S(small), S(&mount),
	     AT_SYMLINK_FOLLOW); /* EOVERFLOW */
}

void make_stats(void)
{
	struct stat st;
	char answer[4096];
	int fd = make_file("seen");
	long dir = CALL(openat, AT_FDCWD, S("."), O_RDONLY | O_DIRECTORY, 0);

	CALL(write, fd, S(buffer), 321);
	CALL(symlink, S("seen"), S("seen-link"));
	look("seen", dir);
	look("seen-link", dir);
	look("nothing", dir); /* ENOENT */
	look("seen/nothing", dir); /* ENOTDIR */
	look(absolute("seen"), -1);
	CALL(fstat, fd, S(&st));
	CALL(newfstatat, fd, S(""), S(&st), AT_EMPTY_PATH);
	CALL(statx, fd, S(""), AT_EMPTY_PATH, STATX_BASIC_STATS, S(answer));
	CALL(newfstatat, dir, S("seen"), S(&st), 0x40000000); /* EINVAL */
	CALL(fstatfs, fd, S(answer));
	REPEAT(3)
	CALL(getdents64, dir, S(answer), sizeof(answer));
	CALL(lseek, dir, 0, SEEK_SET);
	CALL(getdents, dir, S(answer), sizeof(answer));
	CALL(getdents64, fd, S(answer), sizeof(answer)); /* ENOTDIR */
	CALL(getdents64, dir, S(answer), 1); /* EINVAL or end */
	CALL(close, dir);
	CALL(close, fd);
}

static void name_at(long dir)
{
	CALL(mkdirat, dir, S("sub"), 0750);
	CALL(mkdirat, dir, S("sub"), 0750); /* EEXIST */
	CALL(mknodat, dir, S("fifo"), S_IFIFO | 0600, 0);
	CALL(mknodat, dir, S("plain"), S_IFREG | 0600, 0);
	CALL(linkat, dir, S("plain"), dir, S("hard"), 0);
	CALL(linkat, dir, S("plain"), AT_FDCWD, S("hard2"), AT_SYMLINK_FOLLOW);
	CALL(linkat, dir, S("nothing"), dir, S("hard3"), 0); /* ENOENT */
	CALL(symlinkat, S("some target text"), dir, S("soft"));
	CALL(symlinkat, S("t"), dir, S("soft")); /* EEXIST */
	CALL(renameat, dir, S("plain"), dir, S("renamed"));
	CALL(renameat, dir, S("plain"), AT_FDCWD, S("renamed")); /* ENOENT */
	CALL(renameat2, dir, S("hard"), dir, S("renamed"), RENAME_NOREPLACE); /* EEXIST */
	CALL(renameat2, dir, S("fifo"), dir, S("renamed"), RENAME_EXCHANGE);
	CALL(unlinkat, dir, S("sub"), 0); /* EISDIR */
	CALL(unlinkat, dir, S("sub/x"), 0); /* ENOENT */
	CALL(unlinkat, dir, S("sub"), AT_REMOVEDIR);
	CALL(unlinkat, dir, S("hard"), AT_REMOVEDIR); /* ENOTDIR */
	CALL(unlinkat, dir, S("hard"), 0);
}

void make_names(void)
{
	long dir;

	CALL(mkdir, S("names"), 0755);
	CALL(mkdir, S(absolute("names")), 0755); /* EEXIST */
	CALL(mkdir, S("none/x"), 0755); /* ENOENT */
	dir = CALL(open, S("names"), O_RDONLY | O_DIRECTORY, 0);
	name_at(dir);
	CALL(mknod, S("node"), S_IFREG | 0600, 0);
	CALL(mknod, S("node"), S_IFREG | 0600, 0); /* EEXIST */
	CALL(link, S("node"), S(absolute("names/node2")));
	CALL(link, S("names"), S("dirlink")); /* EPERM */
	CALL(symlink, S("../away"), S("names/up"));
	CALL(rename, S("node"), S("names/moved"));
	CALL(rename, S(absolute("names/moved")), S(absolute("node")));
	CALL(rename, S("nothing"), S("node")); /* ENOENT */
	CALL(rename, S("names"), S("names/x")); /* EINVAL */
	CALL(rename, S("node"), S("names")); /* EISDIR */
	CALL(rmdir, S("names")); /* ENOTEMPTY */
	CALL(rmdir, S("node")); /* ENOTDIR */
	CALL(rmdir, S("nothing")); /* ENOENT */
	CALL(unlink, S("names")); /* EISDIR */
	CALL(unlink, S("node"));
	CALL(unlink, S(absolute("node"))); /* ENOENT */
	CALL(mkdir, S("brief"), 0700);
	CALL(rmdir, S(absolute("brief")));
	CALL(close, dir);
}

static void set_times(int fd, long dir)
{
	struct timespec times[2] = {{1000000000, 5}, {1100000000, 7}};
	struct timeval tv[2] = {{1000000000, 5}, {1100000000, 7}};
	struct utimbuf old = {1000000000, 1100000000};

	CALL(utime, S("modes"), S(&old));
	CALL(utime, S("nothing"), 0); /* ENOENT */
	CALL(utimes, S("modes"), S(tv));
	CALL(futimesat, dir, S("modes"), S(tv));
	CALL(utimensat, AT_FDCWD, S("modes"), S(times), AT_SYMLINK_NOFOLLOW);
	CALL(utimensat, fd, 0, S(times), 0); /* futimens */
	CALL(utimensat, AT_FDCWD, S("nothing"), 0, 0);
}

void make_modes(void)
{
	int fd = make_file("modes");
	long dir = CALL(open, S(absolute(".")), O_RDONLY | O_DIRECTORY, 0);

	CALL(symlink, S("modes"), S("modes-link"));
	CALL(chmod, S("modes"), 0600);
	CALL(chmod, S("nothing"), 0600);
	CALL(fchmod, fd, 0640);
	CALL(fchmodat, dir, S("modes"), 0644);
	CALL(fchmodat2, dir, S("modes"), 0660, 0);
	CALL(fchmodat2, dir, S("modes-link"), 0600, AT_SYMLINK_NOFOLLOW);
	CALL(chown, S("modes"), 1001, 1002);
	CALL(chown, S("modes"), -1, 1003);
	CALL(lchown, S("modes-link"), 1004, -1);
	CALL(fchown, fd, 0, 0);
	CALL(fchownat, dir, S("modes"), 1005, 1006, AT_SYMLINK_NOFOLLOW);
	CALL(fchownat, fd, S(""), 1007, 1008, AT_EMPTY_PATH);
	CALL(fchownat, dir, S("nothing"), 0, 0, 0);
	set_times(fd, dir);
	CALL(close, dir);
	CALL(close, fd);
}

/* linux/posix_acl_xattr.h: a version, and entries of tag, rights and id. */
struct acl_entry {
	uint16_t tag, rights;
	uint32_t id;
} __attribute__((packed));

struct acl {
	uint32_t version;
	struct acl_entry entries[5];
} __attribute__((packed));

void make_xattrs(void)
{
	const struct acl plain = {2, {{1, 6, -1}, {4, 2, -1}, {32, 1, -1}}};
	const struct acl named = {2,
				  {{1, 7, -1}, {2, 4, 2000}, {4, 1, -1}, {16, 5, -1}, {32, 4, -1}}};
	const long plain_size = 28;
	char value[256];
	int fd = make_file("attributes");
	long path = S("attributes"), name = S("user.spool"), none = S("user.none");

	CALL(setxattr, path, name, S("v"), 1, 0);
	CALL(setxattr, path, name, S("v"), 1, 1); /* EEXIST: XATTR_CREATE */
	CALL(lsetxattr, path, S("user.second"), S("vw"), 2, 0);
	CALL(fsetxattr, fd, S("user.third"), S("vwx"), 3, 1);
	CALL(setxattr, path, S("system.posix_acl_access"), S(&plain), plain_size, 0);
	CALL(fsetxattr, fd, S("system.posix_acl_access"), S(&named), sizeof(named), 0);
	CALL(setxattr, path, S("user.as_long"), S(&plain), plain_size, 0);
	CALL(getxattr, path, name, S(value), sizeof(value));
	CALL(getxattr, path, none, S(value), sizeof(value)); /* ENODATA */
	CALL(getxattr, path, S("user.third"), S(value), 2); /* ERANGE */
	CALL(lgetxattr, path, S("user.second"), S(value), sizeof(value));
	CALL(fgetxattr, fd, S("user.third"), S(value), sizeof(value));
	CALL(listxattr, path, S(value), sizeof(value));
	CALL(listxattr, S("nothing"), S(value), sizeof(value)); /* ENOENT */
	CALL(llistxattr, path, S(value), 0);
	CALL(flistxattr, fd, S(value), sizeof(value));
	CALL(removexattr, path, none); /* ENODATA */
	CALL(removexattr, path, name);
	CALL(lremovexattr, path, S("user.second"));
	CALL(fremovexattr, fd, S("user.third"));
	CALL(close, fd);
}

/* Mount a filesystem below the work directory for a moment: names that lead there are not of the
 * spool. */
void make_mounts(void)
{
	const long none = S("none"), name = S("mounted"), kind = S("tmpfs");

	CALL(mkdir, name, 0755);
	CALL(mount, none, name, kind, 0, 0);
	CALL(mount, none, S("nothing"), kind, 0, 0); /* ENOENT */
	CALL(umount2, name, 0);
	CALL(umount2, name, 0); /* EINVAL: no longer mounted */
	CALL(umount2, S("nothing"), 0); /* ENOENT */
	CALL(close, CALL(open_tree, AT_FDCWD, name, 0));
	CALL(open_tree, AT_FDCWD, S("nothing"), 0); /* ENOENT */
	CALL(move_mount, AT_FDCWD, name, AT_FDCWD, S("names"), 0); /* EINVAL: not mounted */
	CALL(move_mount, AT_FDCWD, S("nothing"), AT_FDCWD, name, 0); /* ENOENT */
	CALL(rmdir, name);
}
