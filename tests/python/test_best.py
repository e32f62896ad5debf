# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The memory of a Python program whose user has not said which it is to be."""
import os
import subprocess
import sys

from tap import case, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPENED = """
import actmem.jax
{open}
array = actmem.jax.empty((1 << 20,), "uint8")
array[:] = 1
print(actmem.describe().partition(":")[0], actmem.counters()["fallbacks_total"])
"""
# The handlers open the memory themselves, in the first step.
ADOPTED = """
import actmem.jax, jax, jax.numpy as jnp
layer = actmem.jax.checkpoint(lambda w, x: jnp.sin(w * x).sum(), offload_argnums=1)
jax.block_until_ready(jax.jit(jax.grad(layer))(2.0, jnp.ones(1 << 20)))
print(actmem.describe().partition(":")[0], actmem.counters()["fallbacks_total"])
"""
PROGRAMS = (OPENED.format(open=""), OPENED.format(open="actmem.open(heap_grow=4 << 20)"), ADOPTED)
SAID = ("actmem: memory is ", "of memfd, not locked", "'actmem doctor'", "ACTMEM_STRICT=1")
EXACT = OPENED.format(open="actmem.open(allow=())")


def run(program, **variables):
    """With a limit of locked memory that no region fits into, and no capability to pass it."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("ACTMEM_")}
    environment |= {"PYTHONPATH": os.path.join(ROOT, "lib", "python"), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "prlimit", "--memlock=65536:65536",
         sys.executable, "-c", program], env=environment | variables, capture_output=True,
        text=True, check=False)


def lines_of(result):
    return [line for line in result.stderr.splitlines() if line.startswith("actmem")]


@case
def a_line_says_what_it_is_in_the_same_words_whoever_opens_it():
    said = set()
    for program in PROGRAMS:
        result = run(program)
        assert result.returncode == 0, result
        # Others may have reserved huge pages just now, of which nothing is said.
        if result.stdout.startswith("memfd ") and result.stdout != "memfd 0\n":
            (line,) = lines_of(result)
            assert all(word in line for word in SAID), line
            said.add(line)
        result = run(program, ACTMEM_QUIET="1")
        assert result.returncode == 0 and not lines_of(result), result
        for variable in ("ACTMEM_QUIET", "ACTMEM_STRICT"):
            result = run(program, **{variable: "yes"})
            assert result.returncode and not result.stdout, (program, result)
            assert f"{variable} is 'yes', but must be 1 or 0" in result.stderr, result
    assert len(said) <= 1, said


@case
def it_is_as_asked_for_or_an_error():
    for program, *all_variables in (
            *((program, {"ACTMEM_STRICT": "1"}, {"ACTMEM_PAGES": "2M"}, {"ACTMEM_PAGES": "1G"},
               {"ACTMEM_STRICT": "1", "ACTMEM_PAGES": "4K"}) for program in PROGRAMS),
            (EXACT, {}, {"ACTMEM_PAGES": "4K"}, {"ACTMEM_ALLOW": "any"})):
        for variables in all_variables:
            result = run(program, ACTMEM_BACKEND="memfd", **variables)
            if result.returncode == 0 and variables.get("ACTMEM_PAGES") != "4K":
                # Others may have reserved huge pages just now, which is as good as asked for.
                assert result.stdout == "memfd 0\n" and not lines_of(result), result
                continue
            assert result.returncode and not result.stdout, (program, result)
            assert "RLIMIT_MEMLOCK" in result.stderr or "nr_hugepages" in result.stderr, result


# The directories to spill to: an argument, or a variable of a program whose memory is opened
# by open(), or by the handlers in the first step.
SPILLING = (
    (OPENED.format(open="actmem.open(budget=8 << 20, spill=('/tmp', '/dev/shm'))"), {}),
    (OPENED.format(open="actmem.open()"), {"ACTMEM_BUDGET": "8M", "ACTMEM_SPILL": "/tmp:/dev/shm"}),
    (ADOPTED, {"ACTMEM_BUDGET": "8M", "ACTMEM_SPILL": "/tmp:/dev/shm"}),
)


@case
def a_folder_in_memory_is_told_or_an_error():
    for program, variables in SPILLING:
        variables = variables | {"ACTMEM_ALLOW": "any", "ACTMEM_SPILL_ALLOW": "buffered"}
        said = ["'/dev/shm' is on tmpfs", "spill= (ACTMEM_SPILL)"]
        result = run(program, **variables)
        (line,) = lines_of(result)
        assert result.returncode == 0 and all(word in line for word in said), result
        result = run(program, ACTMEM_QUIET="1", **variables)
        assert result.returncode == 0 and not lines_of(result), result
        result = run(program, ACTMEM_STRICT="1", **variables)
        said += ["ACTMEM_STRICT=1", 'spill_allow="memory" (ACTMEM_SPILL_ALLOW)']
        assert result.returncode == 1 and all(word in result.stderr for word in said), result
        result = run(program, **variables | {"ACTMEM_STRICT": "1",
                                             "ACTMEM_SPILL_ALLOW": "memory,buffered"})
        assert result.returncode == 0 and len(lines_of(result)) == 1, result


main()
