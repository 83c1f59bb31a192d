/* SPDX-License-Identifier: Apache-2.0 */
/* A clock, and errors that end the run, for all load programs. */
#ifndef SPOOLSCOPE_LOOP_H
#define SPOOLSCOPE_LOOP_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

#endif
