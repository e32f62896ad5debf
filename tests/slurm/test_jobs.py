# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Jobs of a real cluster of Slurm's, of one node, with the prolog, epilog and TaskProlog of
packaging/slurm: each has a file system of its own, on the driver or, without it, on tmpfs and
hugetlbfs. Runs as root in namespaces, or a machine, of its own, and prints TAP:

    python3 tests/slurm/test_jobs.py BUILD
"""
import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
os.environ["ACTMEM_TEST_ISOLATED"] = "1"
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "tools")]

import busy  # noqa: E402
from cluster import Cluster, bring_up_loopback  # noqa: E402
from harness import BUILD, mount, private_dev  # noqa: E402
from tap import case, main  # noqa: E402

MIB = 1 << 20
JOBS = "/run/actmem"
USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
HUGE = "/sys/kernel/mm/hugepages/hugepages-2048kB"
HAS_DRIVER = os.path.exists("/dev/actmem")
IN_FILE_SYSTEM = "stat -f -c '%T %b %S' . ; stat -c '%u %a' ."
cluster = None
log = None


def say_reserved(pages):
    """Has this machine seem to have so many huge pages."""
    path = f"/run/{pages}"
    with open(path, "w", encoding="ascii") as file:
        print(pages, file=file)
    mount("--bind", path, f"{HUGE}/nr_hugepages")


class Log:
    """Takes the place of syslogd."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("/dev/log")
        self.socket.setblocking(False)
        self.lines = []

    def of(self, job):
        with contextlib.suppress(BlockingIOError):
            while True:
                self.lines.append(self.socket.recv(65536).decode())
        return [line.rpartition(f"job {job}: ")[2] for line in self.lines
                if f"actmem: job {job}: " in line]


def job_of(told):
    """Its number, which each begins with."""
    return int(told.splitlines()[0])


def srun(*words, **options):
    *options_of_srun, script = words
    return cluster.call("srun", *options_of_srun, "sh", "-c",
                        f"cd {cluster.folder}; echo $SLURM_JOB_ID; {script}", prefix=USER,
                        **options)


def holder(size):
    return f"{cluster.folder}/bin/actmem run --heap-grow 4M -- " \
           f"{cluster.folder}/tests/tools/holder heap {size * MIB}"


def ended(job):
    """The log of a job whose epilog is through."""
    cluster.wait_for(lambda: "idle" in cluster.call("sinfo", "-h", "-o", "%T").stdout)
    folder = f"{JOBS}/job-{job}"
    assert not os.path.exists(folder), os.listdir(folder)
    with open("/proc/mounts", encoding="utf-8") as mounts:
        assert JOBS not in mounts.read(), "something is still mounted"
    return log.of(job)


def good(result):
    assert result.returncode == 0, (result, cluster.read("slurmd.log")[-2000:])
    return result.stdout.splitlines()


@case
def a_job_has_a_file_system_of_its_gres():
    result = srun("-n", "1", "--gres=actmem:64M", "--mem=100",
                  f"echo $ACTMEM_NAME $ACTMEM_STRICT; cd {JOBS}/job-$SLURM_JOB_ID; "
                  f"{IN_FILE_SYSTEM}; grep job-$SLURM_JOB_ID /proc/mounts")
    job, variables, sizes, owner, line = good(result)
    assert variables == f"{JOBS}/job-{job}/task-0 1", result
    kind, blocks, block = sizes.rsplit(" ", 2)
    assert int(blocks) * int(block) == 64 * MIB, result
    assert owner == "65534 700", result
    expected = "actmem" if HAS_DRIVER else "tmpfs"
    assert f" {expected} " in line and (kind == "tmpfs") == (not HAS_DRIVER), result
    told = ended(job)
    assert told == [f"{expected} with size=64M, of its gres, is mounted for nobody",
                    told[1]] and told[1].startswith("files left: 0, "), told


@case
def without_a_gres_it_is_as_long_as_the_jobs_memory():
    job, sizes, _ = good(srun("-n", "1", "--mem=101",
                              f"cd {JOBS}/job-$SLURM_JOB_ID; {IN_FILE_SYSTEM}"))
    _, blocks, block = sizes.rsplit(" ", 2)
    assert int(blocks) * int(block) == 100 * MIB, sizes
    assert "size=100M, of its memory" in ended(job)[0], log.of(job)


