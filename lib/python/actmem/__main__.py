# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""python3 -m actmem plan, or probe: `actmem plan` and `actmem probe` execute this."""
from actmem import _command

if __name__ == "__main__":
    _command.main()
