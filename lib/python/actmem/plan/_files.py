# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Reads files whose paths the user gives."""
import os

MOST = 16 << 20


def read_text(path: str | os.PathLike[str]) -> str:
    """Returns the text of a file. Raises ValueError if the file is longer than 16 Mi characters,
    because a device such as /dev/zero has no end."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read(MOST + 1)
    if len(text) > MOST:
        raise ValueError(f"the file has more than {MOST} characters")
    return text
