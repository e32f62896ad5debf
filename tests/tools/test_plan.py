# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem plan and probe: which Python they become, and what they refuse without JAX."""
import os
import sys
import tempfile

from harness import ACTMEM, BUILD, PLANNING, actmem, clean_environment, expect
from tap import case, main


@case
def the_planning_ones_are_in_the_python_of_the_path():
    with tempfile.TemporaryDirectory() as folder:
        for name in PLANNING:
            expect(actmem(name, environment=clean_environment(PATH=folder)), 127, "",
                   [f"actmem {name}: ", "'python3': not found in PATH", "with JAX"])
        python = os.path.join(folder, "python3")
        with open(python, "w", encoding="ascii") as file:
            file.write("#!/no/such/interpreter\n")
        for name in PLANNING:
            expect(actmem(name, environment=clean_environment(PATH=folder)), 126, "",
                   [f"actmem {name}: ", "'python3'", "Permission denied"])
        with open(python, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho \"$@\"\necho $PYTHONPATH $ACTMEM_LIBDIR "
                       "$PYTHONSAFEPATH\n")
        os.chmod(python, 0o755)
        told = actmem("plan", "x", "-y", environment=clean_environment(PATH=folder))
        module = os.path.join(os.path.dirname(BUILD), "lib", "python")
        expect(told, 0, f"-m actmem plan x -y\n{module} {BUILD}/lib 1\n")
        told = actmem("probe", "x", environment=clean_environment(PATH=folder)).stdout
        assert told.startswith(f"-m actmem probe --command={ACTMEM} x\n"), told
        # A Python without JAX.
        os.unlink(python)
        with open(python, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
        os.chmod(python, 0o755)
        for name in PLANNING:
            expect(actmem(name, environment=clean_environment(PATH=folder)), 1, "",
                   [f"actmem {name}: ", " cannot import JAX", "pip install jax"])


@case
def values_that_are_wrong_are_named():
    for option, value in (("--devices", "0"), ("--batch", "x"), ("--tokens", "-1"),
                          ("--device-memory", "70GB"), ("--host-memory", "0"),
                          ("--measure", "0"), ("--lora", "1.5"), ("--mesh", "fsdp"),
                          ("--mesh", "pipeline=2"), ("--mesh", "fsdp=0"), ("--train", "none")):
        expect(actmem("plan", f"{option}={value}"), 2, "", [option, f"'{value}'"
                                                            if option != "--mesh" else "'"])
    expect(actmem("plan", "one.py:f", "two.py:f"), 2, "", "two.py:f")
    expect(actmem("probe", "x"), 2, "", "x")


if __name__ == "__main__":
    main()
