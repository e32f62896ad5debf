// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Writes trace events as JSON, each on a line of its own. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "timeline.h"

#define NS_PER_US	1000.0
#define PENDING_BYTES	(32 * 1024)
#define PENDING_NS	1000000000ULL
#define TAIL		"\n]\n"

/*
 * Buffers events in memory. Each write to the file ends with the end of the array, which the next
 * write overwrites. A killed process therefore leaves a complete array.
 */
struct timeline {
	int file;
	off_t end;			/* after the file's last event; -1: it is a pipe */
	FILE *pending;
	char *text;
	size_t length;
	uint64_t written_ns;
	uint64_t begun_ns;
	const char *separator;
	int error;
};

static int write_all(int file, const char *text, size_t length, off_t at)
{
	ssize_t written;

	while (length) {
		written = at < 0 ? write(file, text, length) : pwrite(file, text, length, at);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written ? -errno : -EIO;
		text += written;
		length -= (size_t)written;
		at += at < 0 ? 0 : written;
	}
	return 0;
}

static void write_pending(struct timeline *timeline, bool is_last)
{
	const size_t tail = sizeof(TAIL) - 1;
	bool is_pipe = timeline->end < 0;
	int error = 0;

	errno = 0;
	if (fputs(TAIL, timeline->pending) < 0 || fflush(timeline->pending))
		error = errno ? -errno : -ENOMEM;
	if (!error && !timeline->error) {
		error = write_all(timeline->file, timeline->text,
				  timeline->length - (is_pipe && !is_last ? tail : 0),
				  timeline->end);
		timeline->end += is_pipe ? 0 : (off_t)(timeline->length - tail);
	}
	if (error && !timeline->error)
		timeline->error = error;
	rewind(timeline->pending);
	timeline->written_ns = clock_ns();
}

/* Writes @event and releases it. NULL means that there was no memory for it. */
static void write_event(struct timeline *timeline, json_t *event)
{
	int failed;

	errno = 0;
	if (!event)
		errno = ENOMEM;
	failed = !event || fputs(timeline->separator, timeline->pending) < 0 ||
		 json_dumpf(event, timeline->pending, JSON_COMPACT | JSON_REAL_PRECISION(15));
	if (failed && !timeline->error)
		timeline->error = errno ? -errno : -EIO;
	timeline->separator = ",\n";
	json_decref(event);
	if (ftello(timeline->pending) >= PENDING_BYTES ||
	    clock_ns() - timeline->written_ns >= PENDING_NS)
		write_pending(timeline, false);
}

static double us_of(const struct timeline *timeline, uint64_t ns)
{
	return ns > timeline->begun_ns ? (double)(ns - timeline->begun_ns) / NS_PER_US : 0;
}

/*
 * Returns an event with the fields that all events have. Takes ownership of @about, which becomes
 * its arguments.
 */
static json_t *make_event(const char *phase, const char *name, uint32_t lane, double us,
			  json_t *about)
{
	return json_pack("{s:s, s:s, s:i, s:i, s:f, s:o}", "ph", phase, "name", name,
			 "pid", (int)getpid(), "tid", (int)lane, "ts", us,
			 "args", about ? about : json_object());
}

struct timeline *timeline_open(const char *path, const char *process)
{
	struct timeline *timeline = calloc(1, sizeof(*timeline));

	if (timeline)
		timeline->pending = open_memstream(&timeline->text, &timeline->length);
	if (!timeline || !timeline->pending) {
		warn("no memory for '%s'", path);
		free(timeline);
		return NULL;
	}
	timeline->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (timeline->file < 0) {
		warn("cannot write '%s'", path);
		fclose(timeline->pending);
		free(timeline->text);
		free(timeline);
		return NULL;
	}
	timeline->end = lseek(timeline->file, 0, SEEK_CUR);
	timeline->begun_ns = clock_ns();
	timeline->separator = "[\n";
	write_event(timeline, make_event("M", "process_name", 0, 0,
					 json_pack("{s:s}", "name", process)));
	return timeline;
}

int timeline_close(struct timeline *timeline)
{
	int error;

	if (!timeline)
		return 0;
	write_pending(timeline, true);
	error = timeline->error;
	if (close(timeline->file) && !error)
		error = -errno;
	fclose(timeline->pending);
	free(timeline->text);
	free(timeline);
	return error;
}

void timeline_lane(struct timeline *timeline, uint32_t lane, const char *name)
{
	if (!timeline)
		return;
	write_event(timeline, make_event("M", "thread_name", lane, 0,
					 json_pack("{s:s}", "name", name)));
	write_event(timeline, make_event("M", "thread_sort_index", lane, 0,
					 json_pack("{s:i}", "sort_index", (int)lane)));
}

void timeline_slice(struct timeline *timeline, uint32_t lane, const char *name,
		    uint64_t begin_ns, uint64_t end_ns, json_t *about)
{
	json_t *event;

	if (!timeline) {
		json_decref(about);
		return;
	}
	event = make_event("X", name, lane, us_of(timeline, begin_ns), about);
	if (event && json_object_set_new(event, "dur",
					 json_real((double)(end_ns - begin_ns) / NS_PER_US))) {
		json_decref(event);
		event = NULL;
	}
	write_event(timeline, event);
}

static void write_overlapping(struct timeline *timeline, const char *phase, const char *kind,
			      uint64_t id, uint64_t ns, json_t *about)
{
	json_t *event;
	char text[24];

	if (!timeline) {
		json_decref(about);
		return;
	}
	snprintf(text, sizeof(text), "0x%" PRIx64, id);
	event = make_event(phase, kind, 0, us_of(timeline, ns), about);
	/*
	 * "id2" is local to the process. Other ids would put the row outside of the process's rows.
	 */
	if (event && (json_object_set_new(event, "id2", json_pack("{s:s}", "local", text)) ||
		      json_object_set_new(event, "cat", json_string(kind)))) {
		json_decref(event);
		event = NULL;
	}
	write_event(timeline, event);
}

void timeline_begin(struct timeline *timeline, const char *kind, uint64_t id, uint64_t ns,
		    json_t *about)
{
	write_overlapping(timeline, "b", kind, id, ns, about);
}

void timeline_end(struct timeline *timeline, const char *kind, uint64_t id, uint64_t ns,
		  json_t *about)
{
	write_overlapping(timeline, "e", kind, id, ns, about);
}

void timeline_count(struct timeline *timeline, const char *name, const char *unit, uint64_t ns,
		    uint64_t value)
{
	if (timeline)
		write_event(timeline, make_event("C", name, 0, us_of(timeline, ns),
						 json_pack("{s:I}", unit, (json_int_t)value)));
}
