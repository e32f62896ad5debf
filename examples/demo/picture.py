# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Draws the demo's picture in plain SVG. Bars show the memory, and curves show the loss."""
from xml.sax.saxutils import escape

from report import bytes_in_regions

COLOURS = {"kept": "#c0504d", "recomputed": "#8a8a8a", "actmem": "#2f6fb3",
           "spilled": "#3d8f5f"}
REGION_COLOUR = "#9cc3ea"
DASHES = {"kept": "", "recomputed": "9 5", "actmem": "2 5", "spilled": "1 9"}
PANEL_WIDTH, PANEL_HEIGHT, MARGIN, TITLE = 380, 250, 50, 40


def _text(x, y, words, anchor="middle", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def _bar(x, y, width, height, colour):
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" fill="{colour}"/>')


def _memory(document, left):
    """Draws a bar for each variant: XLA's temp memory and, on top of it, the regions."""
    variants = document["variants"]
    in_regions = bytes_in_regions(document)
    region_bytes = [in_regions.get(v["name"], 0) for v in variants]
    highest = max(v["temp_bytes"] + r for v, r in zip(variants, region_bytes))
    bottom = TITLE + PANEL_HEIGHT
    step = PANEL_WIDTH / len(variants)
    parts = [_text(left + PANEL_WIDTH / 2, TITLE - 18,
                   "XLA's temp memory, and regions (light)", weight="bold")]
    for i, (variant, extra) in enumerate(zip(variants, region_bytes)):
        x, width = left + (i + 0.2) * step, 0.6 * step
        temp = 0.9 * PANEL_HEIGHT * variant["temp_bytes"] / highest
        above = 0.9 * PANEL_HEIGHT * extra / highest
        label = f"{variant['temp_bytes'] / 2**20:.0f}"
        if extra:
            label += f" + {extra / 2**20:.0f}"
        parts += [
            _bar(x, bottom - temp, width, temp, COLOURS[variant["name"]]),
            _bar(x, bottom - temp - above, width, above, REGION_COLOUR),
            _text(x + width / 2, bottom - temp - above - 6, f"{label} MiB"),
            _text(x + width / 2, bottom + 18, variant["name"])]
    return parts


def _loss(document, left):
    """Draws the loss of each variant over the steps. The curves overlap."""
    variants = document["variants"]
    highest = max(max(v["losses"]) for v in variants)
    steps = max(len(v["losses"]) for v in variants)
    bottom = TITLE + PANEL_HEIGHT
    parts = [_text(left + PANEL_WIDTH / 2, TITLE - 18, "Loss", weight="bold")]
    for loss in range(int(highest) + 1):
        y = bottom - 0.9 * PANEL_HEIGHT * loss / highest
        parts += [_bar(left, y, PANEL_WIDTH, 1, "#dddddd"),
                  _text(left - 8, y + 4, str(loss), "end")]
    for i, variant in enumerate(variants):
        name, points = variant["name"], []
        for step, loss in enumerate(variant["losses"]):
            x = left + PANEL_WIDTH * step / max(1, steps - 1)
            y = bottom - 0.9 * PANEL_HEIGHT * loss / highest
            points.append(f"{x:.1f},{y:.1f}")
        style = (f'fill="none" stroke="{COLOURS[name]}" stroke-width="2.5" '
                 f'stroke-dasharray="{DASHES[name]}"')
        y = TITLE + 10 + 20 * i
        parts += [
            f'<polyline points="{" ".join(points)}" {style}/>',
            f'<path d="M{left + 230},{y} h40" {style}/>',
            _text(left + 280, y + 4, name, "start")]
    parts.append(_text(left + PANEL_WIDTH, bottom + 18, f"step {steps}", "end"))
    return parts


def svg(document):
    width = 2 * PANEL_WIDTH + 3 * MARGIN
    height = TITLE + PANEL_HEIGHT + MARGIN
    parts = (_memory(document, MARGIN)
             + _loss(document, 2 * MARGIN + PANEL_WIDTH))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
        f'{height}" font-family="sans-serif" font-size="13" fill="#222222">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *parts, "</svg>", ""])
