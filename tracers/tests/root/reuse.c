/* One number for three tasks, one after the other: a thread, then two processes that inherit
 * descriptor 20. Run in the directory to work in; says the number. Ends with 3 if the kernel does
 * not let us choose the number (CONFIG_CHECKPOINT_RESTORE). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define INHERITED 20

static void *thread(void *tid)
{
	*(pid_t *)tid = gettid();
	prctl(PR_SET_NAME, "one");
	access("of-one", F_OK);
	return NULL;
}

static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};

	for (int i = 0; i < 1000; i++) {
		long child = syscall(SYS_clone3, &args, sizeof(args));

		if (child >= 0 || errno != EEXIST)
			return child;
		usleep(1000); /* a thread that was joined may not be gone yet */
	}
	return -1;
}

static int live_as(pid_t pid, const char *name, const char *file)
{
	pid_t child = fork_as(pid);

	if (child < 0)
		return 3;
	if (child) {
		waitpid(child, NULL, 0);
		return 0;
	}
	prctl(PR_SET_NAME, name);
	if (write(INHERITED, "x", 1) != 1) /* the parent's file */
		_exit(1);
	close(INHERITED);
	dup2(open(file, O_CREAT | O_WRONLY, 0600), INHERITED);
	_exit(write(INHERITED, "xy", 2) != 2); /* its own */
}

int main(void)
{
	pthread_t one;
	pid_t tid;
	int status;

	dup2(open("of-parent", O_CREAT | O_WRONLY, 0600), INHERITED);
	pthread_create(&one, NULL, thread, &tid);
	pthread_join(one, NULL);
	printf("%d\n", tid);
	status = live_as(tid, "two", "of-two");
	return status ? status : live_as(tid, "three", "of-three");
}
