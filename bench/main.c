// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The command actmem-bench: the table of its subcommands. */
#include <string.h>
#include "../tools/tool.h"

static const struct subcommand subcommands[] = {
	{ "bench", "measure copies of memory and spill devices", cmd_bench },
	{ "replay", "run a training step's traffic, and verify every byte", cmd_replay },
};

/*
 * The command actmem executes actmem-bench for the subcommands "bench" and "replay", with "actmem"
 * as argv[0].
 */
int main(int argc, char **argv)
{
	const struct command command = {
		.name = argc > 0 && !strcmp(argv[0], "actmem") ? "actmem" : "actmem-bench",
		.about = "Measures the memory and the spill devices of this machine.",
		.other_status = "",
		.subcommands = subcommands,
		.count = sizeof(subcommands) / sizeof(subcommands[0]),
	};

	return command_main(&command, argc, argv);
}
