# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""How programs here tell tests/gpu/run what they found: results in TAP, and rates."""
import time

REPEATS = 5

_results = _failed = 0


def check(passed, name, *details, skip=None):
    """One result; the details' last lines are told if it is bad."""
    global _results, _failed
    _results += 1
    _failed += not passed
    print(f"{'ok' if passed else 'not ok'} {_results} - {name}{f' # SKIP {skip}' if skip else ''}",
          flush=True)
    if not passed:
        for detail in details:
            for line in str(detail).splitlines()[-15:]:
                print(f"# {line}", flush=True)
    return passed


def end():
    """The exit status of what has told all."""
    print(f"1..{_results}", flush=True)
    return 1 if _failed else 0


def rate(call, amount):
    """How much a second, if each call does so much: the best of some."""
    best = 0.0
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        best = max(best, amount / (time.perf_counter() - began))
    return best
