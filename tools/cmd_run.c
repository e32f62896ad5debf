// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * actmem run: sets the environment variables that the library and the Python module read, creates a
 * region as a test of these settings, and executes the program.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "base/base.h"
#include "config/config.h"
#include "memory_options.h"
#include "ranks.h"
#include "run.h"
#include "share.h"
#include "tool.h"
#include "wrap.h"

#define HELP_COLUMNS	78

static bool has_option(enum knob knob)
{
	return knob_name(knob, ACTMEM_NAMES_RUN)[0] == '-';
}

/*
 * If @have_option, prints the variables that have an option. Otherwise prints the variables without
 * an option.
 */
static void print_variables(const char *label, bool have_option)
{
	char *text = NULL, *lines;
	unsigned int knob;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	if (!file)
		return;
	fputs(label, file);
	for (knob = 0; knob < KNOB_VARIABLES; knob++)
		if (has_option(knob) == have_option)
			fprintf(file, " %s", knob_name(knob, ACTMEM_NAMES_VARIABLES));
	if (!fclose(file) && (lines = wrap_text(text, HELP_COLUMNS))) {
		puts(lines);
		free(lines);
	}
	free(text);
}

static void print_run_help(void)
{
	puts("Usage: actmem run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
	     "\n"
	     "Runs a program with actmem set up: the options are the defaults for its regions, and\n"
	     "'import actmem' works in its Python. First creates and closes a region as a test (with\n"
	     "--name, the first file, which stays; with --spill, also a file in each directory). If\n"
	     "the test fails, the program does not start.\n"
	     "\n"
	     "Place:\n"
	     "  -b, --backend auto|driver|memfd   auto: driver if /dev/actmem exists; memfd for 1G\n"
	     "                                    pages and without /dev/actmem\n"
	     "  -n, --nodes LIST                  NUMA nodes, such as 0,2-3\n"
	     "  -P, --policy bind|preferred|interleave\n"
	     "                                    default: bind with --nodes, else preferred\n"
	     "\n"
	     "Pages:\n"
	     "  -p, --pages 1G|2M|thp|4K          default: 2M\n"
	     "  -a, --allow 2m,thp,4k,node,unlocked|any\n"
	     "                                    fallbacks that may be used if the requested memory\n"
	     "                                    is not available\n"
	     "  -s, --strict                      without --allow, use locked huge pages or fail. If\n"
	     "                                    there is no memory for a region, fail the CUDA\n"
	     "                                    request instead of passing it to the CUDA driver.\n"
	     "                                    Reject a folder of --spill that is in memory\n"
	     "\n"
	     "Budget:\n"
	     "  -g, --heap-grow SIZE              length of each region of the Python module's heap,\n"
	     "                                    such as 256M; default: 64M. Also the length of\n"
	     "                                    each region of a GPU's heap; default there: 16M\n"
	     "  -l, --heap-limit SIZE             limit on the Python module's heap, and on the heap\n"
	     "                                    of each GPU; default: no limit\n"
	     "  -B, --budget SIZE                 memory for the blocks of the Python module, instead\n"
	     "                                    of --heap-limit. Blocks beyond the budget go to\n"
	     "                                    the files of --spill until they are needed\n"
	     "  -S, --spill DIR                   create these files in this directory. For several\n"
	     "                                    directories, each on its own disk, repeat the\n"
	     "                                    option or separate them with ':'\n"
	     "  -L, --spill-limit SIZE            limit on the files of --spill; default: no limit\n"
	     "  -A, --spill-allow memory,buffered\n"
	     "                                    memory: blocks that cannot be spilled stay in\n"
	     "                                    memory, even beyond the budget; buffered: accept\n"
	     "                                    directories without direct I/O\n"
	     "  -D, --device-ring SIZE            memory of each GPU through which its blocks are\n"
	     "                                    copied; default: 512M\n"
	     "\n"
	     "Job:\n"
	     "  -N, --name NAME|PATH              regions are files NAME.0, NAME.1 and so on, which\n"
	     "                                    the next program with that name reopens: a path on\n"
	     "                                    a mounted actmem, hugetlbfs or tmpfs, or a name in\n"
	     "                                    the first mounted actmem. Regions for CUDA are\n"
	     "                                    NAME.cuda0.0 and so on. NAME.0 is always created\n"
	     "  -R, --share[=RANK/OF]             the program is one of several processes of a job on\n"
	     "                                    this machine. It gets its part of --budget,\n"
	     "                                    --heap-limit, --spill-limit and the directories of\n"
	     "                                    --spill. It uses the node of its GPU, and\n"
	     "                                    NAME.RANK for --name. Default: the rank that\n"
	     "                                    Slurm, mpirun or torchrun set\n"
	     "\n"
	     "Preload:\n"
	     "  -m, --malloc                      large aligned blocks (posix_memalign) come from\n"
	     "                                    pooled huge pages. The test of a region is\n"
	     "                                    omitted, unless other options or variables request\n"
	     "                                    regions\n"
	     "  -C, --no-cuda                     do not handle the program's CUDA calls for host\n"
	     "                                    memory\n"
	     "  -c, --cuda-min SIZE               CUDA requests of at least this size get memory from\n"
	     "                                    regions; default: 1M\n"
	     "\n"
	     "Python:\n"
	     "  -o, --offload                     a program under JAX keeps in actmem the values that\n"
	     "                                    the policies of its jax.checkpoint offload to\n"
	     "                                    pinned_host, without a change to the program;\n"
	     "                                    ACTMEM_OFFLOAD=0 disables this option\n"
	     "\n"
	     "Messages:\n"
	     "  -q, --quiet                       do not print that better memory is possible, that\n"
	     "                                    a folder of --spill is in memory or full, that\n"
	     "                                    --offload is active, that a program under JAX kept\n"
	     "                                    nothing in actmem, or the parts of --share\n"
	     "  -r, --report                      at its end, a program under JAX reports on stderr\n"
	     "                                    how each named value of its steps was handled\n"
	     "  -v, --verbose                     report on stderr the backend, the reason and the\n"
	     "                                    pages; the program reports when its first CUDA\n"
	     "                                    memory comes from regions\n"
	     "  -h, --help                        print this\n");
	print_variables("Variables of the environment with the same meaning:", true);
	print_variables("Other variables (see actmem(1)):", false);
	puts("Options override variables, except ACTMEM_OFFLOAD=0.\n"
	     "Exit status: 127 if the program does not exist, 126 if it cannot be executed, 1 if\n"
	     "its memory is not available, 2 for bad usage, else that of the program.");
}

