# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The demo's table and the lines below it, from what demo.json holds."""
import collections
import textwrap

WIDTH = 80


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB" if count else "–"


def difference(value):
    return f"{value:.1e}" if value else "0"


def page_size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def table(rows):
    """Rows of strings: the first column to the left, the others to the right."""
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
    in_regions = sum(region["bytes"] for region in document["regions"])

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
        row("in regions", lambda v: mebibytes(
            in_regions if v["name"] == "actmem" else 0)),
        row("through actmem, per step",
            lambda v: mebibytes(v["offloaded_bytes_per_step"])),
        row("largest gradient difference", lambda v: (
            "–" if v is variants[0] else difference(v["max_grad_diff"]))),
    ]


def regions(document):
    """Alike ones together: "2 × 64.0 MiB on node 0, 2 MiB pages, pinned"."""
    alike = collections.Counter(
        f"{mebibytes(region['bytes'])} on node {region['node']}, "
        f"{page_size(region['page_bytes'])} pages, "
        f"{'pinned' if region['pinned'] else 'not pinned'}"
        for region in document["regions"])
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


HONESTY = (
    "On a CPU those bytes only move, from XLA's temp memory to the regions, "
    "which are part of the peak RSS unless their pages are hugetlb's or the "
    "driver's; copying them takes time. The gain is real where XLA's memory "
    "is an accelerator's, or the regions are on another node or tier.")


def text(document):
    def paragraph(line, indent=""):
        return textwrap.fill(line, WIDTH, subsequent_indent=indent)

    return "\n".join([
        "", table(rows(document)), "",
        paragraph(f"backend  {document['reason']}", " " * 9),
        paragraph(f"regions  {regions(document)}", " " * 9), "",
        paragraph(reading(document)), "", paragraph(HONESTY)])
