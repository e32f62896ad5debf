# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What tests/gpu/run found, as the README has it: the machine, figures beside their peers
and aims, predictions beside what came out, and what could not be had."""
import re

# By part, what a figure's name has in it: what it is to reach, as a ratio above which
# actmem is better. Memory and time are better when less: their ratio is turned over.
AIMS = (
    ("layers", r"(stock, actmem run|actmem)( \S+)?: (step_s|first_step_s|round_trip)$", 1.0),
    ("layers", r"stock, actmem run( \S+)?: put_(out|in)$", 1.0),
    ("layers", r"^driver's (out|in) under actmem run$", 1.0),
    ("arrays", r"^to the device, of asarray\(\)$", 1.0),
    ("pinned", r" copy (out|in), under actmem run$", 1.0),
)
# Not of ours: JAX's own copies, in a case where it is the values that are ours.
NOT_OURS = r" actmem( \S+)?: put_(out|in)$"
# layers.py's names of cases: model and form, then who offloads.
STOCK = re.compile(r"^(\S+ \S+) stock( \S+)?$")
OURS = re.compile(r"^(\S+ \S+) (stock, actmem run|actmem)( \S+)?$")
PER_LIVE = 1.02
MORE_IS_BETTER = "GB/s"
NAMES = {"step_s": "step", "first_step_s": "first step", "first_run_s": "first execution",
         "pinned_gb": "pinned memory", "put_out": "device_put to the host",
         "put_in": "device_put to the device", "round_trip": "out and back"}
NONE = "–"


def number(value, unit=""):
    return NONE if value is None else f"{value:.3g}{' ' if unit else ''}{unit}"


def _named(figure):
    """With words for layers.py's columns."""
    case, _, column = figure.rpartition(": ")
    return f"{case}: {NAMES.get(column, column)}" if case else column


def _figures(parts):
    for part, result in parts.items():
        for figure in result.get("figures", []):
            name = figure["figure"]
            if not figure.get("ratio") or part == "layers" and re.search(NOT_OURS, name) or \
                    "pinned_gb" in name:
                continue
            better = figure["ratio"] if figure["unit"] == MORE_IS_BETTER else 1 / figure["ratio"]
            aim = next((aim for where, pattern, aim in AIMS
                        if where == part and re.search(pattern, name)), None)
            yield {"part": part, "bench": _named(name), "ours": figure["value"],
                   "unit": figure["unit"], "peer_name": figure["peer"],
                   "peer": figure["peer_value"], "ratio": better, "aim": aim}


def _pinned(parts):
    """What is pinned for a byte that is offloaded: of ours beside JAX's own best. The aim
    is no ratio of the two."""
    rows = [row for row in parts.get("layers", {}).get("cases", [])
            if row.get("pinned_per_live") and row.get("valid")]
    stock = {}
    for row in rows:
        own = STOCK.match(row["case"])
        if own and (own[1] not in stock or row["step_s"] < stock[own[1]]["step_s"]):
            stock[own[1]] = row
    for row in rows:
        ours = OURS.match(row["case"])
        if ours and ours[1] in stock:
            peer = stock[ours[1]]
            theirs = peer["pinned_per_live"]
            yield {"part": "layers", "bench": f"{row['case']}: pinned for a live byte",
                   "ours": row["pinned_per_live"], "unit": "bytes", "peer_name": peer["case"],
                   "peer": theirs, "ratio": theirs / row["pinned_per_live"],
                   "aim": theirs / PER_LIVE, "aim_told": f"≤ {PER_LIVE} bytes"}


def measured(content):
    """All figures with a peer, as tests/bench/picture.py takes them; those with aims first."""
    rows = [*_figures(content["parts"]), *_pinned(content["parts"])]
    return sorted(rows, key=lambda row: row["aim"] is None)


