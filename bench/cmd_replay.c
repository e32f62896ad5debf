// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem replay does the transfers of training steps with a store, without a framework. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "../tools/memory_options.h"
#include "../tools/table.h"
#include "../tools/tool.h"
#include "config/config.h"
#include "parse.h"
#include "replay.h"

static const char help[] =
	"Repeats the traffic of training steps with a store. The forward pass puts query, key\n"
	"and value of each layer. The backward pass takes them, last layer first, and verifies\n"
	"every byte. The output shows the time of each step and its bound: the larger of\n"
	"compute and I/O time, an estimate. Compute time is the time of filling and verifying\n"
	"blocks, and of waiting instead of computing. I/O time is the number of bytes moved,\n"
	"divided by the bandwidth of the disks. The bandwidth is measured before and after each\n"
	"step, while a thread fills or verifies blocks at the rate of a step. I/O ALONE uses\n"
	"the bandwidth without that thread.\n"
	"\n"
	"Traffic:\n"
	"  -m, --model NAME            default: llama-2-13b\n"
	"      --plan FILE             replay a plan of 'actmem plan --save' instead of a model,\n"
	"                              with the bytes of all devices of a host\n"
	"  -t, --tokens N              tokens of a step; default: 4096\n"
	"  -s, --scale FRACTION        use this part of each tensor, such as 1/64; default: 1\n"
	"  -c, --compute-ms-per-layer MS  compute time of each layer in each pass; default: 5, or\n"
	"                              the plan's time\n"
	"  -N, --steps N               number of steps; default: 5\n"
	"\n"
	"Budget:\n"
	"  -B, --budget SIZE           limit on memory; default: no limit\n"
	"  -S, --spill DIR             spill blocks beyond the budget to this folder; may be\n"
	"                              repeated\n"
	"      --checksum              the store also verifies the checksums of its blocks\n"
	"      --allow-memory          blocks that cannot be spilled stay in memory\n"
	"      --allow-buffered        use the page cache if there is no direct I/O\n"
	"\n"
	MEMORY_OPTIONS_HELP
	"Output:\n"
	"  -J, --json                  print JSON\n"
	"  -h, --help                  print this\n"
	"\n"
	"Exit status 1 if a byte came back wrong, or a call failed.";

enum {
	OPTION_PLAN = 256,
	OPTION_CHECKSUM,
	OPTION_ALLOW_MEMORY,
	OPTION_ALLOW_BUFFERED,
};

volatile sig_atomic_t replay_signal;

/* Records the signal. A second signal of the same number ends the command at once. */
static void catch_signal(int number)
{
	replay_signal = number;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = catch_signal, .sa_flags = SA_RESETHAND };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static bool replay_option(void *data, int option, const char *value)
{
	struct replay_options *options = data;

	switch (option) {
	case 'm':
		options->model = value;
		return true;
	case OPTION_PLAN:
		options->plan_path = value;
		return true;
	case 't':
		return option_count("--tokens", value, 1, 1 << 30, &options->tokens);
	case 's':
		return option_fraction("--scale", value, 1, &options->scale);
	case 'c':
		return option_number("--compute-ms-per-layer", value, 0, 1e6,
				     &options->compute_ms);
	case 'N':
		return option_count("--steps", value, 1, REPLAY_STEPS_MAX, &options->steps);
	case 'B':
		return option_bytes("--budget", value, 1, REPLAY_BYTES_MAX, &options->budget_bytes);
	case 'S':
		return option_folder(value, options->spill_paths, &options->spill_path_count);
	case OPTION_CHECKSUM:
		options->flags |= ACTMEM_STORE_CHECKSUM;
		return true;
	case OPTION_ALLOW_MEMORY:
		options->flags |= ACTMEM_STORE_ALLOW_MEMORY;
		return true;
	case OPTION_ALLOW_BUFFERED:
		options->flags |= ACTMEM_STORE_ALLOW_BUFFERED;
		return true;
	default:
		return memory_option(option, value);
	}
}

static void print_error(void)
{
	warnx("%s", actmem_error_in(ACTMEM_NAMES_REPLAY));
}

/*
 * Returns true if the library's error message names a spill directory. -EINVAL then refers to the
 * file system of that directory, and is not a usage error.
 */
static bool is_about_folder(const struct replay_options *options)
{
	bool is = false;
	uint32_t i;

	for (i = 0; i < options->spill_path_count; i++)
		is = is || strstr(actmem_error(), options->spill_paths[i]);
	return is;
}

static int open_store(struct replay *replay)
{
	const struct replay_options *options = &replay->options;
	struct actmem_store_options store;
	int error;

	ACTMEM_INIT(&store);
	store.budget_bytes = options->budget_bytes;
	store.spill_paths = options->spill_paths;
	store.spill_path_count = options->spill_path_count;
	store.flags = options->flags;
	if (knob_is_on(KNOB_STRICT))
		store.flags |= ACTMEM_STORE_STRICT;
	error = actmem_store_create(replay->am, &store, &replay->store);
	if (error) {
		print_error();
		return error == -EINVAL && !is_about_folder(options) ? STATUS_USAGE :
		       STATUS_FAILED;
	}
	if (*actmem_error() && !knob_is_on(KNOB_QUIET))
		print_error();
	snprintf(replay->store_text, sizeof(replay->store_text), "%s",
		 actmem_store_describe(replay->store));
	return STATUS_OK;
}

