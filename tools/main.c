// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The command actmem: finds the subcommand, and answers for its output. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "tool.h"

static const struct subcommand {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
} subcommands[] = {
	{ "run", "run a program with actmem set up", cmd_run },
	{ "list", "list the regions on this machine, and who has them", cmd_list },
	{ "waits", "show what processes wait for: disks, memory, or nothing", cmd_waits },
	{ "info", "show the backend, versions, nodes, page pools and limits", cmd_info },
	{ "bench", "measure pinning, copying and spill devices of this machine", cmd_bench },
	{ "replay", "run a training step's traffic, and verify every byte", cmd_replay },
};

#define SUBCOMMAND_COUNT	(sizeof(subcommands) / sizeof(subcommands[0]))

int usage_hint(void)
{
	fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
	return STATUS_USAGE;
}

void ignore_closed_pipes(void)
{
	signal(SIGPIPE, SIG_IGN);
}

static void print_help(void)
{
	size_t i;

	puts("Usage: actmem SUBCOMMAND [OPTION]...\n"
	     "       actmem --help | --version\n"
	     "\n"
	     "Pinned, NUMA-local, huge-page memory for accelerators.\n");
	for (i = 0; i < SUBCOMMAND_COUNT; i++)
		printf("  %-6s %s\n", subcommands[i].name, subcommands[i].summary);
	puts("\n"
	     "'actmem SUBCOMMAND --help' tells its options; actmem(1) tells all.\n"
	     "Exit status: 0 done, 1 an operation failed, 2 bad usage; with 'run', that\n"
	     "of the program once it runs.");
}

/*
 * A file opened under the number of a closed standard stream would receive
 * our output. O_PATH keeps the number busy and still answers EBADF.
 */
static int reserve_standard_streams(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH | O_CLOEXEC) != fd)
			return -1;
	return 0;
}

static int output_error;		/* an errno: what the first write failed by */

static ssize_t write_output(void *unused, const char *text, size_t length)
{
	ssize_t done;

	do {
		done = write(STDOUT_FILENO, text, length);
	} while (done < 0 && errno == EINTR);
	if (done < 0 && !output_error)
		output_error = errno;
	return done < 0 ? 0 : done;
}

/* A stream of the C library's tells that a write failed, and not why, once others followed. */
static int open_output(void)
{
	FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_output });

	if (!stream)
		return -1;
	if (isatty(STDOUT_FILENO))
		setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	stdout = stream;
	return 0;
}

/* Whatever was printed has arrived, or the command has failed. */
static int finish_output(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	errno = output_error;
	warn("cannot write to standard output");
	return STATUS_FAILED;
}

static int run_subcommand(const struct subcommand *subcommand, int argc, char **argv)
{
	char name[32];

	snprintf(name, sizeof(name), "actmem %s", subcommand->name);
	argv[0] = name;
	program_invocation_short_name = name;
	optind = 0;
	return finish_output(subcommand->run(argc, argv));
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	static char name[] = "actmem";
	size_t i;

	if (argc < 1 || reserve_standard_streams() || open_output())
		return STATUS_FAILED;
	setlocale(LC_CTYPE, "");
	argv[0] = name;
	program_invocation_short_name = name;

	switch (getopt_long(argc, argv, "+hV", options, NULL)) {
	case 'h':
		ignore_closed_pipes();
		print_help();
		return finish_output(STATUS_OK);
	case 'V':
		ignore_closed_pipes();
		printf("actmem %s\n", actmem_version());
		return finish_output(STATUS_OK);
	case -1:
		break;
	default:
		return usage_hint();
	}

	if (optind == argc) {
		warnx("no subcommand");
		return usage_hint();
	}
	for (i = 0; i < SUBCOMMAND_COUNT; i++)
		if (!strcmp(argv[optind], subcommands[i].name))
			return run_subcommand(&subcommands[i], argc - optind, argv + optind);
	warnx("unknown subcommand '%s'", argv[optind]);
	return usage_hint();
}
