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
	/* The program cannot be executed, or does not exist. Shells use the same numbers. */
	STATUS_NOT_RUN = 126,
	STATUS_NOT_FOUND = 127,
};

/*
 * @run gets "COMMAND NAME" as argv[0], which warnx() also writes before its messages. @run returns
 * an enum exit_status.
 */
struct subcommand {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

struct command {
	const char *name;
	const char *about;		/* one sentence, for --help */
	const char *other_status;	/* end of the line on the exit status in --help */
	const struct subcommand *subcommands;
	size_t count;
};

/* Implements main() of a command. */
int command_main(const struct command *command, int argc, char **argv);

/*
 * The subcommands of actmem. bench and replay execute actmem-bench; plan and probe execute Python.
 */
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

/* Suggests --help on stderr, and returns STATUS_USAGE. */
int usage_hint(void);

/*
 * Ignores SIGPIPE, so that a write to a closed pipe fails with EPIPE. Do not call this function
 * before executing another program, which would inherit the setting.
 */
void ignore_closed_pipes(void);

/*
 * Set an environment variable to @value, or prepend @value and a ':' to the variable's old value.
 * Return an enum exit_status after printing any error message.
 */
int variable_set(const char *name, const char *value);
int variable_prepend(const char *name, const char *value);

/* Prints the error message of the library's last call, and returns STATUS_FAILED. */
int print_library_error(void);

/* Finds the folder of the running program. Returns false with errno set. */
bool own_folder(char folder[PATH_MAX]);

/* Returns true if this process has the capability, one of CAP_* in linux/capability.h. */
bool has_capability(unsigned int capability);

/*
 * Return true if this process can see the processes and regions of other users: in its container
 * (sees_all_users()) or on the whole machine (sees_machine()).
 */
bool sees_all_users(void);
bool sees_machine(void);

struct option;

/* The options of a subcommand. COMMON_OPTIONS must be at the end of @options. */
struct option_table {
	const char *letters;		/* short options, including "Jh" */
	const struct option *options;
	const char *help;		/* without the usage line */
	bool (*take)(void *data, int option, const char *value);	/* false: usage error */
};

#define COMMON_OPTIONS				\
	{ "json", no_argument, NULL, 'J' },	\
	{ "help", no_argument, NULL, 'h' },	\
	{ NULL, 0, NULL, 0 },

/*
 * Handles --json and --help, and passes other options to @take with @data. Returns false if the
 * subcommand must end with *@status.
 */
bool take_options(const struct option_table *table, void *data, int argc, char **argv,
		  bool *as_json, int *status);

struct print_options {
	bool as_json;
	unsigned int table_flags;	/* TABLE_* */
};

/* Like take_options(), for subcommands that only print. Also handles --bytes. */
bool take_print_options(struct print_options *options, int argc, char **argv,
			const char *help, int *status);

#endif