@case
def tasks_have_regions_of_their_own_there():
    result = srun("-n", "3", "--gres=actmem:64M", "--mem=100",
                  f"{holder(4)} -- du -m {JOBS}/job-$SLURM_JOB_ID/task-$SLURM_LOCALID.0")
    lines = good(result)
    job = job_of(result.stdout)
    for task in range(3):
        assert f"4\t{JOBS}/job-{job}/task-{task}.0" in lines, result
    assert lines.count("ready wrote") == 3, result
    told = ended(job)[-1]
    assert told.startswith("files left: 3, with 122") and told.endswith("; removed"), told


@case
def a_batch_script_and_its_steps_do_not_collide_and_the_next_finds_its_memory():
    script = os.path.join(cluster.folder, "script")
    with open(script, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\necho $SLURM_JOB_ID\n{holder(4)} -- srun -n 2 {holder(4)} -- "
                   f"sh -c 'echo $ACTMEM_NAME'\nsrun -n 1 {holder(4)} -- true\n")
    out = os.path.join(cluster.folder, "public", "out")
    good(cluster.call("sbatch", "-W", "-n", "2", "--gres=actmem:64M", "--mem=100", "-o", out,
                      "--chdir", "/", script, prefix=USER))
    with open(out, encoding="utf-8") as file:
        told = "".join(line for line in file if not line.startswith(("slurmstepd", "srun: ")))
    job = job_of(told)
    assert sorted(told.splitlines()[1:]) == [f"{JOBS}/job-{job}/task-0",
                                             f"{JOBS}/job-{job}/task-1",
                                             "ready found", *["ready wrote"] * 3], told
    assert ended(job)[-1].startswith("files left: 3, "), log.of(job)


@case
def a_job_over_its_size_fails_in_words():
    result = srun("-n", "1", "--gres=actmem:16M", "--mem=100", holder(24))
    assert result.returncode, result
    assert "size=" in result.stderr and f"{JOBS}/job-" in result.stderr, result
    assert "ready" not in result.stdout, result
    ended(job_of(result.stdout))


@case
def a_killed_job_leaves_nothing():
    marker = os.path.join(cluster.folder, "public", "marker")
    job = good(cluster.call(
        "sbatch", "--parsable", "-n", "1", "--gres=actmem:64M", "--mem=100", "-o", marker,
        "--chdir", "/", "--wrap", f"exec {holder(8)} -- sleep 1000", prefix=USER))[0]

    def started():
        with contextlib.suppress(FileNotFoundError), open(marker, encoding="ascii") as file:
            return "ready" in file.read()
        return False
    cluster.wait_for(started)
    held = os.listdir(f"{JOBS}/job-{job}")
    good(cluster.call("scancel", "--signal=KILL", "--full", job))
    told = ended(job)[-1]
    assert held and told.startswith(f"files left: {len(held)}, with ") and \
        told.endswith("; removed"), (held, told)


@case
def a_process_of_another_job_keeps_no_job_from_ending():
    with open(f"{cluster.folder}/public/held", "w", encoding="ascii") as out, subprocess.Popen(
            [*USER, "srun", "-n", "1", "--gres=actmem:64M", "--mem=100", "sh", "-c",
             f"echo $SLURM_JOB_ID; {holder(4)}"], stdin=subprocess.PIPE, stdout=out,
            env=cluster.environment, cwd="/") as step:
        def told():
            with open(out.name, encoding="ascii") as file:
                return file.read()
        cluster.wait_for(lambda: "ready" in told())
        job = job_of(told())
        with open(f"{JOBS}/job-{job}/task-0.0", "rb"):
            step.stdin.close()
            step.wait()
            line = ended(job)[-1]
    assert line.startswith("files left: 1, with ") and "actmem list" in line, line


def script(name, job, **more):
    """One of Slurm's, as slurmd starts it."""
    return subprocess.run(
        [f"{cluster.folder}/{name}"], capture_output=True, text=True, check=False, timeout=100,
        env={**cluster.environment, "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "65534",
             "SLURM_JOB_USER": "nobody", "SLURMD_NODENAME": "localhost", **more})


def answers(text, calls=1):
    """PATH with a scontrol that fails until so many calls, and a sleep that does not."""
    folder = tempfile.mkdtemp(dir=cluster.folder)
    for name, lines in ("scontrol", (
            '[ "$1" != show ] || { echo localhost; exit; }',
            f"echo >>{folder}/calls; [ $(wc -l <{folder}/calls) -ge {calls} ] || exit 1",
            f"echo ' {text}'")), ("sleep", ("exit 0",)):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write("\n".join(("#!/bin/sh", *lines, "")))
        os.chmod(file.name, 0o755)
    return folder, f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"


