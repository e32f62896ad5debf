# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A budget of memory, and what is over it in files."""
import pytest

import budget_case
import memory_cgroup

# Elsewhere a booted kernel has one: budget_on_driver.py.
if memory_cgroup.writable():
    def test_a_training_within_a_cgroup(tmp_path):
        """Small pages are charged to it, where those of hugetlb are not."""
        cases = list(budget_case.compare(
            str(tmp_path), run=("--backend", "memfd", "--pages", "4K",
                                "--allow", "unlocked")))
        assert [(name, seen) for good, name, seen in cases if not good] == []
