# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Starts programs under `actmem run`, for tests here and of libraries, and reads the lines
that it prints of them."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ACTMEM = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "bin", "actmem")
BEGINS = "actmem: values that policies of jax.checkpoint offload to pinned_host go to actmem"
ENDS = "actmem: this program kept no activation in actmem"

# Prints how many values are put at the end of a program, whose code goes on from here.
COUNTED = """
import atexit, sys
atexit.register(lambda: print("puts", "actmem.jax" in sys.modules and
                              sys.modules["actmem.jax"].stats()["puts_total"]))
"""


def run(*program, options=("--offload",), with_words=False, **environment):
    """The status, the output, the lines of actmem on stderr, and all of stderr if
    `with_words`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("ACTMEM_", "PYTHON", "XLA_FLAGS"))}
    ended = subprocess.run(
        [ACTMEM, "run", "--allow", "any", *options, "--", *program],
        env={**kept, "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True, check=False, text=True, timeout=300)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("actmem")]
    return (ended.returncode, ended.stdout, lines, ended.stderr)[:3 + with_words]


def of_python(code, *arguments, **named):
    status, output, lines = run(sys.executable, "-c", code, *arguments, **named)
    assert status == 0, (output, lines)
    return output.split(), lines


def starts(lines, *wanted):
    assert len(lines) == len(wanted), lines
    for line, start in zip(lines, wanted):
        assert line.startswith(start), line
