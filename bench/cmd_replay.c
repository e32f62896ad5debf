// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem replay: runs the traffic of training steps through a store, without a framework. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "../tools/best_memory.h"
#include "../tools/memory_options.h"
#include "../tools/table.h"
#include "../tools/tool.h"
#include "config/config.h"
#include "parse.h"
#include "progress.h"
#include "replay.h"

static const char help[] =
	"Runs the traffic of training steps through a store: the forward pass produces\n"
	"query, key and value of layer after layer, the backward pass consumes them, and\n"
	"every byte is verified. Tells each step's time beside its bound, the longer of\n"
	"compute and I/O, which is an estimate. Computing is waiting, of which filling and\n"
	"verifying are a part; I/O is the bytes that had to be moved over what the disks do\n"
	"with requests of these sizes while as much is filled and verified, measured before\n"
	"and after each step; I/O alone, while nothing else is done.\n"
	"\n"
	"Traffic:\n"
	"  -m, --model NAME            default: llama-2-13b\n"
	"      --models FILE           where it is described; default: as installed\n"
	"      --plan FILE             of actmem plan --save, instead of a model: its layers,\n"
	"                              what all devices of a host send, and its budget\n"
	"  -t, --tokens N              of a step; default: 4096\n"
	"  -s, --scale FRACTION        of each tensor, as 1/64; default: 1\n"
	"  -c, --compute-ms-per-layer MS  in each pass; default: 5, or the plan's\n"
	"  -N, --steps N               default: 5\n"
	"  -o, --order reverse|forward|random|shuffle\n"
	"                              of the backward pass: reverse, the default, or\n"
	"                              shuffle, which is another one each step\n"
	"      --seed N                of these orders\n"
	"      --change-order-at STEP  from this one on, in another, random order\n"
	"\n"
	"Budget:\n"
	"  -B, --budget SIZE           of memory; default: no limit\n"
	"  -S, --spill DIR             where the rest is spilled to; may be repeated\n"
	"      --checksum              have the store verify its blocks, too\n"
	"      --allow-memory          blocks that cannot be spilled stay in memory\n"
	"      --allow-buffered        through the page cache where there is no direct I/O\n"
	"      --window SIZE           to read ahead; default: as the store measures\n"
	"      --block SIZE            of the longest transfer; default: as the device likes\n"
	"      --depth N               transfers at a time; default: likewise\n"
	"\n"
	MEMORY_OPTIONS_HELP
	"Output:\n"
	"  -T, --trace FILE            write a timeline for ui.perfetto.dev\n"
	"  -J, --json                  print JSON\n"
	"  -h, --help                  print this\n"
	"\n"
	"Steps count from 0. Exit status 1 if a byte came back wrong, or a call failed.";

enum {
	OPTION_MODELS = 256,
	OPTION_PLAN,
	OPTION_SEED,
	OPTION_CHANGE_ORDER_AT,
	OPTION_CHECKSUM,
	OPTION_ALLOW_MEMORY,
	OPTION_ALLOW_BUFFERED,
	OPTION_WINDOW,
	OPTION_BLOCK,
	OPTION_DEPTH,
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

static bool take_flag(struct replay_options *options, int option)
{
	switch (option) {
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
		return false;
	}
}

static bool take_number(struct replay_options *options, int option, const char *value)
{
	switch (option) {
	case 't':
		return option_count("--tokens", value, 1, 1 << 30, &options->tokens);
	case 's':
		return option_fraction("--scale", value, 1, &options->scale);
	case 'c':
		return option_number("--compute-ms-per-layer", value, 0, 1e6,
				     &options->compute_ms);
	case 'B':
		return option_bytes("--budget", value, 1, REPLAY_BYTES_MAX, &options->budget_bytes);
	case 'N':
		return option_count("--steps", value, 1, REPLAY_STEPS_MAX, &options->steps);
	case OPTION_SEED:
		return option_count("--seed", value, 0, UINT32_MAX, &options->seed);
	case OPTION_CHANGE_ORDER_AT:
		return option_count("--change-order-at", value, 1, REPLAY_STEPS_MAX,
				    &options->change_order_at);
	case OPTION_WINDOW:
		return option_bytes("--window", value, 1, REPLAY_BYTES_MAX, &options->window_bytes);
	case OPTION_BLOCK:
		return option_bytes("--block", value, 4096, ACTMEM_BLOCK_BYTES_MAX,
				    &options->block_bytes);
	case OPTION_DEPTH:
		return option_count("--depth", value, 1, ACTMEM_QUEUE_DEPTH_MAX, &options->depth);
	default:
		return memory_option(option, value);
	}
}

static bool take_option(void *data, int option, const char *value)
{
	struct replay_options *options = data;

	switch (option) {
	case 'm':
		options->model = value;
		return true;
	case OPTION_MODELS:
		options->models_path = value;
		return true;
	case OPTION_PLAN:
		options->plan_path = value;
		return true;
	case 'S':
		return option_folder(value, options->spill_paths, &options->spill_path_count);
	case 'o':
		return option_choice("--order", value, order_names, &options->order);
	case 'T':
		options->trace_path = value;
		return true;
	default:
		return take_flag(options, option) || take_number(options, option, value);
	}
}

/*
 * Returns true if the library's error message names a spill directory, whose file system may be
 * unfit.
 */
static bool is_of_a_directory(const struct replay_options *options)
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
	struct actmem_queue_options queue = replay_queue_options(options);
	struct actmem_store_options store;
	int error;