/* Makes @path absolute, because the program may change its folder. Returns NULL with errno set. */
static char *absolute_path(const char *path)
{
	char folder[PATH_MAX], *result;

	if (*path == '/')
		return strdup(path);
	if (!getcwd(folder, sizeof(folder)) || asprintf(&result, "%s/%s", folder, path) < 0)
		return NULL;
	return result;
}

/* Makes each path of a ':'-separated list absolute. An empty path stays empty. */
static char *absolute_paths(const char *paths)
{
	char *result = strdup(""), *path, *rest, *left, *longer;

	left = strdup(paths);
	rest = left;
	while (result && left && (path = strsep(&rest, ":"))) {
		path = *path ? absolute_path(path) : strdup("");
		longer = NULL;
		if (path && asprintf(&longer, "%s%s%s", result, path, rest ? ":" : "") < 0)
			longer = NULL;
		free(path);
		free(result);
		result = longer;
	}
	free(left);
	return left ? result : NULL;
}

/* Rejects a directory with a ':' in its name, because a ':' separates directories. */
static bool can_be_told_apart(const char *directories)
{
	char folder[PATH_MAX] = "", *copy = strdup(directories), *rest = copy, *path;
	bool good = copy;

	if (copy && strchr(copy, ':') && !access(copy, F_OK)) {
		warnx("cannot spill to '%s': its name has a ':', which separates directories; use another one or a symbolic link to it (--spill, ACTMEM_SPILL)",
		      copy);
		good = false;
	}
	while (good && (path = strsep(&rest, ":"))) {
		if (!*path || *path == '/' || !getcwd(folder, sizeof(folder)) ||
		    !strchr(folder, ':'))
			continue;
		warnx("cannot spill to '%s' in '%s': this name has a ':', which separates directories; use another one or a symbolic link to it (--spill, ACTMEM_SPILL)",
		      path, folder);
		good = false;
	}
	free(copy);
	return good;
}

static int set_knob_variable(const char *variable, const char *value)
{
	char *path;
	int status;

	if (!strcmp(variable, "ACTMEM_NAME") && strchr(value, '/'))
		path = absolute_path(value);
	else if (!strcmp(variable, "ACTMEM_SPILL"))
		path = absolute_paths(value);
	else
		return variable_set(variable, value);
	if (!path && errno == ENOENT)
		errx(STATUS_FAILED, "'%s' is a relative path, but the current folder was deleted: change to another folder (%s)",
		     value, variable);
	if (!path)
		err(STATUS_FAILED, "cannot set the environment");
	status = variable_set(variable, path);
	free(path);
	return status;
}

/* Makes the paths absolute in a variable that this command inherited. */
static int set_again(const char *variable)
{
	const char *value = getenv(variable);
	char *copy = value && *value ? strdup(value) : NULL;
	int status = copy ? set_knob_variable(variable, copy) : STATUS_OK;

	free(copy);
	return status;
}

/* Appends a directory to the directories of earlier options. */
static int add_directory(const char *variable, const char *path)
{
	char *both;
	int status;

	if (asprintf(&both, "%s:%s", getenv(variable), path) < 0)
		err(STATUS_FAILED, "cannot set the environment");
	status = set_knob_variable(variable, both);
	free(both);
	return status;
}

