# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Asks XLA how many bytes of memory a compiled program needs, and formats a table of these
sizes."""

# XLA's names without "_size_in_bytes": first for the device, then for the host.
DEVICE = ("temp", "argument", "output", "alias")
HOST = tuple(f"host_{kind}" for kind in DEVICE)


def analysis(compiled):
    """Returns the sizes by kind, in bytes, and their sums for device and host. An alias is an
    argument that is also an output, so the sums count it once."""
    stats = compiled.memory_analysis()
    if stats is None:
        raise RuntimeError("this backend of XLA has no memory analysis")
    size = {f"{kind}_bytes": getattr(stats, f"{kind}_size_in_bytes")
            for kind in DEVICE + HOST}
    for total, kinds in (("total_bytes", DEVICE), ("host_total_bytes", HOST)):
        *added, alias = [size[f"{kind}_bytes"] for kind in kinds]
        size[total] = sum(added) - alias
    return size


COLUMNS = {"temp": "temp_bytes", "arguments": "argument_bytes",
           "output": "output_bytes", "alias": "alias_bytes", "total": "total_bytes",
           "on host": "host_total_bytes", "in actmem": "actmem_bytes"}


def table(rows):
    """Formats the rows of a Report. If a row has the tutorial's sizes, the next line shows them."""
    large = any(row["total_bytes"] >= 1 << 30 for row in rows)
    unit, size = ("GiB", 1 << 30) if large else ("MiB", 1 << 20)

    def cells(name, numbers):
        return [name] + ["–" if numbers.get(key) is None else f"{numbers[key] / size:.2f}"
                         for key in COLUMNS.values()]

    lines = [[unit, *COLUMNS]]
    for row in rows:
        lines.append(cells(row["name"], row))
        if row["tutorial"]:
            lines.append(cells("  in the tutorial", row["tutorial"]))
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join([line[0].ljust(widths[0])] +
                      [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])])
            for line in lines]
    return "\n".join([text[0], "─" * len(text[0]), *text[1:]])
