# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Measures the memory that a training run used in actmem, for the demo's table."""
import actmem
import actmem.jax


def _is_pinned(region):
    """Returns true if the region has pages of the driver or of hugetlb, or if all its pages are
    locked."""
    return (region["backend"] == "driver" or region["pages"] == "2M"
            or region["pinned_bytes"] >= region["length"])


def _is_in_rss(region):
    """Returns true if the process's RSS includes the region's pages once the process has touched
    them."""
    return region["backend"] == "memfd" and region["pages"] in ("thp", "4K")


def measure(steps):
    """Returns bytes and stall time per step, averaged over `steps` steps, and a description of the
    regions."""
    memory = actmem.default()
    stats = actmem.jax.stats()
    store, put_bytes = stats["store"], stats["put_bytes_total"]
    per_step, rest = divmod(put_bytes, max(1, steps))
    if rest:
        raise RuntimeError(f"{put_bytes} bytes in {steps} steps: not all alike")
    regions = [{"bytes": size, "page_bytes": region["page_bytes"],
                "node": node, "pinned": _is_pinned(region),
                "in_rss": _is_in_rss(region)}
               for region in actmem.regions()
               for node, size in region["nodes"].items()]
    stall_ns = store["put_stall_ns_total"] + store["take_stall_ns_total"]
    return {"offloaded_bytes_per_step": per_step,
            "budget_bytes": store["budget_bytes"],
            "file_bytes_per_step": (store["spilled_bytes_total"] +
                                    store["filled_bytes_total"]) // max(1, steps),
            "stall_ms": stall_ns / 1e6 / max(1, steps),
            "regions": regions,
            "backend": memory.backend,
            "reason": memory.describe()}


def finish():
    """Frees the empty regions, and then reads and returns the counters."""
    live_blocks = actmem.jax.stats()["live_blocks"]
    actmem.jax.reset()
    counters = actmem.jax.stats() | actmem.counters()
    store = counters.pop("store")
    counters |= {f"store_{name}": store[name] for name in (
        "blocks", "resident_bytes", "spilled_bytes", "memory_bytes", "file_bytes",
        "failed_spills_total", "failed_fills_total", "beyond_budget_bytes")}
    del counters["devices"]
    return {"counters": {"live_blocks_before_reset": live_blocks} | counters}
