# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What a training had in actmem, for the demo's table."""
import actmem
import actmem.jax


def measure(steps):
    """After `steps` steps: bytes per step, and where the regions are."""
    memory = actmem.default()
    put_bytes = actmem.jax.stats()["put_bytes_total"]
    regions = [{"bytes": size, "page_bytes": region["page_bytes"],
                "node": node, "pinned": region["pinned_bytes"] > 0}
               for region in actmem.regions()
               for node, size in region["nodes"].items()]
    return {"offloaded_bytes_per_step": put_bytes / max(1, steps),
            "regions": regions,
            "backend": memory.backend,
            "reason": memory.describe()}


def finish():
    """Gives the empty regions back; the counters then."""
    live_blocks = actmem.jax.stats()["live_blocks"]
    actmem.jax.reset()
    stats = actmem.jax.stats()
    stats.pop("devices")
    return {"counters": stats | actmem.counters()
            | {"live_blocks_before_reset": live_blocks}}
