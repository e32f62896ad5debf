/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "malloc_test.h"

static int read_counters(void *counters, int fd)
{
	if (pread(fd, counters, sizeof(struct malloc_counters), 0) !=
	    sizeof(struct malloc_counters))
		tap_bail("what this process publishes is too short");
	close(fd);
	return 0;
}

struct malloc_counters counters_now(void)
{
	struct malloc_counters counters = { 0 };

	published_walk(getpid(), &published_malloc, read_counters, &counters);
	return counters;
}

/* Where the kernel names anonymous memory; else all that the process has. */
size_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	bool ours = false, any = false;
	size_t sum = 0, all = 0, kib;
	char line[512];

	if (!file)
		tap_bail("/proc/self/smaps");
	while (fgets(line, sizeof(line), file)) {
		if (strstr(line, "[anon:actmem-malloc]"))
			ours = any = true;
		if (sscanf(line, "Rss: %zu kB", &kib) != 1)
			continue;
		sum += ours ? kib * 1024 : 0;
		all += kib * 1024;
		ours = false;
	}
	fclose(file);
	return any ? sum : all;
}

static unsigned char pattern(size_t at, unsigned int seed)
{
	return (unsigned char)((at * 2654435761U >> 16) + seed * 41 + 7);
}

/* Each page's first bytes, and the last of all. */
void fill(void *memory, size_t bytes, unsigned int seed)
{
	unsigned char *at = memory;
	size_t i;

	for (i = 0; i < bytes; i += i % 4096 < 8 ? 1 : 4088)
		at[i] = pattern(i, seed);
	at[bytes - 1] = pattern(bytes - 1, seed);
}

bool is_filled(const void *memory, size_t bytes, unsigned int seed)
{
	const unsigned char *at = memory;
	size_t i;

	for (i = 0; i + 1 < bytes; i += i % 4096 < 8 ? 1 : 4088)
		if (at[i] != pattern(i, seed))
			return false;
	return at[bytes - 1] == pattern(bytes - 1, seed);
}

bool is_zero(const void *memory, size_t bytes)
{
	const char *at = memory;

	return !*at && !memcmp(at, at + 1, bytes - 1);
}

bool in_child(bool (*body)(void))
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child < 0)
		tap_bail("fork");
	if (!child)
		_exit(!body());
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}
