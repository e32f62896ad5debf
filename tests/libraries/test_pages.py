# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs the Python of docs/ as it stands there. All blocks of a page, one after the other, are one
program."""
import os
import subprocess
import sys
import tempfile

import pytest

from conftest import TREE

sys.path.append(os.path.join(TREE, "tests", "tools"))
import pages  # noqa: E402

PROGRAMS = {page: pages.program(page) for page in pages.TEXTS if pages.program(page)}


def test_pages_have_programs():
    assert {"docs/arrays.md", "docs/offloading.md", "docs/planning.md",
            "docs/recipes.md", "docs/training.md"} <= set(PROGRAMS)


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_python_of_the_page_runs(page, tmp_path):
    # Lines of errors are those of the page.
    file = tmp_path / os.path.basename(page)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as mount:
        file.write_text(PROGRAMS[page].replace("/mnt/act1", mount))
        paths = [os.path.join(TREE, "lib", "python"), os.environ["PYTHONPATH"]]
        result = subprocess.run([sys.executable, file], cwd=tmp_path, check=False, text=True,
                                env=os.environ | {"PYTHONPATH": ":".join(paths)},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout
