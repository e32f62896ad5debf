# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Four JAX processes of one job, or two where a GPU stands in, each under

    actmem run --share --budget SIZE --spill FOLDER...

train together as JAX alone does, each with its part of the budget and of the folders, and
on its node, if the machine has several. What `actmem run` is to be told besides follows the
program's name; first, with a GPU that stands in, GPU=BUS_ID:NODE. Prints TAP.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from pair import ACTMEM, TREE, Pair, check, finish  # noqa: E402

MIB = 1 << 20
BUDGET_OF_RANK, FOLDERS = 6, 2          # MiB
NODES = "/sys/devices/system/node"


def nodes():
    return sorted(int(name[4:]) for name in os.listdir(NODES)
                  if name.startswith("node") and name[4:].isdigit())


def regions_of(pid):
    told = subprocess.run([ACTMEM, "list", "--json", "--pid", str(pid)], check=True,
                          stdout=subprocess.PIPE)
    return json.loads(told.stdout)["regions"]


def folder_of_files(pid, folders):
    """Those that the process has files without names in."""
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    return [folder for folder in folders if any(link.startswith(f"{folder}/#") for link in links)]


def train(options, folders, ranks):
    budget = ranks * BUDGET_OF_RANK
    spill = [word for folder in folders for word in ("--spill", folder)]
    job = Pair(lambda rank: ("--share", *options, "--budget", f"{budget}M", "--heap-grow", "2M",
                             *spill), count=ranks)
    check(all(told["devices"] == ranks for told in job.started), f"{ranks} processes are one job",
          job.started)
    job.do("prepare together")
    stock = job.do("stock together")
    told = job.do("actmem together")
    losses = stock[0]["losses"]
    check(all(one["losses"] == losses for one in told) and losses[-1] < losses[0],
          f"they train together, with the losses of JAX alone: {losses}", told)

    stores = [one["store"] for one in told]
    budgets = [store["budget_bytes"] for store in stores]
    held = [store["memory_bytes_peak"] for store in stores]
    check(0 < sum(budgets) <= budget * MIB and len(set(budgets)) == 1,
          f"their budgets are parts of {budget} MiB: {budgets}")
    check(all(0 < bytes_held <= part for bytes_held, part in zip(held, budgets)),
          f"and hold: {held}")
    check(all(store["spilled_bytes_total"] > 0 for store in stores), "each spills", stores)
    used = [folder_of_files(worker.process.pid, folders) for worker in job]
    check(used == [[folders[rank * FOLDERS // ranks]] for rank in range(ranks)],
          "each to its folder", used)

    there = nodes()
    wanted = [there[rank * len(there) // ranks] for rank in range(ranks)]
    placed = [{place["node"] for region in regions_of(worker.process.pid)
               for place in region["nodes"]} for worker in job]
    check(placed == [{node} for node in wanted],
          f"their regions are on nodes {wanted} of {there}", placed)
    lines = [worker.told() for worker in job]
    check(all(f"rank {rank} of {ranks} on this machine (LOCAL_RANK): budget "
              f"{BUDGET_OF_RANK}M, spills to " in line and (len(there) < 2 or f"node {wanted[rank]} of its rank" in line)
              for rank, line in enumerate(lines)), "and each says what it has", lines)
    statuses = job.end()
    check(statuses == [0] * ranks, "all end well", statuses)


def set_by_share(rank, *options, prefix=(), **variables):
    """What a rank finds as its nodes, and the line about it."""
    told = subprocess.run([*prefix, ACTMEM, "run", f"--share={rank}", *options, "--",
                           "sh", "-c", "echo $ACTMEM_NODES"], check=True, text=True,
                          capture_output=True, env=os.environ | variables)
    return told.stdout.strip(), told.stderr


def places_of_gpus(bus_id, node):
    """Ranks of a machine whose two GPUs are the one of that node, and one of none."""
    ids = f"{bus_id},0000:00:00.7"
    nodes_set, line = set_by_share("0/2", STANDIN_CUDA_BUS_IDS=ids, STANDIN_CUDA_DEVICES="2")
    check(nodes_set == node and f"node {node} of GPU 0" in line,
          "the first rank is on its GPU's node", nodes_set, line)
    nodes_set, line = set_by_share("1/2", STANDIN_CUDA_BUS_IDS=ids, STANDIN_CUDA_DEVICES="2")
    check(nodes_set == "", "where a GPU's node is not known, none is taken", nodes_set, line)
    nodes_set, line = set_by_share("1/2", STANDIN_CUDA_BUS_IDS=ids, STANDIN_CUDA_DEVICES="1")
    check(nodes_set == node, "a rank that is shown one GPU alone is on its node", nodes_set, line)
    nodes_set, line = set_by_share("1/2", STANDIN_CUDA_BUS_IDS=ids, STANDIN_CUDA_DEVICES="2",
                                   JAX_PLATFORMS="cpu")
    check(nodes_set == "1" and "of its rank" in line, "on the CPU, GPUs say nothing",
          nodes_set, line)


def places_of_cpus():
    """Of a machine of two nodes whose first two CPUs are theirs."""
    for rank in ("0/2", "1/2"):
        nodes_set, line = set_by_share(rank, prefix=("taskset", "-c", "1"), JAX_PLATFORMS="cpu")
        check(nodes_set == "1" and "of its CPUs" in line,
              f"rank {rank} is where its CPU is", nodes_set, line)
    nodes_set, line = set_by_share("1/2", "--nodes", "0", JAX_PLATFORMS="cpu")
    check(nodes_set == "0", "a node that is named stays", nodes_set, line)


def main():
    options = sys.argv[1:]
    gpu = options.pop(0)[4:].rpartition(":") if options and options[0].startswith("GPU=") else None
    if gpu:
        from pair_on_driver import bring_up_loopback
        bring_up_loopback()
        places_of_gpus(gpu[0], gpu[2])
        places_of_cpus()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", f"{TREE}/build")) as folder:
        folders = [os.path.join(os.path.realpath(folder), str(number))
                   for number in range(FOLDERS)]
        for name in folders:
            os.mkdir(name)
        train(options, folders, 2 if gpu else 4)
    finish()


if __name__ == "__main__":
    main()
