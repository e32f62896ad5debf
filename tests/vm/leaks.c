// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory that the kernel has lost, as kernels tell that were built to: objects
 * by kmemleak, which knows no pages, and pages by page_owner.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init.h"

#define KMEMLEAK	"/sys/kernel/debug/kmemleak"
#define PAGE_OWNER	"/sys/kernel/debug/page_owner_stacks"

/* kmemleak takes nothing for lost that is younger than 5 s. */
#define LEAK_SECONDS	6
#define STACK_MAX	4096

/* Twice, as an object is told of only if it is the same in two scans. */
static void scan(void)
{
	int fd = open(KMEMLEAK, O_WRONLY | O_CLOEXEC);

	sleep(LEAK_SECONDS);
	if (fd < 0 || write(fd, "scan\n", 5) != 5 || write(fd, "scan\n", 5) != 5)
		report("error cannot scan for leaks: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
}

void forget_leaks(void)
{
	if (access(KMEMLEAK, W_OK) < 0)
		return;
	scan();
	spill(KMEMLEAK, "clear\n");
}

void report_leaks(void)
{
	char *line = NULL;
	size_t size = 0;
	int count = 0;
	FILE *file;

	if (access(KMEMLEAK, W_OK) < 0)
		return;
	scan();
	file = fopen(KMEMLEAK, "re");
	if (!file) {
		report("error cannot read " KMEMLEAK ": %s", strerror(errno));
		return;
	}
	while (getline(&line, &size, file) > 0) {
		count += !strncmp(line, "unreferenced object", strlen("unreferenced object"));
		log_kernel("%s", line);
	}
	free(line);
	fclose(file);
	report("leaks %d", count);
}

/*
 * A stack is a line for each function, its module in brackets, then the number
 * of small pages that it allocated and that are still in use. What is smaller
 * than a huge page is page tables; slab is kmemleak's, and KASAN keeps much of
 * what has been freed. @kept of them are out of use for good.
 */
void report_module_pages(long kept)
{
	char stack[STACK_MAX] = "", *line = NULL;
	long pages, sum = 0;
	size_t size = 0;
	FILE *file;

	spill(PAGE_OWNER "/count_threshold", "512\n");
	file = fopen(PAGE_OWNER "/show_stacks", "re");
	if (!file)
		return;
	while (getline(&line, &size, file) > 0) {
		if (sscanf(line, "nr_base_pages: %ld", &pages) != 1) {
			if (strlen(stack) + strlen(line) < sizeof(stack))
				strcat(stack, line);
			continue;
		}
		if (strstr(stack, "]\n") && !strstr(stack, " allocate_slab+")) {
			log_kernel("actmem-vm: %ld pages from\n%s", pages, stack);
			sum += pages;
		}
		stack[0] = '\0';
	}
	free(line);
	fclose(file);
	report("pages %ld", sum - kept);
}
