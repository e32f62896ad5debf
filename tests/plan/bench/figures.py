# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the measurements of a case say: how far the plan is from the fastest, whether the order
was foreseen, and what an abstention cost."""
import statistics

from actmem.plan import search


def quarter(rounds):
    """The mean of the fastest quarter: right where what disturbs a round is rare."""
    return statistics.fmean(sorted(rounds)[:len(rounds) // 4 or 1])


def noise(policies, step):
    """How far apart the two halves of a policy's rounds are, as a share, in the median."""
    halves = [(step(one["rounds"][::2]), step(one["rounds"][1::2])) for one in policies]
    return statistics.median(abs(a - b) / min(a, b) for a, b in halves)


def step_of(policies):
    """What a policy's step is by its rounds: that of two ways by which the halves agree
    better. Where everything is disturbed all the time, that is the median."""
    return min((quarter, statistics.median), key=lambda step: noise(policies, step))


def is_apart(one, other, least):
    return abs(one - other) > least * min(one, other)


def tau(foreseen, measured, least=0.0, claimed=0.0):
    """Kendall's: of all pairs, those in the same order less those in the other. Pairs whose
    measured times differ by no more than `least` of them are no order, nor are those that are
    foreseen to differ by no more than `claimed`. None: there are no others."""
    agree = count = 0
    for i, one in enumerate(measured):
        for j in range(i):
            other = measured[j]
            if not is_apart(one, other, least) or \
                    claimed and not is_apart(foreseen[i], foreseen[j], claimed):
                continue
            count += 1
            sign = (foreseen[i] - foreseen[j]) * (one - other)
            agree += 1 if sign > 0 else -1 if sign < 0 else 0
    return agree / count if count else None


def over_by_halves(plan, fitting, step):
    """How much longer the plan takes than what is fastest by one half of the rounds, in the
    other half, as the least of many that are disturbed looks faster than it is."""
    over = []
    for mine, others in ((slice(0, None, 2), slice(1, None, 2)),
                         (slice(1, None, 2), slice(0, None, 2))):
        fastest = min(fitting, key=lambda one: step(one["rounds"][mine]))
        over.append(step(plan["rounds"][others]) / step(fastest["rounds"][others]) - 1)
    return statistics.fmean(over)


def of(told):
    """The figures of one case."""
    policies = told["policies"]
    step = step_of(policies)
    unsure = noise(policies, step)
    measured = [step(one["rounds"]) for one in policies]
    foreseen = [one["foreseen_s"] for one in policies]
    fitting = [one for one in policies if one["peak_bytes"] <= told["device_bytes"]]
    plan, = (one for one in policies if "plan" in one["why"])
    measured_plan, = (one for one in policies if "measured" in one["why"])
    recompute, = (one for one in policies if "recompute" in one["why"])
    fastest = min((step(one["rounds"]) for one in fitting), default=None)
    there, again = step(plan["rounds"]), step(recompute["rounds"])
    return {
        "case": told["case"], "policies": len(policies), "noise": unsure,
        "fits": plan in fitting, "over_fastest": there / fastest - 1 if fastest else None,
        "over_by_halves": over_by_halves(plan, fitting, step) if fitting else None,
        "measured_over_fastest": step(measured_plan["rounds"]) / fastest - 1 if fastest else None,
        "over_recompute": there / again - 1, "gain": 1 - there / again,
        "foreseen_gain": 1 - plan["foreseen_s"] / recompute["foreseen_s"],
        "tau": tau(foreseen, measured),
        "tau_claimed": tau(foreseen, measured, claimed=search.ROUNDING),
        "tau_apart": tau(foreseen, measured, 2 * unsure),
    }


def _there(found, key):
    return [one[key] for one in found if one[key] is not None]


def together(found, small):
    """Of all cases: what the aims are about. Those of programs that are too small to gain are
    about how much longer the plan takes than recomputing everything."""
    slower = [one["over_recompute"] for one in found if one["case"] in small]
    found = [one for one in found if one["case"] not in small]
    over, halves = _there(found, "over_fastest"), _there(found, "over_by_halves")
    apart = _there(found, "tau_apart")
    looked = _there(found, "measured_over_fastest")
    return {
        "cases": len(found), "fit": sum(one["fits"] for one in found),
        "over_fastest_median": statistics.median(over), "over_fastest_most": max(over),
        "measured_over_fastest_median": statistics.median(looked),
        "measured_over_fastest_most": max(looked),
        "within_10": sum(one <= 0.1 for one in over),
        "over_by_halves_median": statistics.median(halves), "over_by_halves_most": max(halves),
        "tau_median": statistics.median(_there(found, "tau")),
        "tau_claimed_median": statistics.median(_there(found, "tau_claimed") or [0]),
        "tau_apart_median": statistics.median(apart) if apart else None,
        "small": len(slower), "small_over_recompute_most": max(slower, default=None),
    }
