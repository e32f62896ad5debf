# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Implements `python3 -m actmem plan` and `probe`, which `actmem plan` and `actmem probe` run."""
from actmem import _command

if __name__ == "__main__":
    _command.main()
