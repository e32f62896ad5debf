/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reading what the driver tells of itself: tracepoints, in a trace instance of
 * the tests' own, which takes its buffers along when it goes; and the kernel's
 * log.
 */
#ifndef TRACE_TEST_H
#define TRACE_TEST_H

#include "driver_test.h"

#define INSTANCE	"/sys/kernel/tracing/instances/actmem"
#define EVENTS		INSTANCE "/events/actmem"
#define EVENTS_MAX	2048
#define TEXT_MAX	512

/**
 * struct event - one line of the trace
 * @name: without "actmem_"
 * @fields: a latency that is not 0 is shown as N
 */
struct event {
	char name[32];
	char fields[TEXT_MAX];
};

static const struct event no_event = { .name = "none" };
static struct event events[EVENTS_MAX];
static int event_count;
/* All before this one have been looked at. */
static int next_event;

/* Shows a latency that has been measured as N. */
static inline void hide_latency(char *fields)
{
	char *value = strstr(fields, "latency_ns=");
	size_t length;

	if (!value)
		return;
	value += strlen("latency_ns=");
	length = strspn(value, "0123456789");
	if (strspn(value, "0") == length)
		return;
	*value = 'N';
	memmove(value + 1, value + length, strlen(value + length) + 1);
}

static inline void read_events(void)
{
	FILE *trace = fopen(INSTANCE "/trace", "re");
	char line[2 * TEXT_MAX];

	event_count = 0;
	next_event = 0;
	while (trace && event_count < EVENTS_MAX && fgets(line, sizeof(line), trace)) {
		struct event *event = &events[event_count];
		char *at = strstr(line, ": actmem_");

		*event = (struct event){};
		if (!at || sscanf(at, ": actmem_%31[^:]: %511[^\n]", event->name, event->fields) != 2)
			continue;
		hide_latency(event->fields);
		event_count++;
	}
	if (trace)
		fclose(trace);
}

/* The next one of that name. */
static inline const struct event *find(const char *name)
{
	while (next_event < event_count)
		if (!strcmp(events[next_event++].name, name))
			return &events[next_event - 1];
	return &no_event;
}

static inline int count(const char *name)
{
	int i, found = 0;

	for (i = 0; i < event_count; i++)
		found += !strcmp(events[i].name, name);
	return found;
}

__attribute__((format(printf, 1, 2)))
static inline const char *text(const char *format, ...)
{
	static char written[TEXT_MAX];
	va_list words;

	va_start(words, format);
	vsnprintf(written, sizeof(written), format, words);
	va_end(words);
	return written;
}

#define EXPECT_EVENT(name, ...)	EXPECT_STREQ(text(__VA_ARGS__), find(name)->fields)

/* Forgets what has been traced. */
static inline int clear_trace(void)
{
	int fd = open(INSTANCE "/trace", O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static inline int set_event(const char *name, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), EVENTS "/actmem_%s/enable", name);
	return put(path, value);
}

/* For read_log(), from its end on. */
static inline int open_log(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && lseek(fd, 0, SEEK_END) < 0) {
		close(fd);
		fd = -errno;
	}
	return fd;
}

/* The next message that begins so, without its header; NULL if there is none. */
static inline const char *read_log(int fd, const char *beginning)
{
	static char record[2048];
	ssize_t length;
	char *message;

	while ((length = read(fd, record, sizeof(record) - 1)) > 0) {
		record[length] = '\0';
		message = strchr(record, ';');
		if (!message++ || strncmp(message, beginning, strlen(beginning)))
			continue;
		message[strcspn(message, "\n")] = '\0';
		return message;
	}
	return NULL;
}

#endif
