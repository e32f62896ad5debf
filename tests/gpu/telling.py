# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Print results for tests/gpu/run: TAP, and lines of JSON for figures and facts."""
import json
import time

_results = _failed = 0


def check(passed, name, *details):
    """Print one result, and the last lines of the details if it failed."""
    global _results, _failed
    _results += 1
    _failed += not passed
    print(f"{'ok' if passed else 'not ok'} {_results} - {name}", flush=True)
    for detail in () if passed else details:
        for line in str(detail).splitlines()[-15:]:
            print(f"# {line}", flush=True)
    return passed


def end():
    """Print the plan and return the exit status."""
    print(f"1..{_results}", flush=True)
    return 1 if _failed else 0


def fact(question, answer):
    print(json.dumps({"fact": question, "answer": str(answer)}), flush=True)


def figure(name, value, unit="GB/s"):
    print(json.dumps({"figure": name, "value": value, "unit": unit}), flush=True)


def rate(call, amount):
    """Return the best of some rates, if each call does this amount of work."""
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        call()
        best = max(best, amount / (time.perf_counter() - began))
    return best
