# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""examples/arrays.py does what it says."""
import os
import subprocess
import sys

from conftest import TREE

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.path.join(TREE, "lib", "python")}


def test_the_example_runs(tmp_path):
    result = subprocess.run([sys.executable, os.path.join(TREE, "examples", "arrays.py"),
                             "--steps", "6"], env=ENVIRONMENT, cwd=tmp_path,
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "the same losses, bit by bit" in result.stdout
    assert "0 bytes copied" in result.stdout
