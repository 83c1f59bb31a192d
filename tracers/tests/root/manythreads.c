/* Threads that live for one call each: manythreads DIRECTORY THREADS. Thread i is named i and
 * looks for the name i in the directory. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define AT_ONCE 4

static const char *directory;

static void *live(void *number)
{
	char name[16], path[4096];

	snprintf(name, sizeof(name), "%ld", (long)number);
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	prctl(PR_SET_NAME, name);
	access(path, F_OK);
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc == 3 ? atol(argv[2]) : 0;
	pthread_t alive[AT_ONCE];
	pthread_attr_t small;

	directory = argv[1];
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (long i = 0; i < threads; i += AT_ONCE) {
		for (long k = 0; k < AT_ONCE; k++)
			if (pthread_create(&alive[k], &small, live, (void *)(i + k)))
				return 1;
		for (long k = 0; k < AT_ONCE; k++)
			pthread_join(alive[k], NULL);
	}
	return 0;
}
