// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * actmem waits: shows what the processes that use the library wait for now, and which processes
 * must return memory (reclaim.h). Each process publishes its waits (lib/watch/waits.h) in a memfd.
 * The memfd can contain invalid data, and the process can change it at any time. So this command
 * reads the memfd instead of mapping it.
 */
#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "machine/machine.h"
#include "reclaim.h"
#include "table.h"
#include "tool.h"
#include "watch/watch.h"

#define PATH_SIZE	64

static const char help[] =
	"Shows what the processes that use actmem wait for now, and how long they have waited:\n"
	"for a disk, for memory, or for nothing (the process then runs its own code). Also shows\n"
	"the processes that have more memory than a limit allows.\n"
	"\n"
	"  -J, --json     print JSON; sizes are bytes\n"
	"  -b, --bytes    print sizes as bytes, not as 64M or 1.5G\n"
	"  -h, --help     print this\n"
	"\n"
	"One line for each thread that waits, and for each queue with transfers in flight.\n"
	"WAITS FOR:\n"
	"\n"
	"  memory    a thread waits for memory within the budget, until a block is written or\n"
	"            taken\n"
	"  block     a thread waits for a block that is being read from its file\n"
	"  region    a thread waits until pages are allocated, zeroed and pinned\n"
	"  register  a thread waits for an accelerator's driver, which pins a region\n"
	"  device    a thread waits for a GPU, until its streams have done their work\n"
	"  file      a thread waits for disk space, which the file system allocates\n"
	"  read      a disk has REQUESTS in flight; the oldest, of BYTES, is a read\n"
	"  write     a disk has REQUESTS in flight; the oldest, of BYTES, is a write\n"
	"  others    REQUESTS is the number of further waits, which are not listed\n"
	"  nothing   the process waits for none of these. SECONDS: time since its last wait\n"
	"  unknown   the library of the process does not publish waits\n"
	"\n"
	"SECONDS: how long the thread, or the oldest request, has waited. WHAT: the block, the\n"
	"region, the GPU, or the folder of the files.";

static const char *const kinds[WAIT_KINDS] = {
	[WAIT_NONE] = "nothing",
	[WAIT_MEMORY] = "memory",
	[WAIT_BLOCK] = "block",
	[WAIT_REGION] = "region",
	[WAIT_REGISTER] = "register",
	[WAIT_FILE] = "file",
	[WAIT_READ] = "read",
	[WAIT_WRITE] = "write",
	[WAIT_DEVICE] = "device",
};

struct process {
	json_t *rows;
	int pid;
	uid_t uid;
	char command[16];
	bool is_found;			/* the process publishes a file */
	bool is_unknown;		/* a published file has no waits */
	uint64_t last;			/* when the last wait ended, in ns; 0: never */
	size_t waits;
};

/*
 * Converts @own, a thread's id in its own PID namespace, to the id in this command's PID namespace.
 * Returns 0 if the thread has ended.
 */
static int outer_thread(int pid, int own)
{
	char path[PATH_SIZE];
	DIR *threads;
	int thread;

	if (process_own_pid(pid) == pid)
		return own;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	if (!threads)
		return 0;
	do {
		thread = process_next(threads);
	} while (thread && process_own_pid(thread) != own);
	closedir(threads);
	return thread;
}

static json_t *seconds_since(uint64_t since)
{
	uint64_t now = clock_ns();

	if (!since)
		return json_null();
	return json_real(since < now ? (double)(now - since) / NS_PER_SECOND : 0);
}

static int add_row(const struct process *process, const char *what_for, uint64_t since,
		   const struct published_wait *wait)
{
	int thread = wait && wait->thread ? outer_thread(process->pid, wait->thread) : 0;
	json_t *row = json_pack("{s:i, s:I, s:o, s:o, s:s, s:o, s:o, s:o, s:o}",
				"pid", process->pid,
				"uid", (json_int_t)process->uid,
				"command", text_to_json(process->command),
				"thread", thread ? json_integer(thread) : json_null(),
				"for", what_for,
				"seconds", seconds_since(since),
				"requests", wait && wait->requests ?
				json_integer(wait->requests) : json_null(),
				"bytes", wait && wait->bytes ? limit_to_json(wait->bytes) :
				json_null(),
				"what", wait && *wait->words ? text_to_json(wait->words) :
				json_null());

	return row && !json_array_append_new(process->rows, row) ? 0 : -ENOMEM;
}

