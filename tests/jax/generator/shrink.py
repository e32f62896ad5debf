# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Makes a failing case smaller while it fails in the same way."""
import copy
import time

from generator.draw import SMALL, has_subject, statements

SIMPLER = {"policy": ["names", "a"], "offload": "", "prevent_cse": True, "reverse": False,
           "unroll": 1, "length": 2, "form": "layers", "on": "n", "size": 2, "out": 0,
           "mean": True, "how": "grad", "axis": 0, "keeps": "vjp", "descends": True}
PLAINER = {"derivation": "grad", "outside": "jit", "dtype": "float32", "one": 0, "axis": 0}


def _bodies(body):
    """A body and all those in it, the outer ones first."""
    yield body
    for it in body:
        for inner in it.get("bodies", ()):
            yield from _bodies(inner)


def _changed(case, change):
    """A copy of the case that change(copy) has changed; None if it says False."""
    case = copy.deepcopy(case)
    return None if change(case) is False else case


def _without_layer(case, at):
    del case["program"]["layers"][at]


def _without_axis(case, at, arg):
    over = case["program"]["layers"][at]["over"]
    if over[arg] is None or sum(axis is not None for axis in over.values()) == 1:
        return False
    over[arg] = None
    return None


def _replaced(case, number, at, by):
    """Puts statements in place of statement `at` of body `number`."""
    body = list(_bodies(case["program"]["body"]))[number]
    body[at:at + 1] = by(body[at])
    return any(map(has_subject, case["program"]["body"]))


def _set(case, number, field, value):
    it = list(statements(case["program"]["body"]))[number]
    if it[field] == value or (field, it[field]) == ("on", "w"):
        return False
    it[field] = value
    return None


def _with(case, part, field, value):
    where = case[part] if part else case
    if where[field] == value:
        return False
    where[field] = value
    return None


def _small(case):
    if not case["spills"]:
        return False
    case["spills"] = False
    case["program"].update(SMALL)
    return None


def candidates(case):
    """Smaller cases, those that leave out the most first."""
    def changes():
        program = case["program"]
        for at in range(len(program["layers"])):
            yield lambda case: _without_layer(case, at)
        yield lambda case: _with(case, "program", "mesh", None)
        for flag in case["flags"]:
            yield lambda case: case["flags"].remove(flag)
        yield _small
        bodies = list(_bodies(program["body"]))
        for number, body in enumerate(bodies):
            for at in range(len(body)):
                yield lambda case: _replaced(case, number, at, lambda it: [])
            for at, it in enumerate(body):
                for inner in range(len(it.get("bodies", ()))):
                    yield lambda case: _replaced(
                        case, number, at, lambda it: it["bodies"][inner])
        for field, value in PLAINER.items():
            yield lambda case: _with(case, "program", field, value)
        for at, layer in enumerate(program["layers"]):
            for arg in layer.get("over", ()):
                yield lambda case: _without_axis(case, at, arg)
        for number, it in enumerate(statements(program["body"])):
            for field in SIMPLER.keys() & it.keys():
                yield lambda case: _set(case, number, field, SIMPLER[field])
            if it["op"] == "checkpoint" and it["kind"] == "subject":
                yield lambda case: _set(case, number, "kind", "stock")
            if "bodies" not in it and it["op"] != "name":
                yield lambda case: _set(case, number, "op", "double sin")
    for change in changes():
        smaller = _changed(case, change)
        if smaller and any(map(has_subject, smaller["program"]["body"])):
            yield smaller


def shrink(case, verdict, run, seconds):
    """The smallest case found within that time, and its verdict; run(case) gives verdicts."""
    deadline = time.monotonic() + seconds
    smaller = list(candidates(case))
    at = failed = 0
    while failed < len(smaller) and time.monotonic() < deadline:
        at %= len(smaller)
        seen = run(smaller[at])
        if (seen["result"], seen["reason"]) == (verdict["result"], verdict["reason"]):
            case, verdict, failed = smaller[at], seen, 0
            # Those before `at` are tried again when the end has been reached.
            smaller = list(candidates(case))
        else:
            at, failed = at + 1, failed + 1
    return case, verdict
