/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Lines of NVIDIA's driver in the kernel's log: in a file of the same form, and in the log itself
 * if this process may write to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"
#include "machine/kernel_log.h"

/* No program has memory there. */
#define BASE	0x7654321000000ULL
#define BYTES	0x200000ULL

struct log {
	int writer, reader;
	const char *header;		/* of a record; the kernel writes its own */
};

static void log_line(const struct log *log, const char *driver, uint64_t base)
{
	char record[256];
	int length = snprintf(record, sizeof(record),
			      "%sCannot map memory with base addr 0x%llx and size of 0x200 pages%s\n",
			      log->header, (unsigned long long)base, driver);

	assert_int_equal(write(log->writer, record, (size_t)length), length);
}

static bool finds(const struct log *log, char line[KERNEL_LOG_LINE_MAX])
{
	return kernel_log_find_refusal(log->reader, (void *)(uintptr_t)BASE, BYTES, line);
}

static void try_log(const char *path, const char *header)
{
	struct log log = { open(path, O_WRONLY | O_APPEND | O_CLOEXEC), -1, header };
	char line[KERNEL_LOG_LINE_MAX] = "";

	assert_true(log.writer >= 0);
	log_line(&log, "", BASE);
	log.reader = kernel_log_open(path);
	assert_true(log.reader >= 0);
	assert_false(finds(&log, line));
	log_line(&log, "", BASE - 1);
	assert_false(finds(&log, line));
	log_line(&log, "", BASE + BYTES);
	assert_false(finds(&log, line));
	assert_string_equal(line, "");
	log_line(&log, " (last)", BASE + BYTES - 1);
	assert_true(finds(&log, line));
	assert_string_equal(line, "Cannot map memory with base addr 0x76543211fffff and size of 0x200 pages (last)");
	log_line(&log, " (first)", BASE);
	assert_true(finds(&log, line));
	assert_non_null(strstr(line, "0x7654321000000 and size of 0x200 pages (first)"));
	assert_false(finds(&log, line));
	close(log.reader);
	close(log.writer);
}

static void test_file(void **state)
{
	char path[] = "/tmp/actmem-log-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	try_log(path, "4,1234,5678901,-;");
	assert_int_equal(unlink(path), 0);
	close(fd);
	assert_int_equal(kernel_log_open(path), -ENOENT);
}

/* A record that has only its header, and one without. */
static void test_odd_records(void **state)
{
	char path[] = "/tmp/actmem-log-XXXXXX", line[KERNEL_LOG_LINE_MAX];
	struct log log = { mkstemp(path), -1, "" };

	assert_true(log.writer >= 0);
	log.reader = kernel_log_open(path);
	assert_true(log.reader >= 0);
	assert_int_equal(write(log.writer, "4,1,2,-;", 8), 8);
	assert_false(finds(&log, line));
	log_line(&log, "", BASE);
	assert_false(finds(&log, line));
	assert_int_equal(unlink(path), 0);
	close(log.reader);
	close(log.writer);
}

static void test_kernel(void **state)
{
	if (access(KERNEL_LOG, R_OK | W_OK))
		skip();
	try_log(KERNEL_LOG, "<7>");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_odd_records),
		cmocka_unit_test(test_kernel),
	};

	return cmocka_run_group_tests_name("kernel log", tests, NULL, NULL);
}
