# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""tests/gpu/run as its tests run it: on a machine without a GPU, with what the first of
them has built in build/on-gpu. Each test's program has the build's folder as an argument."""
import json
import os
import subprocess
import sys

BUILD = sys.argv.pop(1)
ON_GPU = "build/on-gpu"


def run(*arguments, status=0, prefix=(), standin=f"{ON_GPU}/tests/cuda/standin", program=None):
    """Its output, and what it left in a file."""
    output = f"{BUILD}/check/gpu-run.json"
    command = [f"tests/gpu/{program}"] if program else [sys.executable, "tests/gpu/run"]
    result = subprocess.run(
        [*prefix, *command, "--output", output,
         *(["--standin", standin] if standin else []), *arguments],
        capture_output=True, text=True, check=False, timeout=600, env={
            **os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"})
    told = f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    assert result.returncode == status, told
    if not os.path.exists(output):
        return told, {}
    with open(output, encoding="utf-8") as file:
        return told, json.load(file)


def start_anew():
    if os.path.exists(f"{BUILD}/check/gpu-run.json"):
        os.unlink(f"{BUILD}/check/gpu-run.json")