def is_met(row):
    """By the digits that are shown."""
    return round(row["ratio"], 2) >= round(row["aim"], 2)


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def figures(rows):
    return table(["What", "actmem", "Peer in the same run", "Times as good", "Aim", ""], [
        [row["bench"], number(row["ours"], row["unit"]),
         f"{number(row['peer'], row['unit'])}, {row['peer_name']}", f"{row['ratio']:.2f}",
         NONE if row["aim"] is None else row.get("aim_told", f"≥ {row['aim']:g}"),
         "" if row["aim"] is None else "met" if is_met(row) else "**missed**"] for row in rows])


def _beside(predicted, came, unit):
    if came is None:
        return f"{number(predicted, unit)} → {NONE}"
    return f"{number(predicted)} → {number(came, unit)}"


def predictions(content):
    """Each case's, as written before it was run, beside what came out."""
    part = content["parts"].get("layers", {})
    done = {row["case"]: row for row in part.get("cases", [])}
    written = {row["predicted"]: row for row in part.get("predictions", [])}
    rows = []
    for name, before in written.items():
        row = done.get(name, {})
        pinned = before.get("pinned_bytes")
        valid = row.get("valid")
        rows.append([
            name, before.get("layers", NONE), _beside(before.get("step_s"), row.get("step_s"), "s"),
            _beside(before.get("first_run_s"), row.get("first_run_s"), "s"),
            _beside(None if pinned is None else pinned / 1e9, row.get("pinned_gb"), "GB"),
            row.get("why") or ("was not finished" if not row else
                               "" if valid else "**gradients are wrong**")])
    return table(["Case", "Layers", "Step", "First execution", "Pinned", ""], rows) if rows else ""


def machine(content):
    there, versions = content["machine"], content["versions"]
    cards = there.get("gpus") or [{"name": "a GPU whose name is not known"}]
    words = [f"{len(cards)} × {cards[0]['name']}"]
    if cards[0].get("driver"):
        words.append(f"driver {cards[0]['driver']}")
    words.append(f"{there['cores']} cores of {there.get('processor') or 'a processor'}")
    if there.get("memory_bytes"):
        words.append(f"{there['memory_bytes'] / 1e9:.0f} GB of memory")
    words.append(f"{there.get('huge_pages') or 0} huge pages of 2 MiB")
    words.append(f"Linux {'.'.join(there['kernel'].split('.')[:2])}")
    if there.get("is_virtual"):
        words.append("a virtual machine")
    names = {"jax": "JAX", "torch": "PyTorch", "cupy-cuda13x": "CuPy", "python": "Python",
             "commit": "actmem"}
    words += [f"{text} {versions[name]}" for name, text in names.items() if versions.get(name)]
    return f"Measured on {content['date'][:10]}: {', '.join(words)}."


def _cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def missing(content):
    """What failed or was left out, a line each."""
    lines = [f"* `{name}`: {part['status']}: {_cell(part.get('why', ''))}"
             for name, part in content["parts"].items() if part["status"] != "ok"]
    for name, part in content["parts"].items():
        lines += [f"* `{name}`: {_cell(fact)}: {_cell(answer)}"
                  for fact, answer in part.get("facts", {}).items() if fact.startswith("left out")]
        lines += [f"* `{name}`: skipped: {_cell(text)}" for text in part.get("skipped", [])]
    return "\n".join(lines)


def document(content, with_all=False):
    """With the figures that are to reach something, or with all."""
    rows = measured(content)
    aims = [row for row in rows if row["aim"] is not None]
    texts = [machine(content)]
    if aims:
        texts += [f"{sum(map(is_met, aims))} of {len(aims)} aims are met.",
                  figures(rows if with_all else aims)]
    else:
        texts.append("Nothing that has an aim was measured.")
        texts += [figures(rows)] if rows and with_all else []
    told = predictions(content)
    if told:
        texts += ["Predictions, written before each case was run, and what came out:", told]
    left = missing(content)
    if left:
        texts += ["What could not be had, or failed:", left]
    return "\n\n".join(texts) + "\n"