static int open_replay(struct replay *replay)
{
	struct actmem_options options;
	int status = memory_options(&options);

	if (status)
		return status;
	replay->page_bytes = memory_page_bytes(&options);
	if (actmem_open(&replay->am, &options)) {
		print_error();
		return STATUS_FAILED;
	}
	status = open_store(replay);
	if (!status)
		status = replay_probe_open(replay);
	return status;
}

/*
 * Closes everything. Returns @status, or STATUS_FAILED if the store or the handle cannot be closed.
 */
static int close_replay(struct replay *replay, int status)
{
	replay_probe_close(replay);
	if (replay->store && actmem_store_destroy(replay->store)) {
		print_error();
		status = STATUS_FAILED;
	}
	if (replay->am && actmem_close(replay->am)) {
		print_error();
		status = STATUS_FAILED;
	}
	free(replay->done);
	plan_free(&replay->plan);
	return status;
}

static int run_steps(struct replay *replay)
{
	struct disk_speeds before = { 0 }, after = { 0 };
	int error = replay_probe(replay, &before);

	while (!error && !replay_signal && replay->done_count < replay->options.steps) {
		error = replay_step(replay);
		if (!error)
			error = replay_probe(replay, &after);
		if (error)
			break;
		replay->done[replay->done_count++].speeds = replay_probe_mean(&before, &after);
		before = after;
	}
	ACTMEM_INIT(&replay->stats);
	if (actmem_store_get_stats(replay->store, &replay->stats)) {
		print_error();
		return STATUS_FAILED;
	}
	if (replay->wrong_blocks)
		warnx("%llu blocks came back wrong", (unsigned long long)replay->wrong_blocks);
	return (error && error != -EINTR) || replay->wrong_blocks ? STATUS_FAILED : STATUS_OK;
}

static int report_replay(const struct replay *replay, bool as_json)
{
	json_t *result = replay_to_json(replay);
	bool is_good = table_show(result, as_json, replay_print);

	json_decref(result);
	return is_good ? STATUS_OK : STATUS_FAILED;
}

static int run_replay(struct replay *replay, bool as_json)
{
	int status = replay_lay_out(replay), reported;

	catch_signals();
	if (!status)
		status = open_replay(replay);
	if (!status) {
		/* Set the smallest timer slack, so that sleeps end on time. */
		prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
		status = run_steps(replay);
		reported = report_replay(replay, as_json);
		status = status ? status : reported;
	}
	status = close_replay(replay, status);
	if (replay_signal && !fflush(stdout)) {
		signal(replay_signal, SIG_DFL);
		raise(replay_signal);
	}
	return status == STATUS_USAGE ? usage_hint() : status;
}

/*
 * Sets defaults. Rejects options that cannot be used with a plan, because a plan has its own model
 * and tokens.
 */
static bool set_defaults(struct replay_options *options)
{
	const char *unused = options->model ? "--model" : options->tokens ? "--tokens" : NULL;

	if (options->plan_path && unused) {
		warnx("%s cannot be used with --plan, which has its own model and tokens", unused);
		return false;
	}
	if (!options->model)
		options->model = "llama-2-13b";
	if (!options->tokens)
		options->tokens = 4096;
	return true;
}

int cmd_replay(int argc, char **argv)
{
	static const struct option long_options[] = {
		MEMORY_OPTIONS,
		{ "model", required_argument, NULL, 'm' },
		{ "plan", required_argument, NULL, OPTION_PLAN },
		{ "tokens", required_argument, NULL, 't' },
		{ "scale", required_argument, NULL, 's' },
		{ "compute-ms-per-layer", required_argument, NULL, 'c' },
		{ "budget", required_argument, NULL, 'B' },
		{ "spill", required_argument, NULL, 'S' },
		{ "steps", required_argument, NULL, 'N' },
		{ "checksum", no_argument, NULL, OPTION_CHECKSUM },
		{ "allow-memory", no_argument, NULL, OPTION_ALLOW_MEMORY },
		{ "allow-buffered", no_argument, NULL, OPTION_ALLOW_BUFFERED },
		COMMON_OPTIONS
	};
	static const struct option_table table = {
		MEMORY_OPTIONS_SHORT "m:t:s:c:B:S:N:Jh", long_options, help,
		replay_option,
	};
	struct replay replay = {
		.options = {
			.scale = 1,
			.compute_ms = -1,
			.steps = 5,
		},
	};
	bool as_json = false;
	int status;

	if (!take_options(&table, &replay.options, argc, argv, &as_json, &status))
		return status;
	if (!set_defaults(&replay.options))
		return usage_hint();
	return run_replay(&replay, as_json);
}
