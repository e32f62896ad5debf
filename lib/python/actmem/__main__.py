# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""python3 -m actmem plan, and probe: the command actmem executes it for these two."""
from actmem import _command

if __name__ == "__main__":
    _command.main()
