# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Formats the demo's table and the lines below it from demo.json."""
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
    """Returns the bytes of each variant that has regions."""
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
        row("  of it before the first step",
            lambda v: mebibytes(v["compiled_rss_bytes"])),
        row("  with regions that are not in it",
            lambda v: mebibytes(v["peak_bytes"])),
        row("in regions", lambda v: mebibytes(in_regions.get(v["name"], 0))),
        row("through actmem, per step",
            lambda v: mebibytes(v["offloaded_bytes_per_step"])),
        row("  through its file, both ways",
            lambda v: mebibytes(v.get("file_bytes_per_step", 0))),
        row("  waited for", lambda v: milliseconds(v.get("stall_ms", 0))),
        row("largest gradient difference", lambda v: (
            "–" if v is variants[0] else difference(v["max_grad_diff"]))),
    ]


def regions(document, key):
    """Describes equal regions together: "2 × 64.0 MiB on node 0, 2 MiB pages, pinned"."""
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
    """Says where the bytes over the budget are."""
    if document["spill_is_memory"]:
        return (", the rest being in a file on tmpfs, which is memory itself: "
                "with a folder on a disk (make demo DEMO_SPILL=DIR, or --spill) "
                "memory is really saved")
    return (": there memory is really saved, the rest of the activations being "
            "in a file until it is wanted")


def honesty(document):
    actmem, spilled = document["variants"][2:]
    same = ("the same bits" if not spilled["max_grad_diff_actmem"] else
            f"off by at most {difference(spilled['max_grad_diff_actmem'])}")
    return (
        "On a CPU those bytes only move, from XLA's temp memory to the regions, "
        "which are part of the peak RSS unless their pages are hugetlb's or the "
        "driver's; copying them takes time. With a budget of "
        f"{mebibytes(spilled['budget_bytes'])} the regions hold "
        f"{mebibytes(bytes_in_regions(document)['spilled'])} instead of "
        f"{mebibytes(bytes_in_regions(document)['actmem'])}{where(document)}. "
        f"The gradients are {same}.")


def text(document):
    def paragraph(line, indent=""):
        return textwrap.fill(line, WIDTH, subsequent_indent=indent)

    return "\n".join([
        "", table(rows(document)), "",
        paragraph(f"backend  {document['reason']}", " " * 9),
        paragraph(f"regions  {regions(document, 'regions')}", " " * 9),
        paragraph(f"spilled  {regions(document, 'regions_spilled')}", " " * 9), "",
        paragraph(reading(document)), "", paragraph(honesty(document))])