/* Adds the waits that one handle (struct actmem) of a process publishes. */
static int add_published(void *context, int fd)
{
	struct published_wait others = { .kind = WAIT_NONE };
	struct process *process = context;
	struct published_waits waits;
	bool has_waits = published_waits(fd, &waits);
	unsigned int i;

	close(fd);
	process->is_found = true;
	if (!has_waits) {
		process->is_unknown = true;
		return 0;
	}
	if (waits.last > process->last)
		process->last = waits.last;
	for (i = 0; i < WAITS_MAX; i++) {
		const struct published_wait *wait = &waits.waits[i];

		if (wait->kind == WAIT_NONE)
			continue;
		process->waits++;
		if (add_row(process, kinds[wait->kind], wait->since, wait))
			return -ENOMEM;
	}
	if (!waits.left_out)
		return 0;
	process->waits++;
	others.requests = (uint32_t)waits.left_out;
	return add_row(process, "others", 0, &others);
}

/*
 * Adds the waits of a process. Adds nothing if the process has ended, or if this user may not see
 * it. Returns 0, or -errno after printing the error message.
 */
static int add_process_waits(json_t *rows, int pid)
{
	struct process process = { .rows = rows, .pid = pid };
	int error;

	process_owner(pid, &process.uid);
	process_command(pid, process.command);
	error = published_walk(pid, &published_stats, add_published, &process);
	if (!error && process.is_found && !process.waits)
		error = add_row(&process, process.is_unknown ? "unknown" : "nothing", process.last,
				NULL);
	if (error)
		warnx("cannot read what process %d publishes (%s)", pid, strerror(-error));
	return error;
}

/* Returns NULL after printing the error message. */
static json_t *waits_to_json(void)
{
	DIR *directory = opendir("/proc");
	json_t *rows = json_array(), *surplus;
	int pid;
	bool good = rows && directory && !access("/proc/self", F_OK);

	if (!rows)
		warnx("%s", strerror(ENOMEM));
	else if (!good)
		warnx("cannot list the processes in /proc (%s)", strerror(errno));
	while (good && (pid = process_next(directory)))
		good = !add_process_waits(rows, pid);
	if (directory)
		closedir(directory);
	if (!good) {
		json_decref(rows);
		return NULL;
	}
	/* If the regions cannot be read, show the waits anyway. */
	surplus = reclaim_rows(0);
	return json_pack("{s:o, s:b, s:o?}", "waits", rows, "all_users", sees_machine(),
			 "surplus", surplus);
}

static int print_table(const json_t *waits, unsigned int flags)
{
	static const struct column columns[] = {
		{ "PID", "pid", cell_text, COLUMN_RIGHT },
		{ "USER", "uid", cell_user, COLUMN_LEFT },
		{ "COMMAND", "command", cell_text, COLUMN_LEFT },
		{ "THREAD", "thread", cell_text, COLUMN_RIGHT },
		{ "WAITS FOR", "for", cell_text, COLUMN_LEFT },
		{ "SECONDS", "seconds", cell_number, COLUMN_RIGHT },
		{ "REQUESTS", "requests", cell_text, COLUMN_RIGHT },
		{ "BYTES", "bytes", cell_bytes, COLUMN_RIGHT },
		{ "WHAT", "what", cell_text, COLUMN_WRAPPED },
	};
	int err = table_print(json_object_get(waits, "waits"), columns,
			      sizeof(columns) / sizeof(columns[0]), flags);

	return err ?: reclaim_print(json_object_get(waits, "surplus"), flags);
}

int cmd_waits(int argc, char **argv)
{
	struct print_options options;
	json_t *waits;
	int status, err;

	if (!take_print_options(&options, argc, argv, help, &status))
		return status;
	waits = waits_to_json();
	if (!waits)
		return STATUS_FAILED;
	err = options.as_json ? table_print_json(waits)
			      : print_table(waits, options.table_flags);
	json_decref(waits);
	if (err) {
		warnx("%s", strerror(-err));
		return STATUS_FAILED;
	}
	if (!options.as_json && !sees_all_users())
		warnx("only root sees other users' processes");
	return STATUS_OK;
}