@case
def the_prolog_asks_again_when_slurmctld_does_not_answer():
    line = "Nodes=localhost CPU_IDs=0 Mem=100 GRES=gpu:1(IDX:0),actmem(CNT:16777216)"
    folder, path = answers(line, calls=3)
    result = script("prolog", 900001, PATH=path)
    with open(f"{folder}/calls", encoding="ascii") as file:
        assert result.returncode == 0 and len(file.readlines()) == 3, result
    assert "size=16M, of its gres" in ended_by_epilog(900001)[0], log.of(900001)
    result = script("prolog", 900002, PATH=answers(line, calls=100)[1])
    assert result.returncode == 1 and "from slurmctld" in result.stdout, result
    assert not os.path.exists(f"{JOBS}/job-900002")


def ended_by_epilog(job):
    result = script("epilog", job)
    assert result.returncode == 0, result
    return ended(job)


@case
def what_the_prolog_cannot_read_is_no_job_without_a_limit():
    for text, words in (
            ("Nodes=localhost CPU_IDs=0 Mem=100 GRES=actmem:1.50G", "the gres 'actmem:1.50G'"),
            ("Nodes=localhost CPU_IDs=0 Mem=100 GRES=actmem(CNT:1M)", "the gres 'actmem(CNT:1M)'"),
            ("Nodes=localhost CPU_IDs=0 Mem=1.5G GRES=", "does not list the job's resources")):
        result = script("prolog", 900003, PATH=answers(text)[1])
        assert result.returncode == 1 and words in result.stdout, result
        assert not os.path.exists(f"{JOBS}/job-900003"), result
    result = script("prolog", 900003,
                    PATH=answers("Nodes=localhost CPU_IDs=0 Mem=0 GRES=actmem2(CNT:3)")[1])
    assert result.returncode == 0 and "nothing is mounted" in result.stdout, result


@case
def somebody_who_makes_files_meanwhile_keeps_no_job_from_ending():
    place = f"{JOBS}/job-900004"
    os.makedirs(place)
    mount("-t", "tmpfs", "-o", "size=1M,mode=777", "none", place)
    with subprocess.Popen([*USER, sys.executable, "-c", busy.PROGRAM], cwd=place,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
        writer.stdout.readline()
        line = ended_by_epilog(900004)[-1]
        writer.kill()
    assert line.startswith("files left: ") and "actmem list" in line, line


@case
def nothing_is_asked_of_a_job_that_has_no_file_system():
    environment = {**cluster.environment, "SLURM_JOB_ID": "900005", "SLURM_LOCALID": "0"}
    words = [f"{cluster.folder}/task-prolog"]
    assert subprocess.check_output(words, env=environment) == b""


def where_huge_pages_are_reserved_they_are_what_it_has():
    say_reserved(1)
    job, line = good(srun("-n", "1", "--gres=actmem:32M", "--mem=100",
                          "grep job-$SLURM_JOB_ID /proc/mounts"))
    assert " hugetlbfs " in line and f"pagesize=2M,size={32 * MIB}" in line, line
    ended(job)


if not HAS_DRIVER:
    case(where_huge_pages_are_reserved_they_are_what_it_has)


def prepare(folder):
    os.chmod(folder, 0o755)
    for name in ("bin", "lib", "public", "tests/tools"):
        os.makedirs(os.path.join(folder, name))
    os.chmod(os.path.join(folder, "public"), 0o777)
    for name in ("bin/actmem", "lib/libactmem.so.0", "lib/libactmem_preload.so",
                 "tests/tools/holder"):
        shutil.copy(os.path.join(BUILD, name), os.path.join(folder, name))
    for name in ("prolog", "epilog", "task-prolog"):
        shutil.copy(os.path.join(ROOT, "packaging", "slurm", name), folder)


def on_cluster():
    global cluster, log
    socket.sethostname("localhost")
    bring_up_loopback()
    mount("-t", "tmpfs", "-o", "mode=755", "none", "/run")
    if not HAS_DRIVER:
        private_dev()
        os.mkdir("/dev/shm")
        mount("-t", "tmpfs", "none", "/dev/shm")
        say_reserved(0)
    else:
        os.chmod("/dev/actmem", 0o666)
        # As slurmd's unit has it.
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
    log = Log()
    with tempfile.TemporaryDirectory(dir="/run") as folder:
        prepare(folder)
        lines = f"GresTypes=actmem\nPrologFlags=Alloc\nProlog={folder}/prolog\n" \
                f"Epilog={folder}/epilog\nTaskProlog={folder}/task-prolog\n" \
                "PropagateResourceLimitsExcept=MEMLOCK"
        with Cluster(folder, lines, 500, "256M") as cluster:
            main()


if __name__ == "__main__":
    on_cluster()
