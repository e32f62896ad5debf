# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""docs/fleet.md and the formulas that stand there."""
import pathlib
import re

TEXT = pathlib.Path("docs/fleet.md").read_text(encoding="utf-8")
FORMULAS = {}
for _block in re.findall(r"```python\n(.*?)```", TEXT, re.S):
    exec(_block, FORMULAS)
