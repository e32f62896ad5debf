# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Test cases as decorated functions, told in TAP."""
import sys
import traceback

_cases = []


class Skip(Exception):
    """Raised by a case that this machine cannot run; its text says why."""


def case(function):
    _cases.append(function)
    return function


def main():
    """Runs the cases, or those whose names hold an argument's text."""
    wanted = sys.argv[1:]
    cases = [c for c in _cases if not wanted or any(w in c.__name__ for w in wanted)]
    print(f"1..{len(cases)}", flush=True)
    failed = 0
    for number, function in enumerate(cases, 1):
        text = f"{number} - {function.__name__.replace('_', ' ')}"
        try:
            function()
        except Skip as reason:
            print(f"ok {text} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {text}", flush=True)
            for line in traceback.format_exc().splitlines():
                print(f"# {line}", flush=True)
        else:
            print(f"ok {text}", flush=True)
    sys.exit(1 if failed else 0)
