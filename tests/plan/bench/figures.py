# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the measurements of a case say: how far the plan is from the fastest, whether the order
was foreseen, and what an abstention cost."""
import statistics


def tau(foreseen, measured, least=0.0):
    """Kendall's: of all pairs, those in the same order less those in the other. Pairs whose
    measured times differ by less than `least` of them are no order. None: there are no others."""
    agree = count = 0
    for i, one in enumerate(measured):
        for j in range(i):
            other = measured[j]
            if abs(one - other) <= least * min(one, other):
                continue
            count += 1
            sign = (foreseen[i] - foreseen[j]) * (one - other)
            agree += 1 if sign > 0 else -1 if sign < 0 else 0
    return agree / count if count else None


def step(rounds):
    """The mean of the fastest quarter: what disturbs a round makes it longer alone."""
    return statistics.fmean(sorted(rounds)[:len(rounds) // 4 or 1])


def noise(policies):
    """How far apart the two halves of a policy's rounds are, as a share, in the median."""
    halves = [(step(one["rounds"][::2]), step(one["rounds"][1::2])) for one in policies]
    return statistics.median(abs(a - b) / min(a, b) for a, b in halves)


def over_by_halves(plan, fitting):
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
    measured = [step(one["rounds"]) for one in policies]
    foreseen = [one["foreseen_s"] for one in policies]
    fitting = [one for one in policies if one["peak_bytes"] <= told["device_bytes"]]
    plan, = (one for one in policies if "plan" in one["why"])
    recompute, = (one for one in policies if "recompute" in one["why"])
    fastest = min((step(one["rounds"]) for one in fitting), default=None)
    unsure = noise(policies)
    return {
        "case": told["case"], "policies": len(policies), "noise": unsure,
        "fits": plan in fitting,
        "over_fastest": step(plan["rounds"]) / fastest - 1 if fastest else None,
        "over_by_halves": over_by_halves(plan, fitting) if fitting else None,
        "over_recompute": step(plan["rounds"]) / step(recompute["rounds"]) - 1,
        "tau": tau(foreseen, measured), "tau_apart": tau(foreseen, measured, 2 * unsure),
        "foreseen_gain": 1 - plan["foreseen_s"] / recompute["foreseen_s"],
        "gain": 1 - step(plan["rounds"]) / step(recompute["rounds"]),
        "foreseen_step": plan["foreseen_s"] / step(plan["rounds"]),
    }


def together(found, small):
    """Of all cases: what the aims are about. Those of programs that are too small to gain are
    about how much longer the plan takes than recomputing everything."""
    slower = [one["over_recompute"] for one in found if one["case"] in small]
    found = [one for one in found if one["case"] not in small]
    over = [one["over_fastest"] for one in found if one["over_fastest"] is not None]
    halves = [one["over_by_halves"] for one in found if one["over_by_halves"] is not None]
    taus = [one["tau"] for one in found if one["tau"] is not None]
    apart = [one["tau_apart"] for one in found if one["tau_apart"] is not None]
    return {"cases": len(found), "over_fastest_median": statistics.median(over),
            "over_fastest_most": max(over),
            "over_by_halves_median": statistics.median(halves),
            "over_by_halves_most": max(halves),
            "within_10": sum(one <= 0.1 for one in over), "tau_median": statistics.median(taus),
            "tau_apart_median": statistics.median(apart) if apart else None,
            "fit": sum(one["fits"] for one in found),
            "small": len(slower), "small_over_recompute_most": max(slower, default=None)}
