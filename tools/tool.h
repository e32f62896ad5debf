/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Declarations that the commands actmem and actmem-bench and their subcommands share. */
#ifndef ACTMEM_TOOL_H
#define ACTMEM_TOOL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum exit_status {
	STATUS_OK = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
	/* Of a program that cannot be run, and of one that is not there: as shells have it. */
	STATUS_NOT_RUN = 126,
	STATUS_NOT_FOUND = 127,
};

/*
 * @run: argv[0] is "COMMAND NAME", which warnx() also writes before its messages.
 * Returns an enum exit_status.
 */
struct subcommand {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

struct command {
	const char *name;
	const char *about;		/* one sentence, for --help */
	const char *other_status;	/* what else --help says of the exit status */
	const struct subcommand *subcommands;
	size_t count;
};

/* All of a command's main(). */
int command_main(const struct command *command, int argc, char **argv);

/* actmem's subcommands; actmem becomes actmem-bench for bench and replay, Python for the last. */
int cmd_run(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_waits(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_exporter(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_limit(int argc, char **argv);
int cmd_prune(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_probe(int argc, char **argv);

/* Names --help on stderr, and returns STATUS_USAGE. */
int usage_hint(void);

/*
 * A closed pipe is then an error of the output, not a signal. Never where a
 * program is run afterwards: it would inherit that.
 */
void ignore_closed_pipes(void);

/* The folder that the running program lies in. False: as of errno. */
bool own_folder(char folder[PATH_MAX]);

/* Whether this process has it now: CAP_* of linux/capability.h. */
bool has_capability(unsigned int capability);

/* Whether other users' processes and regions are shown to this one. */
bool sees_all_users(void);

struct option;

/* The options of a subcommand; COMMON_OPTIONS end the array. */
struct option_table {
	const char *letters;		/* as getopt_long() takes them, with "Jh" */
	const struct option *options;
	const char *help;		/* without the line of usage */
	bool (*take)(void *data, int option, const char *value);	/* false: it told why */
};

#define COMMON_OPTIONS				\
	{ "json", no_argument, NULL, 'J' },	\
	{ "help", no_argument, NULL, 'h' },	\
	{ NULL, 0, NULL, 0 },

/*
 * Takes --json and --help itself, the others by @take(@data). False: the subcommand is to
 * end with *@status.
 */
bool take_options(const struct option_table *table, void *data, int argc, char **argv,
		  bool *as_json, int *status);

struct print_options {
	bool as_json;
	unsigned int table_flags;	/* TABLE_* */
};

/* Likewise for the subcommands that only print, which also have --bytes. */
bool take_print_options(struct print_options *options, int argc, char **argv,
			const char *help, int *status);

#endif
