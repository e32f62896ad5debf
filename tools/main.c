// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The command actmem: the table of its subcommands. */
#include "tool.h"

static const struct subcommand subcommands[] = {
	{ "run", "run a program with actmem set up", cmd_run },
	{ "list", "list the regions on this machine, and their owners", cmd_list },
	{ "waits", "show what processes wait for: disks, memory, or nothing", cmd_waits },
	{ "prune", "remove named regions that no process uses", cmd_prune },
	{ "info", "show the backend, versions, nodes, page pools and limits", cmd_info },
	{ "pool", "show or set the driver's reserved memory, by node", cmd_pool },
	{ "limit", "show or set the limits of the driver's memory", cmd_limit },
	{ "doctor", "find what slows this machine down, and the remedy", cmd_doctor },
	{ "exporter", "report metrics to Prometheus, over HTTP or in a file", cmd_exporter },
	{ "bench", "measure copies of memory and spill devices", cmd_bench },
	{ "replay", "run a training step's traffic, and verify every byte", cmd_replay },
	{ "plan", "decide which activations to keep, offload or recompute", cmd_plan },
	{ "probe", "measure this machine once, for plan", cmd_probe },
};

int main(int argc, char **argv)
{
	static const struct command command = {
		.name = "actmem",
		.about = "Pinned, NUMA-local, huge-page memory for accelerators.",
		.other_status = "; 'run' returns\nthe status of the program once it has started",
		.subcommands = subcommands,
		.count = sizeof(subcommands) / sizeof(subcommands[0]),
	};

	return command_main(&command, argc, argv);
}
