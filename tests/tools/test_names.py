# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem run --name: regions that outlive their program, without the module."""
import contextlib
import json
import os
import signal
import subprocess
import tempfile

from harness import ACTMEM, HOLDER, actmem, clean_environment, expect, mounted
from tap import Skip, case, main

MIB = 1 << 20
# A block of the heap, written from one end to the other: "wrote" or "found" it.
PROGRAM = [HOLDER, "heap"]
DISK = "size=32M,mode=0700"
ENVIRONMENT = {"ACTMEM_BACKEND": "memfd", "ACTMEM_PAGES": "4K", "ACTMEM_ALLOW": "unlocked"}


def arguments(name, *program):
    return ["run", "--name", name, "--heap-grow", "8M", "--", *program]


@contextlib.contextmanager
def started(name, *options, folder=None):
    """A program under `actmem run --name`, that holds a block of its heap."""
    command = [ACTMEM, *arguments(name, *PROGRAM, str(4 * MIB), *options)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=clean_environment(**ENVIRONMENT), cwd=folder) as process:
        try:
            process.told = process.stdout.readline().strip()
            yield process
        finally:
            process.kill()


def run(name, *program, **options):
    return actmem(*arguments(name, *program), environment=clean_environment(**ENVIRONMENT),
                  **options)


def region_of(process):
    result = actmem("list", "--json")
    (region,) = [r for r in json.loads(result.stdout)["regions"] if r["pid"] == process.pid]
    return region


@case
def a_killed_program_leaves_its_memory_to_the_next():
    with mounted(DISK) as folder:
        name = os.path.join(folder, "job")
        with started(name) as process:
            assert process.told == "ready wrote", process.told
            before = os.stat(name + ".0")
            process.send_signal(signal.SIGKILL)
            process.wait()
        free = os.statvfs(folder).f_bfree
        with started(name) as process:
            assert process.told == "ready found", process.told
            now = os.stat(name + ".0")
            assert (now.st_ino, now.st_blocks) == (before.st_ino, before.st_blocks), now
            assert os.statvfs(folder).f_bfree == free, "something was allocated anew"
            assert region_of(process)["demand_faults"] == 0
        assert os.listdir(folder) == ["job.0"], os.listdir(folder)
        assert before.st_blocks * 512 == before.st_size == 8 * MIB, before
        os.unlink(name + ".0")
        assert os.statvfs(folder).f_bfree == os.statvfs(folder).f_blocks


@case
def a_removed_file_keeps_its_name():
    with mounted(DISK) as folder:
        name = os.path.join(folder, "job")
        with started(name) as process:
            assert process.told == "ready wrote", process.told
            os.unlink(name + ".0")
            found = region_of(process)
            assert (found["name"], found["path"]) == ("job.0", f"{name}.0 (deleted)"), found


@case
def a_name_is_for_one_program_at_a_time():
    with mounted(DISK) as folder:
        name = os.path.join(folder, "job")
        with started(name) as process:
            expect(run(name, "echo", "ran"), 1, "",
                   [f"{name}.0 is in use by process {process.pid} (holder)", "another name"])
            expect(run(name + "2", "echo", "ran"), 0, "ran\n")
        expect(run(name, "echo", "ran"), 0, "ran\n")


@case
def list_tells_where_it_is():
    with mounted(DISK) as folder:
        name = os.path.join(folder, "job")
        with started(name) as process:
            region = region_of(process)
            assert region["named"] is True and region["name"] == "job.0", region
            assert region["path"] == name + ".0" and region["bytes"] == 8 * MIB, region
            assert region["pages"] == "4K" and region["backend"] == "memfd", region
            assert sum(n["bytes"] for n in region["nodes"]) == 8 * MIB, region
            table = actmem("list").stdout.splitlines()
            assert any(row.split()[-2:] == [name + ".0", "memfd"] for row in table), table
        assert not [r for r in json.loads(actmem("list", "--json").stdout)["regions"]
                    if r["pid"] == process.pid]


@case
def a_relative_name_is_where_run_was_called():
    with mounted(DISK) as folder:
        result = run("./job", "sh", "-c", "cd /; echo $ACTMEM_NAME", cwd=folder)
        expect(result, 0, f"{folder}/./job\n")
        result = actmem("run", "--heap-grow", "8M", "sh", "-c", "cd /; echo $ACTMEM_NAME",
                        environment=clean_environment(ACTMEM_NAME="./job", **ENVIRONMENT),
                        cwd=folder)
        expect(result, 0, f"{folder}/./job\n")
        assert os.listdir(folder) == ["job.0"], os.listdir(folder)
        expect(run("", "echo", "ran", cwd=folder), 2, "", "--name is empty")


@case
def verbose_tells_whether_it_was_found():
    with mounted(DISK) as folder:
        words = [actmem("run", "--verbose", "--name", f"{folder}/job", "--heap-grow", "4M", "true",
                        environment=clean_environment(**ENVIRONMENT)).stderr for _ in range(2)]
    assert "job.0 was created" in words[0] and "job.0 was found" in words[1], words
    assert f"{folder}/job.0 and so on" in words[0], words


