# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Print results for tests/gpu/run: TAP, and lines of JSON for figures and facts."""
import json
import time

# The largest relative difference of gradients that rounding of bfloat16 explains. The planner's
# choice keeps more values than Q, K and V, which recomputation rounds in another way. On an H200 it
# differed by 0.12, in the same digits whether these values stayed on the card or went to the host.
TOLERANCE, PLANNED_TOLERANCE = 0.1, 0.2
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


def is_rounding(method, difference):
    """Return whether rounding explains that the gradients of a method differ so much."""
    return difference <= (PLANNED_TOLERANCE if method == "planned" else TOLERANCE)


def rate(call, amount):
    """Return the best of some rates, if each call does this amount of work."""
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        call()
        best = max(best, amount / (time.perf_counter() - began))
    return best