static const struct option options[] = {
	MEMORY_OPTIONS,
	{ "policy", required_argument, NULL, 'P' },
	{ "heap-grow", required_argument, NULL, 'g' },
	{ "heap-limit", required_argument, NULL, 'l' },
	{ "budget", required_argument, NULL, 'B' },
	{ "spill", required_argument, NULL, 'S' },
	{ "spill-limit", required_argument, NULL, 'L' },
	{ "spill-allow", required_argument, NULL, 'A' },
	{ "device-ring", required_argument, NULL, 'D' },
	{ "name", required_argument, NULL, 'N' },
	{ "share", optional_argument, NULL, 'R' },
	{ "malloc", no_argument, NULL, 'm' },
	{ "no-cuda", no_argument, NULL, 'C' },
	{ "cuda-min", required_argument, NULL, 'c' },
	{ "offload", no_argument, NULL, 'o' },
	{ "strict", no_argument, NULL, 's' },
	{ "quiet", no_argument, NULL, 'q' },
	{ "report", no_argument, NULL, 'r' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const char *long_name_of(int option)
{
	const struct option *known = options;

	while (known->val != option)
		known++;
	return known->name;
}

/* Finds the knob that has the option's name, and returns the knob's variable. */
static const char *variable_of(int option)
{
	const char *long_name = long_name_of(option);
	size_t length = strlen(long_name);
	unsigned int knob;
	const char *name;

	if (option == 'C')
		return knob_name(KNOB_CUDA, ACTMEM_NAMES_VARIABLES);
	for (knob = 0; knob < KNOB_VARIABLES; knob++) {
		name = knob_name(knob, ACTMEM_NAMES_RUN) + strlen("--");
		if (!strncmp(name, long_name, length) && name[length] == ' ')
			return knob_name(knob, ACTMEM_NAMES_VARIABLES);
	}
	return NULL;
}

static const char *option_value(int option)
{
	return optarg ? optarg : option == 'C' ? "0" : "1";
}

int cmd_run(int argc, char **argv)
{
	bool is_shared = false, is_malloc, is_offload;
	const char *said_rank = NULL;
	bool verbose = false;
	struct reader reader;
	unsigned int spills = 0;
	bool allows_spills = false;
	struct rank rank;
	char library_folder[PATH_MAX];
	int option, status;

	/* "+": getopt_long() stops at the program's name. The rest belongs to the program. */
	while ((option = getopt_long(argc, argv, "+" MEMORY_OPTIONS_SHORT "P:g:l:B:S:L:A:D:N:R::mCc:osqrvh",
				     options, NULL)) != -1) {
		switch (option) {
		case 'v':
			verbose = true;
			break;
		case 'R':
			is_shared = true;
			said_rank = optarg;
			break;
		case 'h':
			ignore_closed_pipes();
			print_run_help();
			return STATUS_OK;
		case '?':
			return usage_hint();
		case 'o':
			status = knob_is_set(KNOB_OFFLOAD) ? STATUS_OK :
				 variable_set("ACTMEM_OFFLOAD", "1");
			if (status)
				return status;
			break;
		default:
			if (optarg && !*optarg) {
				warnx("--%s is empty", long_name_of(option));
				return usage_hint();
			}
			allows_spills |= option == 'A';
			if (option == 'S' && !can_be_told_apart(optarg))
				return usage_hint();
			if (option == 'S' && spills++)
				status = add_directory(variable_of(option), optarg);
			else
				status = set_knob_variable(variable_of(option), option_value(option));
			if (status)
				return status;
		}
	}
	if (knob_is_set(KNOB_SPILL) && !can_be_told_apart(reader_text(&READER(0), KNOB_SPILL)))
		return usage_hint();
	if (set_again("ACTMEM_NAME") || set_again("ACTMEM_SPILL"))
		return STATUS_FAILED;
	if (optind == argc) {
		warnx("no program to run");
		return usage_hint();
	}
	reader = READER(ACTMEM_NAMES_RUN);
	reader_check_values(&reader);
	if (*reader.error) {
		warnx("%s", reader.error);
		return usage_hint();
	}
	if (allows_spills && !knob_is_set(KNOB_SPILL)) {
		warnx("--spill-allow needs a directory to spill to; add --spill (ACTMEM_SPILL)");
		return usage_hint();
	}
	is_malloc = malloc_mode_is_all();
	is_offload = knob_is_on(KNOB_OFFLOAD);
	status = is_shared ? rank_find(said_rank, &rank) : STATUS_OK;
	/*
	 * With --malloc, do not set the nodes. The nodes would also apply to malloc's blocks, but
	 * each block should come from the node of the CPU that requests it.
	 */
	if (!status && is_shared)
		status = share_set(&rank, !malloc_mode_is_wanted());
	if (!status && !is_malloc)
		status = try_environment(verbose);
	if (!status && !find_library_folder(library_folder))
		status = STATUS_FAILED;
	if (!status)
		status = preload_mode_set(library_folder, verbose);
	if (!status && preload_mode_has_cuda())
		status = torch_mode_set(argv[optind]);
	if (!status)
		status = malloc_mode_set(verbose);
	if (status == STATUS_USAGE)
		return usage_hint();
	if (!status)
		status = python_path_set(library_folder);
	if (!status && (is_offload || !is_malloc))
		status = python_start_set(library_folder, argv + optind, is_offload);
	return status ? status : become_program(argv[optind], argv + optind, NULL);
}