@case
def refusals_say_what_to_do():
    with mounted(DISK) as folder, tempfile.TemporaryDirectory(dir="/var/tmp") as elsewhere:
        expect(run(f"{elsewhere}/job", "echo", "ran"), 1, "",
               ["cannot contain regions", "mount -t actmem", "mount -t hugetlbfs"])
        expect(run("job", "echo", "ran"), 1, "", ["'job'", "mount -t actmem", folder])
        expect(run(f"{folder}/no/job", "echo", "ran"), 1, "", [f"{folder}/no", "No such"])
        result = actmem("run", "--name", f"{folder}/job", "--heap-grow", "64M", "echo", "ran",
                        environment=clean_environment(**ENVIRONMENT))
        expect(result, 1, "", ["32.0 MiB left, but 64.0 MiB are needed", "size=", f"remount,size=64M {folder}"])
        result = actmem("run", "--name", f"{folder}/job", "--strict", "echo", "ran",
                        environment=clean_environment(ACTMEM_BACKEND="memfd"))
        expect(result, 1, "", ["no hugetlb pages", "mount -t hugetlbfs", "--allow thp,4k (ACTMEM_ALLOW)"])
        assert not os.listdir(folder), os.listdir(folder)
        expect(run(folder, "echo", "ran"), 1, "", ["is a folder", f"{folder}/NAME"])
        assert not os.path.exists(f"{folder}.0")


@case
def a_refused_growth_tells_what_is_missing_by_the_names_of_who_asks():
    any_pages = {"ACTMEM_BACKEND": "memfd", "ACTMEM_ALLOW": "any"}
    with mounted("size=6M,mode=0700") as folder:
        name = f"{folder}/job"
        short = "6.0 MiB left, but 64.0 MiB are needed"
        result = actmem("run", "--name", name, "true", environment=clean_environment(**any_pages))
        expect(result, 1, "", [f"actmem run: the file system of {name}.0 has {short}",
                               "--heap-grow (ACTMEM_HEAP_GROW)"])
        assert "hugetlb" not in result.stderr, result.stderr
        # Room for the first region alone.
        result = actmem("run", "--name", name, "--heap-grow", "4M", "--", *PROGRAM, str(8 * MIB),
                        environment=clean_environment(**any_pages))
        words = f"holder: the file system of {name}.1 has 2.0 MiB left, but 8.0 MiB are needed"
        assert result.returncode == 1 and result.stderr.startswith(words), result.stderr
        # A program without options of its own has the variable to turn.
        environment = clean_environment(ACTMEM_NAME=f"{folder}/other", ACTMEM_BACKEND="memfd",
                                        ACTMEM_PAGES="2M")
        result = actmem("heap", str(MIB), program=HOLDER, environment=environment)
        words = "allow other pages with ACTMEM_ALLOW=thp,4k\n"
        assert result.returncode == 1 and result.stderr.endswith(words), result.stderr


@case
def the_file_system_of_dev_has_no_regions():
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(mounted("mode=755", "devtmpfs"))
        except subprocess.CalledProcessError as error:
            raise Skip("devtmpfs cannot be mounted") from error
        for name in ("null", "no-such-device"):
            expect(run(f"{folder}/{name}", "echo", "ran"), 1, "", ["type devtmpfs", "mount -t"])
            assert not os.path.exists(f"{folder}/{name}.0")


@case
def another_users_file_is_not_taken():
    if os.getuid():
        raise Skip("needs root, to have another user's file")
    with mounted(DISK) as folder:
        with open(f"{folder}/job.0", "wb") as file:
            file.truncate(8 * MIB)
        try:
            os.chown(f"{folder}/job.0", 65534, 65534)
        except OSError as error:
            raise Skip("needs root, to have another user's file") from error
        with subprocess.Popen([HOLDER, "heap", str(MIB)], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=clean_environment(ACTMEM_NAME=f"{folder}/job",
                                                    **ENVIRONMENT)) as process:
            words = process.communicate()[1]
        assert process.returncode == 1 and "belongs to user 65534" in words, words
        expect(run(f"{folder}/job", "echo", "ran"), 1, "", "belongs to user 65534")


@case
def what_a_heap_could_not_take_is_told_before():
    with mounted(DISK) as folder:
        with open(f"{folder}/job.0", "wb") as file:
            file.truncate(4095)
        expect(run(f"{folder}/job", "echo", "ran"), 1, "", ["job.0", "4095 bytes", "remove it"])
        os.unlink(f"{folder}/job.0")
        expect(run(f"{folder}/job", "echo", "ran"), 0, "ran\n")
        result = actmem("run", "--name", f"{folder}/job", "--heap-grow", "4M", "--heap-limit", "4M",
                        "echo", "ran", environment=clean_environment(**ENVIRONMENT))
        expect(result, 1, "", ["job.0 has 8.0 MiB", "ACTMEM_HEAP_LIMIT"])
        budget = ("run", "--name", f"{folder}/small", "--budget", "4M")
        expect(actmem(*budget, "true", environment=clean_environment(**ENVIRONMENT)), 0, "")
        assert os.stat(f"{folder}/small.0").st_size == 4 * MIB
        os.truncate(f"{folder}/small.0", 8 * MIB)
        result = actmem(*budget, "true", environment=clean_environment(**ENVIRONMENT))
        expect(result, 1, "", ["small.0 has 8.0 MiB", "raise --budget (ACTMEM_BUDGET)"])


if __name__ == "__main__":
    main()
