/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The child of this program opens a backend of its own and writes to its parent's region. After
 * fork(2), the library closes the region's descriptor in the child, but not a duplicate of it.
 */
#include <actmem.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(int fd)
{
	struct actmem_region *region;
	struct actmem *am;
	void *memory;

	if (actmem_open(&am, NULL) ||
	    actmem_region_from_fd(am, fd, &region) ||
	    actmem_region_map(region, &memory)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	strcpy(memory, "hello");
	actmem_region_close(region);
	return actmem_close(am) != 0;
}

int main(void)
{
	struct actmem_region_options options;
	struct actmem_region *region;
	struct actmem *am;
	void *memory;
	int fd, status = 1;
	pid_t pid;

	ACTMEM_INIT(&options);
	options.length = 2 << 20;
	if (actmem_open(&am, NULL) ||
	    actmem_region_create(am, &options, &region) ||
	    actmem_region_map(region, &memory)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	fd = dup(actmem_region_fd(region));
	pid = fork();
	if (!pid)
		_exit(child(fd));
	close(fd);
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
		return 1;
	puts(memory);
	actmem_region_close(region);
	return actmem_close(am) != 0;
}
