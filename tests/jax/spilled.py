# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs programs whose values exceed their budget, in processes of their own."""
import textwrap

from conftest import HERE
from test_module import python

CALLS = """
    import sys, time
    sys.path.append(os.environ["TESTS"])
    import numpy as np
    MIB = 1 << 20
    SPILL = os.environ["SPILL"]
    def store():
        return actmem.jax.stats()["store"]
    def message(call, *args):
        try:
            jax.block_until_ready(call(*args))
        except Exception as error:
            return str(error)
    def files():
        return [file for name in os.listdir("/proc/self/fd")
                if os.path.realpath(file := f"/proc/self/fd/{name}").startswith(SPILL + "/")]
"""
MEMORY = {"ACTMEM_BACKEND": "memfd", "ACTMEM_PAGES": "4K", "ACTMEM_ALLOW": "unlocked"}


def trained(model, script, tmp_path, **environment):
    """Returns what a program prints. It has CALLS, the model and the script, in this order."""
    return python("".join(map(textwrap.dedent, (CALLS, model, script))),
                  TESTS=HERE, SPILL=str(tmp_path), **MEMORY, **environment)
