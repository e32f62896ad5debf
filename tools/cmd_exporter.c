// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem exporter: metrics for Prometheus, over HTTP or in a file for node_exporter. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "metrics.h"
#include "serve.h"
#include "tool.h"

#define DEFAULT_ADDRESS	"127.0.0.1:19475"

static const char help[] =
	"Tells Prometheus of this machine: the driver, nodes, pools, limits, what each\n"
	"process has of which backend and pages, and its counters. Each request reads the\n"
	"machine once. It ends with SIGTERM. Other users' are told to root alone.\n"
	"\n"
	"  -l, --listen=ADDRESS  serve /metrics over HTTP there, as [::1]:19475.\n"
	"                        Default: 127.0.0.1:19475\n"
	"  -t, --textfile=PATH   write them once to this file, for the textfile collector of\n"
	"                        node_exporter, and end; to standard output: -\n"
	"  -h, --help            print this";

/* Writes the whole text. Returns 0 or -errno. */
static int write_all(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t done = write(fd, text, length);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		text += done;
		length -= (size_t)done;
	}
	return 0;
}

/*
 * Gives the unnamed file the name @path. It first links a temporary name, because linkat() cannot
 * replace a file and rename() can.
 */
static int name_file(int fd, const char *path)
{
	char beside[PATH_MAX], place[32];

	if (snprintf(beside, sizeof(beside), "%s.%d", path, getpid()) >= (int)sizeof(beside))
		return -ENAMETOOLONG;
	snprintf(place, sizeof(place), "/proc/self/fd/%d", fd);
	if ((unlink(beside) && errno != ENOENT) ||
	    linkat(AT_FDCWD, place, AT_FDCWD, beside, AT_SYMLINK_FOLLOW))
		return -errno;
	if (rename(beside, path)) {
		int err = -errno;

		unlink(beside);
		return err;
	}
	return 0;
}

/* The file gets its name only when it is complete, so a killed process leaves no partial file. */
static int write_file(const char *path, const char *text, size_t length)
{
	char folder[PATH_MAX];
	char *slash;
	int fd, err;

	if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
		return -ENAMETOOLONG;
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	fd = open(slash ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	err = fchmod(fd, 0644) ? -errno : write_all(fd, text, length);
	if (!err)
		err = name_file(fd, path);
	close(fd);
	return err;
}

static int write_metrics(const char *path)
{
	size_t length;
	char *text = metrics_read(&length);
	int err = 0;

	if (!text)
		return STATUS_FAILED;
	if (!strcmp(path, "-"))
		fwrite(text, 1, length, stdout);
	else
		err = write_file(path, text, length);
	free(text);
	if (err)
		warnx("cannot write %s (%s)", path, err == -EOPNOTSUPP ?
		      "its file system has no O_TMPFILE: choose a folder of another" :
		      strerror(-err));
	return err ? STATUS_FAILED : STATUS_OK;
}

int cmd_exporter(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "textfile", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *address = NULL, *path = NULL;
	int option;

	ignore_closed_pipes();
	while ((option = getopt_long(argc, argv, "l:t:h", options, NULL)) != -1) {
		switch (option) {
		case 'l':
			address = optarg;
			break;
		case 't':
			path = optarg;
			break;
		case 'h':
			printf("Usage: %s [OPTION]...\n\n%s\n", program_invocation_short_name,
			       help);
			return STATUS_OK;
		default:
			return usage_hint();
		}
	}
	if (optind < argc) {
		warnx("unexpected argument '%s'", argv[optind]);
		return usage_hint();
	}
	if (address && path) {
		warnx("either --listen or --textfile");
		return usage_hint();
	}
	return path ? write_metrics(path) : serve_metrics(address ?: DEFAULT_ADDRESS);
}