	ACTMEM_INIT(&store);
	store.budget_bytes = options->budget_bytes;
	store.spill_paths = options->spill_paths;
	store.spill_path_count = options->spill_path_count;
	store.flags = options->flags;
	if (knob_is_on(KNOB_STRICT))
		store.flags |= ACTMEM_STORE_STRICT;
	store.window_bytes = options->window_bytes;
	store.queue = &queue;
	error = actmem_store_create(replay->am, &store, &replay->store);
	if (error) {
		replay_tell_error(NULL);
		return error == -EINVAL && !is_of_a_directory(options) ? STATUS_USAGE :
		       STATUS_FAILED;
	}
	if (*actmem_error() && !knob_is_on(KNOB_QUIET))
		replay_tell_error(NULL);
	snprintf(replay->store_words, sizeof(replay->store_words), "%s",
		 actmem_store_describe(replay->store));
	return STATUS_OK;
}

static int open_all(struct replay *replay)
{
	struct actmem_options options;
	int status = memory_options(&options);
	bool is_any = !status && actmem_options_allow_best(&options) > 0;

	if (status)
		return status;
	replay->page_bytes = memory_page_bytes(&options);
	if (actmem_open(&replay->am, &options)) {
		replay_tell_error(NULL);
		return STATUS_FAILED;
	}
	if (is_any)
		best_memory_try(replay->am, replay->page_bytes);
	status = open_store(replay);
	if (!status)
		status = replay_probe_open(replay);
	if (status || !replay->options.trace_path)
		return status;
	replay->timeline = timeline_open(replay->options.trace_path, "actmem replay");
	if (!replay->timeline)
		return STATUS_FAILED;
	if (!replay_trace_begin(replay))
		return STATUS_OK;
	warnx("no memory for a trace");
	return STATUS_FAILED;
}

/* Closes everything. If that fails, returns STATUS_FAILED instead of @status. */
static int close_all(struct replay *replay, int status)
{
	int error;

	replay_probe_close(replay);
	if (replay->store && actmem_store_destroy(replay->store)) {
		replay_tell_error(NULL);
		status = STATUS_FAILED;
	}
	replay_trace_end(replay);
	error = timeline_close(replay->timeline);
	if (error) {
		warnx("cannot write '%s': %s", replay->options.trace_path, strerror(-error));
		status = STATUS_FAILED;
	}
	if (replay->am && actmem_close(replay->am)) {
		replay_tell_error(NULL);
		status = STATUS_FAILED;
	}
	free(replay->order);
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
	progress_end();
	ACTMEM_INIT(&replay->stats);
	if (actmem_store_get_stats(replay->store, &replay->stats)) {
		replay_tell_error(NULL);
		return STATUS_FAILED;
	}
	if (replay->wrong_blocks)
		warnx("%llu blocks came back wrong", (unsigned long long)replay->wrong_blocks);
	return (error && error != -EINTR) || replay->wrong_blocks ? STATUS_FAILED : STATUS_OK;
}

static int report_replay(const struct replay *replay, bool as_json)
{
	json_t *told = replay_to_json(replay);
	bool is_good = table_show(told, as_json, replay_print);

	json_decref(told);
	return is_good ? STATUS_OK : STATUS_FAILED;
}

static int run_replay(struct replay *replay, bool as_json)
{
	int status = replay_lay_out(replay), reported;

	catch_signals();
	if (!status)
		status = open_all(replay);
	if (!status) {
		/* Let sleeps end on time. */
		prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
		status = run_steps(replay);
		reported = report_replay(replay, as_json);
		status = status ? status : reported;
	}
	status = close_all(replay, status);
	if (replay_signal && !fflush(stdout)) {
		signal(replay_signal, SIG_DFL);
		raise(replay_signal);
	}
	return status == STATUS_USAGE ? usage_hint() : status;
}

/* Sets defaults. Rejects options that contradict a plan, which has its own model and tokens. */
static bool take_defaults(struct replay_options *options)
{
	const char *vain = options->model ? "--model" : options->models_path ? "--models" :
			   options->tokens ? "--tokens" : NULL;

	if (options->plan_path && vain) {
		warnx("%s is of a model, and --plan says it itself", vain);
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
		{ "models", required_argument, NULL, OPTION_MODELS },
		{ "plan", required_argument, NULL, OPTION_PLAN },
		{ "tokens", required_argument, NULL, 't' },
		{ "scale", required_argument, NULL, 's' },
		{ "compute-ms-per-layer", required_argument, NULL, 'c' },
		{ "budget", required_argument, NULL, 'B' },
		{ "spill", required_argument, NULL, 'S' },
		{ "steps", required_argument, NULL, 'N' },
		{ "order", required_argument, NULL, 'o' },
		{ "seed", required_argument, NULL, OPTION_SEED },
		{ "change-order-at", required_argument, NULL, OPTION_CHANGE_ORDER_AT },
		{ "checksum", no_argument, NULL, OPTION_CHECKSUM },
		{ "allow-memory", no_argument, NULL, OPTION_ALLOW_MEMORY },
		{ "allow-buffered", no_argument, NULL, OPTION_ALLOW_BUFFERED },
		{ "window", required_argument, NULL, OPTION_WINDOW },
		{ "block", required_argument, NULL, OPTION_BLOCK },
		{ "depth", required_argument, NULL, OPTION_DEPTH },
		{ "trace", required_argument, NULL, 'T' },
		COMMON_OPTIONS
	};
	static const struct option_table table = {
		MEMORY_OPTIONS_SHORT "m:t:s:c:B:S:N:o:T:Jh", long_options, help, take_option,
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
	if (!take_defaults(&replay.options))
		return usage_hint();
	return run_replay(&replay, as_json);
}
