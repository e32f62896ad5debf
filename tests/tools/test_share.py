# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem run --share: what each rank of a job gets, without the module."""
import contextlib
import os
import tempfile

from harness import BUILD, actmem, clean_environment, expect
from tap import case, main

RANKS = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
         "SLURM_LOCALID")
ANY = ("--backend", "memfd", "--pages", "4K", "--allow", "any")


def share(*arguments, said=None, **variables):
    environment = clean_environment(JAX_PLATFORMS="cpu")
    for name in RANKS:
        environment.pop(name, None)
    return actmem("run", *ANY, f"--share={said}" if said else "--share", *arguments,
                  environment=environment | variables)


@contextlib.contextmanager
def folders(count):
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        names = [os.path.join(folder, str(number)) for number in range(count)]
        for name in names:
            os.mkdir(name)
        yield names


@case
def a_rank_that_nobody_tells_is_an_error():
    expect(share("true"), 2, "", [*RANKS, "--share=RANK/OF"])
    expect(share("true", SLURM_LOCALID="0"), 2, "", "cannot share")
    expect(share("true", LOCAL_RANK="4", LOCAL_WORLD_SIZE="4"), 2, "",
           ["LOCAL_RANK is '4'", "LOCAL_WORLD_SIZE is '4'"])
    expect(share("true", said="4/4"), 2, "", ["--share is '4/4'", "RANK/OF"])


@case
def the_parts_are_no_more_than_the_whole():
    show = ("sh", "-c", "echo $ACTMEM_BUDGET $ACTMEM_SPILL_LIMIT $ACTMEM_SPILL")
    with folders(3) as names:
        told = []
        for rank in range(2):
            result = share("-B", "33M", "-L", "101M", "-S", ":".join(names), *show,
                           LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
            expect(result, 0, stderr=[f"rank {rank} of 2 on this machine (LOCAL_RANK): ",
                                      "budget 16.5M, ", "spills to ", "at most 50.5M"])
            told.append(result.stdout.split())
        for column, whole in ((0, 33 << 20), (1, 101 << 20)):
            parts = [int(row[column]) for row in told]
            assert whole - 2 * 4096 < sum(parts) <= whole, told
        used = [name for row in told for name in row[2].split(":")]
        assert sorted(used) == names, told
        expect(share("-B", "1K", "true", said="0/2"), 2, "",
               ["--budget (ACTMEM_BUDGET) is '1K'", "2 processes"])
        expect(share("-q", "-l", "8M", "sh", "-c", "echo $ACTMEM_HEAP_LIMIT", said="1/4"), 0,
               "2097152\n")


@case
def names_do_not_collide_and_are_found_again():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for _ in range(2):
            for rank in range(2):
                result = share("-v", "--name", f"{folder}/job", "--heap-grow", "2M", "sh", "-c",
                               "echo $ACTMEM_NAME", SLURM_LOCALID=str(rank),
                               SLURM_STEP_TASKS_PER_NODE="1,2(x3)", SLURM_NODEID="3")
                assert result.stdout == f"{folder}/job.{rank}\n", result
        assert "job.1.0 was found" in result.stderr, result
        assert sorted(os.listdir(folder)) == ["job.0.0", "job.1.0"], os.listdir(folder)


if __name__ == "__main__":
    main()
