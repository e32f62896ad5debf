# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""`actmem run` with and without --offload, of programs that know nothing of actmem: what
they keep, and the lines that they print when they begin and end."""
import functools
import os
import re
import subprocess
import sys

import pytest

from running import BEGINS, COUNTED, ENDS, HERE, of_python, run, starts
from unchanged import PUTS

UNCHANGED = os.path.join(HERE, "unchanged.py")


def trained(kind, *rest, **named):
    """The digest, how many values were put, and the lines."""
    code = COUNTED + f"sys.path.insert(0, {HERE!r}); import unchanged\n" \
        "print(unchanged.train(*sys.argv[1:]))"
    (digest, _, puts), lines = of_python(code, kind, *rest, **named)
    return digest, puts, lines


@functools.cache
def plainly(kind):
    return trained(kind, options=())


@pytest.mark.parametrize("kind", ["plain", "linen", "nnx"])
def test_an_unchanged_program(kind):
    wanted, puts, lines = plainly(kind)
    assert puts == "False", "actmem.jax was imported"
    starts(lines, ENDS)
    assert "actmem run --offload" in lines[0] and "ACTMEM_QUIET=1" in lines[0]
    digest, puts, lines = trained(kind)
    assert (digest, puts) == (wanted, str(PUTS))
    starts(lines, BEGINS)
    assert "ACTMEM_OFFLOAD=0" in lines[0]


def test_the_variables():
    wanted = plainly("plain")
    assert trained("plain", ACTMEM_OFFLOAD="0")[1] == "False"
    assert trained("plain", options=(), ACTMEM_OFFLOAD="1")[1] == str(PUTS)
    assert trained("plain", ACTMEM_QUIET="1") == (wanted[0], str(PUTS), [])
    assert trained("plain", options=("--quiet",)) == (*wanted[:2], [])


def test_what_keeps_nothing_and_why(tmp_path):
    digest, puts, lines = trained("plain", "out")
    assert puts == "0"
    starts(lines, BEGINS, ENDS)
    assert "offload out (unchanged.py:" in lines[1] and "no backward pass" in lines[1]
    lines = trained("plain", "nobody")[2]
    starts(lines, BEGINS, ENDS)
    assert "no policy" in lines[1] and "hidden (unchanged.py:" in lines[1]
    # With the report, too, which has a row.
    starts(trained("plain", "nobody", options=("--report",))[2], ENDS)
    _, _, lines, words = run(
        sys.executable, UNCHANGED, "plain", "out", with_words=True,
        options=("--offload", "--report", "--budget", "8M", "--spill", str(tmp_path)))
    starts(sorted(lines), "actmem: others", ENDS, BEGINS)
    assert re.search(r"\nout .* unneeded +unneeded\n", words)


def test_values_that_are_small(tmp_path):
    program = tmp_path / "small.py"
    program.write_text(
        "import jax, jax.numpy as jnp\n"
        "from jax.ad_checkpoint import checkpoint_name\n"
        "policy = jax.checkpoint_policies.save_and_offload_only_these_names(\n"
        "    names_which_can_be_saved=[], names_which_can_be_offloaded=['h'],\n"
        "    offload_src='device', offload_dst='pinned_host')\n"
        "f = jax.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), 'h')), policy=policy)\n"
        "jax.jit(jax.grad(lambda x: f(x).sum()))(jnp.ones(4))\n")
    lines = run(sys.executable, str(program))[2]
    starts(lines, BEGINS, ENDS)
    assert "h (small.py:6)" in lines[1] and "patch(min_bytes=0)" in lines[1]


# Compiles a function of its own.
COMPILES = "import jax, os, sys; x = jax.jit(lambda x: x + 1)(3); "
# Offloads by JAX itself.
PINNED = "x = jax.device_put(x, x.sharding.with_memory_kind('pinned_host'))"


def test_what_ends_without_a_line():
    for code in ("import json", "import jax",
                 "import jax; jax.numpy.linspace(0, 1, 3) @ jax.random.normal(jax.random.key(0), 3)",
                 COMPILES + "1 / 0", COMPILES + PINNED):
        status, _, lines = run(sys.executable, "-c", code, options=())
        assert (status, lines) == ("/" in code, [])
    starts(of_python(COMPILES, options=())[1], ENDS)
    # A child that is forked has the handlers of its parent.
    starts(of_python(COMPILES + "os.fork() and os.wait()", options=())[1], ENDS)


def test_each_way_to_start(tmp_path):
    """A package, a child, an interpreter's own options, and a job of two."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "__main__.py").write_text(
        COUNTED + "import unchanged\nunchanged.train('plain')\n")
    path = f"{HERE}:{tmp_path}"
    _, output, lines = run(sys.executable, "-X", "dev", "-PWi", "-m", "pkg", PYTHONPATH=path)
    assert output.split() == ["puts", str(PUTS)]
    starts(lines, BEGINS)
    for rank, line in (("0", [BEGINS]), ("1", [])):
        _, output, lines = run("sh", "-c", f"exec {sys.executable} -m pkg", PYTHONPATH=path,
                               RANK=rank)
        assert output.split() == ["puts", str(PUTS)]
        starts(lines, *line)


