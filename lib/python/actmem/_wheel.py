# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Adds a hint to messages that name a command of actmem, because a wheel does not contain the
commands."""
import os
import shutil

# `make install` creates a symbolic link to libactmem beside the module. A wheel cannot contain a
# link, so the wheel contains the library itself.
_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libactmem.so.0")
_IS_WHEEL = os.path.isfile(_LIBRARY) and not os.path.islink(_LIBRARY)


def _lacks_commands() -> bool:
    return _IS_WHEEL and shutil.which("actmem") is None


def command(name: str) -> str:
    """Returns the command line with which this user calls `actmem plan` or `actmem probe`."""
    return f"python3 -m actmem {name}" if _lacks_commands() else f"actmem {name}"


def complete(message: str) -> str:
    """Returns an error message of libactmem. If the message names a command that this user lacks,
    appends the name of the page that explains the installation."""
    if ("`actmem " in message or "`modprobe actmem`" in message) and _lacks_commands():
        return f"{message}; docs/installing.md says how to install the command and the driver"
    return message
