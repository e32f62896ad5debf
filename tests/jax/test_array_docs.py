# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What docs/arrays.md shows and examples/arrays.py does works as it says."""
import glob
import os
import subprocess
import sys
import textwrap

from conftest import TREE

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.path.join(TREE, "lib", "python")}


def program(path):
    """The indented blocks of a document, as they follow each other."""
    lines = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.strip() or line.startswith("    "):
                lines.append(line)
    return textwrap.dedent("".join(lines))


def run(tmp_path, *arguments):
    result = subprocess.run([sys.executable, *arguments], env=ENVIRONMENT,
                            cwd=tmp_path, capture_output=True, text=True,
                            check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_documentation_runs(tmp_path):
    mount = f"/dev/shm/actmem-docs-{os.getpid()}-"
    script = program(os.path.join(TREE, "docs", "arrays.md"))
    assert script.count("assert ") >= 8 and "/mnt/act1/" in script
    try:
        run(tmp_path, "-c", script.replace("/mnt/act1/", mount))
    finally:
        for path in glob.glob(mount + "*"):
            os.unlink(path)


def test_the_example_runs(tmp_path):
    output = run(tmp_path, os.path.join(TREE, "examples", "arrays.py"),
                 "--steps", "6")
    assert "the same losses, bit by bit" in output
    assert "0 bytes copied" in output
