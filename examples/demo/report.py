# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Formats the results in demo.json as the demo's table and the lines below the table."""
import collections
import textwrap

WIDTH = 80


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB" if count else "–"


def difference(value):
    return f"{value:.1e}" if value else "0"


def page_size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def milliseconds(time):
    return f"{time:.0f} ms" if time else "–"


def bytes_in_regions(document):
    """Returns the total length of the regions, for each variant that has regions."""
    return {name: sum(region["bytes"] for region in document[key])
            for name, key in (("actmem", "regions"),
                              ("spilled", "regions_spilled"))}


def table(rows):
    """Formats rows of strings, the first column left-aligned, the others right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths)]
        cells[0] = row[0].ljust(widths[0])
        lines.append("   ".join(cells).rstrip())
    lines.insert(1, "─" * len(lines[0]))
    return "\n".join(lines)


def rows(document):
    variants = document["variants"]
    in_regions = bytes_in_regions(document)

    def row(title, cell):
        return [title] + [cell(variant) for variant in variants]

    return [
        row("activations", lambda v: v["name"]),
        row("step time", lambda v: f"{v['step_ms']:.0f} ms"),
        row("loss at the end", lambda v: f"{v['final_loss']:.4f}"),
        row("XLA's temp memory", lambda v: mebibytes(v["temp_bytes"])),
        row("peak RSS", lambda v: mebibytes(v["peak_rss_bytes"])),
        row("  before the first step",
            lambda v: mebibytes(v["compiled_rss_bytes"])),
        row("  plus regions not in RSS",
            lambda v: mebibytes(v["peak_bytes"])),
        row("in regions", lambda v: mebibytes(in_regions.get(v["name"], 0))),
        row("through actmem, per step",
            lambda v: mebibytes(v["offloaded_bytes_per_step"])),
        row("  through its file, in and out",
            lambda v: mebibytes(v.get("file_bytes_per_step", 0))),
        row("  time spent waiting", lambda v: milliseconds(v.get("stall_ms", 0))),
        row("largest gradient difference", lambda v: (
            "–" if v is variants[0] else difference(v["max_grad_diff"]))),
    ]


def regions(document, key):
    """Describes the regions, and counts equal ones, as in "2 × 64.0 MiB on node 0, 2 MiB pages,
    pinned"."""
    alike = collections.Counter(
        f"{mebibytes(region['bytes'])} on node {region['node']}, "
        f"{page_size(region['page_bytes'])} pages, "
        f"{'pinned' if region['pinned'] else 'not pinned'}"
        for region in document[key])
    return "; ".join(f"{count} × {words}" for words, count in alike.items())


def reading(document):
    by_name = {variant["name"]: variant for variant in document["variants"]}
    kept, actmem = by_name["kept"], by_name["actmem"]
    ratio = kept["temp_bytes"] / actmem["temp_bytes"]
    differ = actmem["max_grad_diff_same_policy"]
    agree = (f"differ from those of the same policy without actmem by at most "
             f"{difference(differ)}" if differ else
             "equal those of the same policy without actmem bit by bit")
    return (
        f"With Q, K, V and the layers' inputs in actmem, XLA needs "
        f"{ratio:.1f} times less temp memory than with activations kept "
        f"({mebibytes(document['same_policy']['temp_bytes'])} with the same "
        f"policy and no actmem). The gradients {agree}; the largest gradient "
        f"is {document['largest_gradient']:.1e}.")


def where(document):
    """Returns a sentence that says where the bytes beyond the budget are."""
    if document["spill_is_memory"]:
        return ("The rest is in a file on tmpfs, so it still uses memory. To save "
                "memory, name a folder on a disk (make demo DEMO_SPILL=DIR, or --spill)")
    return ("This really saves memory: the rest of the activations is in a file "
            "until it is needed")


def why_less(document):
    """Returns a sentence that says why `recomputed` needs less memory than `actmem`, if it does."""
    _, recomputed, actmem, _ = document["variants"]
    if recomputed["peak_bytes"] >= actmem["peak_bytes"]:
        return ""
    return ("'recomputed' has a smaller peak RSS (plus regions) than 'actmem': it stores only the "
            "layers' inputs, but offloaded bytes stay in the process's memory, because a CPU's "
            "device memory and host memory are the same. ")


def honesty(document):
    actmem, spilled = document["variants"][2:]
    differ = spilled["max_grad_diff_actmem"]
    same = (f"differ from those without a budget by at most {difference(differ)}"
            if differ else "equal those without a budget bit by bit")
    return (
        "On a CPU, the activations only move from XLA's temp memory to the "
        "regions, and the copies take time. The regions are part of the peak "
        "RSS, unless they have hugetlb pages or the driver's pages. "
        f"{why_less(document)}With a "
        f"budget of {mebibytes(spilled['budget_bytes'])}, the regions have "
        f"{mebibytes(bytes_in_regions(document)['spilled'])} instead of "
        f"{mebibytes(bytes_in_regions(document)['actmem'])}. {where(document)}. "
        f"The gradients {same}.")


def text(document):
    def paragraph(line, indent=""):
        return textwrap.fill(line, WIDTH, subsequent_indent=indent)

    return "\n".join([
        "", table(rows(document)), "",
        paragraph(f"backend  {document['reason']}", " " * 9),
        paragraph(f"regions  {regions(document, 'regions')}", " " * 9),
        paragraph(f"spilled  {regions(document, 'regions_spilled')}", " " * 9), "",
        paragraph(reading(document)), "", paragraph(honesty(document))])