SPAWNS = """
import multiprocessing, sys
import jax, unchanged

def work(queue):
    unchanged.train("plain")
    queue.put(sys.modules["actmem.jax"].stats()["puts_total"])

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get())
    child.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children(tmp_path, method):
    program = tmp_path / "spawns.py"
    program.write_text(SPAWNS)
    status, output, lines = run(sys.executable, program, method, PYTHONPATH=HERE)
    assert (status, output.split()) == (0, [str(PUTS)])
    starts(lines, BEGINS)


POOLS = """
import multiprocessing, jax

def work(x):
    return int(jax.jit(lambda x: x + 1)(x))

if __name__ == "__main__":
    pool = multiprocessing.get_context("spawn").Pool(1)
    print(pool.map(work, [1])[0])
    pool.close()
    pool.join()
"""


def test_a_pool(tmp_path):
    """Its workers are daemons, whose parent speaks for them."""
    program = tmp_path / "pools.py"
    program.write_text(POOLS)
    assert run(sys.executable, program, options=()) == (0, "2\n", [])


def test_where_it_cannot_work(tmp_path):
    """It is an error, and says what to do."""
    for option, said in (("-I", "-I"), ("-sE", "-E"), ("-bS", "-S")):
        status, _, lines = run(sys.executable, option, UNCHANGED, "plain")
        assert status == 1 and f"-{said[1]}'" in lines[0] and "patch()" in lines[0], lines
    assert run(sys.executable, "-c", "", "-I")[0] == 0
    assert run(sys.executable, "-I", "-c", "", options=())[0] == 0
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("__version__ = '0.4.30'\n"
                                                  "__version_info__ = (0, 4, 30)\n")
    status, output, lines = run(sys.executable, "-c", "import jax; print('ran')",
                                PYTHONPATH=str(tmp_path))
    assert (status, output) == (1, "")
    starts(lines, "actmem: --offload failed in ")
    assert "0.4.30" in lines[0] and "ACTMEM_OFFLOAD=0" in lines[0]
    assert run(sys.executable, "-c", "import jax; print('ran')", PYTHONPATH=str(tmp_path),
               ACTMEM_OFFLOAD="0")[:2] == (0, "ran\n")


def test_what_starts_with_python(tmp_path):
    """The program's own sitecustomize runs, jax is found and loaded as it would be, and a
    program without it loads nothing."""
    own = tmp_path / "sitecustomize.py"
    own.write_text("OWN = True\n")
    code = "import sys; print(*sys.modules)"
    without = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                             check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert set(of_python(code, PYTHONPATH=str(tmp_path))[0]) == set(without.stdout.split())
    assert of_python("import sitecustomize; print(sitecustomize.OWN)",
                     PYTHONPATH=str(tmp_path))[0] == ["True"]
    own.write_text("raise RuntimeError('its own error')\n")
    code = "import importlib.util as u, sys; before = u.find_spec('jax'); import jax; " \
        "print('actmem.jax' in sys.modules, 'exec_module' in vars(jax.__loader__), " \
        "'sitecustomize' in str(sys.meta_path))"
    assert of_python(code, PYTHONPATH=str(tmp_path))[0] == ["True", "False", "False"]
