/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads /dev/kmsg: one record for each read(), "PRIORITY,NUMBER,TIME,FLAGS;LINE\n KEY=VALUE\n".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "machine/kernel_log.h"

/* The maximum length of a record that the kernel returns. */
#define RECORD_MAX	8192

int kernel_log_open(const char *path)
{
	int log = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	int error;

	if (log < 0)
		return -errno;
	if (lseek(log, 0, SEEK_END) >= 0)
		return log;
	error = -errno;
	close(log);
	return error;
}

/* NVIDIA's driver logs the program's virtual address, not a hash of it. */
static bool is_refusal(const char *line, const void *address, uint64_t length)
{
	unsigned long long base;

	return sscanf(line, "Cannot map memory with base addr %llx", &base) == 1 &&
	       base - (uintptr_t)address < length;
}

bool kernel_log_find_refusal(int log, const void *address, uint64_t length,
			     char line[KERNEL_LOG_LINE_MAX])
{
	char record[RECORD_MAX + 1], *begin;
	ssize_t got;

	for (;;) {
		got = read(log, record, RECORD_MAX);
		/* EPIPE: the kernel has overwritten the next records with newer ones. */
		if (got < 0 && (errno == EINTR || errno == EPIPE))
			continue;
		if (got <= 0)
			return false;
		record[got] = '\0';
		begin = strchr(record, ';');
		if (!begin++ || !is_refusal(begin, address, length))
			continue;
		snprintf(line, KERNEL_LOG_LINE_MAX, "%.*s", (int)strcspn(begin, "\n"), begin);
		return true;
	}
}
