# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What a training had in actmem, for the demo's table."""
import actmem
import actmem.jax


def _is_pinned(region):
    """The driver's and hugetlb's pages always are, others if locked."""
    return (region["backend"] == "driver" or region["pages"] == "2M"
            or region["pinned_bytes"] >= region["length"])


def measure(steps):
    """After `steps` steps: bytes per step, and where the regions are."""
    memory = actmem.default()
    put_bytes = actmem.jax.stats()["put_bytes_total"]
    per_step, rest = divmod(put_bytes, max(1, steps))
    if rest:
        raise RuntimeError(f"{put_bytes} bytes in {steps} steps: not all alike")
    regions = [{"bytes": size, "page_bytes": region["page_bytes"],
                "node": node, "pinned": _is_pinned(region)}
               for region in actmem.regions()
               for node, size in region["nodes"].items()]
    return {"offloaded_bytes_per_step": per_step,
            "regions": regions,
            "backend": memory.backend,
            "reason": memory.describe()}


def finish():
    """Gives the empty regions back; the counters then."""
    live_blocks = actmem.jax.stats()["live_blocks"]
    actmem.jax.reset()
    counters = actmem.jax.stats() | actmem.counters()
    del counters["devices"]
    return {"counters": {"live_blocks_before_reset": live_blocks} | counters}
