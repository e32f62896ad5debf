# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Programs that know nothing of it, under actmem run --malloc.

Most run with a lower threshold than people have: more of their aligned blocks are
the preload's then.
"""
import contextlib
import glob
import json
import os
import shutil
import subprocess
import tempfile
import time

from harness import ACTMEM, BUILD, clean_environment
from tap import case, main

# That of Debian, which has its tests by scripts/setup, whatever other Python comes first in PATH.
PYTHON = "/usr/bin/python3"
HERE = os.path.dirname(os.path.realpath(__file__))
TRAIN = os.path.join(HERE, "train.py")


def under(*words, minimum="16K", **options):
    """A program that has to end well, and the preload has to have been there."""
    environment = clean_environment(ACTMEM_MALLOC_MIN=minimum, JAX_PLATFORMS="cpu")
    result = subprocess.run([ACTMEM, "run", "--malloc", "--", *words], env=environment,
                            capture_output=True, text=True, timeout=300, check=False, **options)
    told = f"{words}: {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    assert result.returncode == 0, told
    assert "actmem" not in result.stderr, told
    return result


def unittest(*names):
    with tempfile.TemporaryDirectory() as folder:
        result = under(PYTHON, "-m", "unittest", *(f"test.{name}" for name in names), cwd=folder)
    assert "\nOK" in result.stderr and "Ran 0 tests" not in result.stderr, result.stderr


@case
def the_tests_of_python_have_it():
    ask = "import ctypes\nblock = ctypes.c_void_p()\n" \
          "ctypes.CDLL(None).posix_memalign(ctypes.byref(block), 64, 1 << 20)\n" \
          "ctypes.memset(block, 1, 100)\n" \
          "print('actmem-malloc' in open('/proc/self/maps').read())"
    assert under(PYTHON, "-c", ask).stdout == "True\n"


@case
def multiprocessing_of_python_passes_its_tests():
    at = "test_multiprocessing_fork"
    # A package since Python 3.12.
    if glob.glob(f"/usr/lib/python3.*/test/{at}/test_processes.py"):
        at += ".test_processes"
    unittest(f"{at}.WithProcessesTestPool", f"{at}.WithProcessesTestConnection",
             f"{at}.WithProcessesTestSharedMemory")


@case
def threading_of_python_passes_its_tests():
    unittest("test_threading.ThreadTests", "test_threading.ThreadJoinOnShutdown")


@case
def gcc_makes_the_same_objects():
    objects = [f"obj/lib/{name}.o" for name in ("base/extents", "heap/heap", "region/options")]
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for prefix in ([], [ACTMEM, "run", "--malloc", "--"]):
            build = os.path.join(folder, "same")
            subprocess.run([*prefix, "make", "-s", "-B", f"B={build}",
                            *(os.path.join(build, o) for o in objects)], check=True,
                           cwd=os.path.join(HERE, "../.."),
                           env=clean_environment(ACTMEM_MALLOC_MIN="16K"))
            made.append([])
            for name in objects:
                with open(os.path.join(build, name), "rb") as file:
                    made[-1].append(file.read())
            shutil.rmtree(build)
    assert made[0] == made[1] and all(made[0])


def ask_redis(socket, *words):
    result = subprocess.run(["redis-cli", "-s", socket, *words], capture_output=True, text=True,
                            timeout=120, check=False)
    assert result.returncode == 0, result
    return result.stdout.strip()


@contextlib.contextmanager
def redis(folder):
    """Debian's program is a server by its name; it links jemalloc."""
    program = os.path.join(folder, "redis-server")
    os.symlink(shutil.which("redis-check-rdb"), program)
    socket = os.path.join(folder, "socket")
    with subprocess.Popen([ACTMEM, "run", "--malloc", "--", program, "--port", "0",
                           "--unixsocket", socket, "--dir", folder, "--save", ""],
                          env=clean_environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            if "Ready to accept connections" in line or "ready to accept" in line:
                break
        yield socket
        ask_redis(socket, "shutdown", "nosave")
        assert process.wait() == 0, process.returncode


@case
def redis_serves_large_values_and_saves_them_by_fork():
    with tempfile.TemporaryDirectory() as folder, redis(folder) as socket:
        subprocess.run(["redis-benchmark", "-s", socket, "-n", "200", "-c", "5", "-r", "20",
                        "-d", str(2 << 20), "-t", "set,get", "-q"], check=True,
                       stdout=subprocess.DEVNULL, timeout=120)
        subprocess.run(["redis-benchmark", "-s", socket, "-n", "20000", "-q",
                        "-t", "lpush,lrange_100,mset"], check=True, stdout=subprocess.DEVNULL,
                       timeout=120)
        assert int(ask_redis(socket, "dbsize")) >= 20
        assert "started" in ask_redis(socket, "bgsave")
        while "rdb_bgsave_in_progress:1" in ask_redis(socket, "info", "persistence"):
            time.sleep(0.1)
        assert "rdb_last_bgsave_status:ok" in ask_redis(socket, "info", "persistence")
        assert ask_redis(socket, "flushall") == "OK"
        assert ask_redis(socket, "dbsize") == "0"


@case
def fio_verifies_what_it_wrote():
    with tempfile.TemporaryDirectory() as folder:
        result = under("fio", "--name=verify", f"--directory={folder}", "--rw=randwrite",
                       "--bs=2M", "--size=32M", "--ioengine=psync", "--verify=crc32c",
                       "--do_verify=1", "--thread", "--numjobs=2", "--output-format=json",
                       cwd=folder)
    jobs = json.loads(result.stdout)["jobs"]
    assert len(jobs) == 2 and not any(job["error"] for job in jobs), jobs
    assert all(job["read"]["io_bytes"] == 32 << 20 for job in jobs), jobs


@case
def jax_trains_to_the_same_bits():
    python = os.path.join(BUILD, "venv", "bin", "python")
    plain = subprocess.run([python, TRAIN], capture_output=True, text=True,
                           env=clean_environment(JAX_PLATFORMS="cpu"), timeout=300, check=True)
    pooled = under(python, TRAIN, minimum="1M")
    assert len(plain.stdout.split()) == 9 and plain.stdout == pooled.stdout, pooled.stdout


main()
