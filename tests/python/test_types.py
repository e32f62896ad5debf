# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""mypy --strict takes the package, and what uses it."""
import os
import subprocess
import sys
import tempfile

from tap import case, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PROGRAM = """
import jax
import numpy as np
from numpy.typing import NDArray
import actmem
import actmem.jax

def layer(weights: jax.Array, x: jax.Array) -> jax.Array:
    return x @ weights

memory: actmem.Memory = actmem.open(allow=("thp", "4k"), spill=["/mnt/a", "/mnt/b"])
kept = actmem.jax.checkpoint(layer, offload_argnums=(1,))
batch: NDArray[np.float32] = actmem.jax.empty((2, 3), np.float32)
x = actmem.jax.asarray(batch, device=jax.devices()[0])
pids: list[int] = [region["pid"] for region in actmem.list()]

@actmem.jax.checkpoint(policy=jax.checkpoint_policies.save_only_these_names("q"))
def other(x: jax.Array) -> jax.Array:
    return x

y: jax.Array = kept(x, other(x))
"""

# Each alone is an error.
WRONG = {
    "actmem.open(alow='thp')": "call-arg",
    "actmem.open(budget='512M')": "arg-type",
    "actmem.jax.checkpoint(layer, min_bytes='1K')": "call-overload",
    "kept(x)": "call-arg",
    "word: str = actmem.jax.reset()": "assignment",
}


def mypy(*arguments):
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *arguments], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return result.stdout


def of_program(*lines):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(PROGRAM + "".join(line + "\n" for line in lines))
        file.flush()
        return mypy(file.name)


@case
def the_package_is_annotated():
    told = mypy("-p", "actmem")
    assert not told, told


@case
def a_program_is_told_of_wrong_arguments():
    told = of_program(*WRONG)
    found = [line.rsplit("[", 1)[1].rstrip("]") for line in told.splitlines()
             if "error:" in line]
    assert found == list(WRONG.values()), told


if __name__ == "__main__":
    main()
