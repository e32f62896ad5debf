# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A picture of measurements: a row for each benchmark, its ratio against each peer,
and what the ratio is to be at least.

Without a background of its own, in colours that are seen on a light and on a dark
one; text stays text.
"""
import statistics

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

GREY = "#767676"
# Of ColorBrewer's Dark2, whose tones are neither light nor dark; by shape, too.
MARKS = (("o", "#1b9e77"), ("s", "#d95f02"), ("^", "#7570b3"), ("D", "#e7298a"),
         ("v", "#66a61e"), ("P", "#a6761d"), ("X", "#3182bd"), ("*", "#e6ab02"))
ROW_INCHES = 0.28
FRAME_INCHES = 1.5
STEPS = (1, 1.2, 1.5, 2, 3, 5, 7)
FEW_TICKS = 9


def ticks(least, most):
    """Round numbers, of which a log scale shows few enough."""
    for steps in (STEPS, (1, 2, 5), (1,)):
        numbers = [step * 10.0 ** power for power in range(-6, 10) for step in steps]
        numbers = [number for number in numbers if least <= number <= most]
        if len(numbers) <= FEW_TICKS:
            break
    return numbers


def scale(axis, ratios):
    least, most = min(ratios) / 1.15, max(ratios) * 1.15
    axis.set_xscale("log")
    axis.set_xlim(least, most)
    axis.xaxis.set_major_locator(FixedLocator(ticks(least, most)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))


def labels(part, measured):
    """What stands at each row: the benchmark, and the figure, the median of several."""
    by_name = {}
    for one in measured:
        by_name.setdefault(one["bench"], []).append(one)
    return {name: f"{name.removeprefix(part).strip('_').replace('_', ' ') or name}:  "
                  f"{statistics.median(one['ours'] for one in some):.4g} {some[0]['unit']}"
            for name, some in by_name.items()}


def draw(path, part, title, measured):
    """A ratio of 0, of a peer that told no time, has no place on the scale."""
    measured = [one for one in measured if one["ratio"] > 0]
    names = labels(part, measured)
    peers = list(dict.fromkeys(one["peer_name"] for one in measured))
    row = {name: number for number, name in enumerate(names)}
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "actmem", "text.color": GREY,
                         "axes.edgecolor": GREY, "axes.labelcolor": GREY, "xtick.color": GREY,
                         "ytick.color": GREY, "font.size": 9}):
        figure, axis = plt.subplots(figsize=(9, FRAME_INCHES + ROW_INCHES * len(names)))
        for number, peer in enumerate(peers):
            shape, colour = MARKS[number % len(MARKS)]
            points = [one for one in measured if one["peer_name"] == peer]
            axis.plot([one["ratio"] for one in points], [row[one["bench"]] for one in points],
                      shape, color=colour, label=f"against {peer}", markersize=5, alpha=0.9)
        aims = sorted({(row[one["bench"]], one["aim"]) for one in measured
                       if one["aim"] is not None})
        axis.vlines([aim for _, aim in aims], [at - 0.5 for at, _ in aims],
                    [at + 0.5 for at, _ in aims], colors=GREY, linestyles="dashed",
                    label="the aim: at its right")
        scale(axis, [one["ratio"] for one in measured] + [aim for _, aim in aims])
        axis.set_yticks(range(len(names)), names.values())
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xlabel("ratio: so many times as good as the peer in the same run; "
                        "above 1 ours is better")
        axis.set_title(title, loc="left")
        axis.grid(axis="x", color=GREY, alpha=0.25)
        axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        figure.savefig(path, transparent=True, bbox_inches="tight",
                       metadata={"Date": None, "Title": title})
        plt.close(figure)
