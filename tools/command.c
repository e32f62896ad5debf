// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Finds and runs a subcommand, and checks that all of its output was written. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "tool.h"

#define NAME_MAX_BYTES	32

int usage_hint(void)
{
	fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
	return STATUS_USAGE;
}

int print_library_error(void)
{
	warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
	return STATUS_FAILED;
}

void ignore_closed_pipes(void)
{
	signal(SIGPIPE, SIG_IGN);
}

static void print_help(const struct command *command)
{
	size_t i;

	printf("Usage: %s SUBCOMMAND [OPTION]...\n"
	       "       %s --help | --version\n"
	       "\n"
	       "%s\n"
	       "\n", command->name, command->name, command->about);
	for (i = 0; i < command->count; i++)
		printf("  %-8s %s\n", command->subcommands[i].name,
		       command->subcommands[i].summary);
	printf("\n"
	       "'%s SUBCOMMAND --help' shows its options; actmem(1) describes everything.\n"
	       "Exit status: 0 done, 1 an operation failed, 2 bad usage%s.\n", command->name,
	       command->other_status);
}

/*
 * Opens an O_PATH descriptor in place of each closed standard stream, so that no file that is
 * opened later receives our output. A write to an O_PATH descriptor fails with EBADF.
 */
static int reserve_standard_streams(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH | O_CLOEXEC) != fd)
			return -1;
	return 0;
}

static int output_error;		/* the errno of the first write that failed */

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

/*
 * Replaces stdout with a stream that records the errno of the first failed write. The C library
 * does not record this errno.
 */
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

/*
 * Returns @status if all output was written, or else STATUS_FAILED. Prints no error message for a
 * closed pipe, because the reader has read all that it wanted.
 */
static int finish_output(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	errno = output_error;
	if (errno != EPIPE)
		warn("cannot write to standard output");
	return STATUS_FAILED;
}

static void take_name(char *name, char **argv)
{
	argv[0] = name;
	program_invocation_short_name = name;
}

static int run_subcommand(const struct command *command, const struct subcommand *subcommand,
			  int argc, char **argv)
{
	char name[NAME_MAX_BYTES];

	snprintf(name, sizeof(name), "%s %s", command->name, subcommand->name);
	take_name(name, argv);
	optind = 0;
	return finish_output(subcommand->run(argc, argv));
}

int command_main(const struct command *command, int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	static char name[NAME_MAX_BYTES];
	size_t i;

	if (argc < 1 || reserve_standard_streams() || open_output())
		return STATUS_FAILED;
	setlocale(LC_CTYPE, "");
	snprintf(name, sizeof(name), "%s", command->name);
	take_name(name, argv);

	switch (getopt_long(argc, argv, "+hV", options, NULL)) {
	case 'h':
		ignore_closed_pipes();
		print_help(command);
		return finish_output(STATUS_OK);
	case 'V':
		ignore_closed_pipes();
		printf("%s %s\n", command->name, actmem_version());
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
	for (i = 0; i < command->count; i++)
		if (!strcmp(argv[optind], command->subcommands[i].name))
			return run_subcommand(command, &command->subcommands[i], argc - optind,
					      argv + optind);
	warnx("unknown subcommand '%s'", argv[optind]);
	return usage_hint();
}
