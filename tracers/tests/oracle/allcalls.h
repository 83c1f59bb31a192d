/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the parts of allcalls share: issuing a call, counting it, naming files. */
#ifndef ALLCALLS_H
#define ALLCALLS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

#define MAX_NR 512
#define S(pointer) ((long)(uintptr_t)(pointer))
#define REPEAT(n) for (int round = 0; round < (n); round++)

/* Every call goes through here, so that the legacy forms are really issued and counted. */
#define CALL(name, ...) issue(SYS_##name, (long[6]){__VA_ARGS__})

extern unsigned *counts; /* by number; shared memory, children count too */
extern char buffer[8192];
extern const struct sockaddr_un socket_name; /* made by make_sockets() */
extern const char *directory; /* absolute path of the work directory */

long issue(long nr, const long args[6]);
char *absolute(const char *name); /* name below the directory; good for the next 3 uses */
int make_file(const char *name); /* an open descriptor, made with openat */

/* parts, in the order they run */
void make_opens(void);
void make_data(void);
void make_descriptors(void);
void make_locks(void);
void make_stats(void);
void make_names(void);
void make_modes(void);
void make_xattrs(void);
void make_mounts(void);
void make_maps(void);
void make_copies(void);
void make_ioctls(void);
void make_sockets(void);
void make_watches(void);
void make_tasks(const char *self);
void make_primes(void); /* more of each until its count is prime */

#endif
