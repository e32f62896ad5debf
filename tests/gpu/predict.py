# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Predict what a case of layers.py takes, before it runs.

The constants come from an H200 with JAX 0.11.2 on 26 November 2026 (docs/results): layers
reach 0.9 of the rate of a large product of matrices. Stock's copies out are hidden behind
the forward pass; its copies in are not. If the layers are unrolled, stock keeps Q, K and V
on the card until the backward pass, so it needs pinned memory for one layer. actmem's copies
are hidden both ways, except two: the copies on the device, into the ring and out of it, and
the first layer's copies in, which nothing computes beside.
XLA's pool doubles from 2 MiB until a request fits. The handlers pin regions of grow_bytes()
and what their thread makes ahead.
"""
EFFICIENCY = 0.9
OURS = ("actmem", "actmem run --offload", "planned")


def pool_bytes(requests):
    """Return what XLA's pool allocates for these requests, none of which is freed."""
    free, total, following = [], 0, 2 << 20
    for request in requests:
        region = min((size for size in free if size >= request), default=None)
        if region is None:
            doubled = following < request
            while following < request:
                following *= 2
            region, total = following, total + following
            following *= 1 if doubled else 2
        else:
            free.remove(region)
        free.append(region - request)
    return total


def _rounded(size, unit):
    return -(-size // unit) * unit


def grow_bytes(sizes):
    """Return the length of each region: one of the longest values, so that little is left
    over of the last region."""
    return _rounded(max(sizes.offloaded_bytes), 2 << 20)


def pinned_bytes(case, sizes):
    if case.method == "recomputed":
        return 0
    if case.method in OURS:
        grow, live = grow_bytes(sizes), sizes.layers * sum(sizes.offloaded_bytes)
        ahead = max(2 * max(sizes.offloaded_bytes), live // 64)
        return _rounded(live, grow) + _rounded(ahead, grow)
    if case.form == "unrolled":
        return pool_bytes(sizes.offloaded_bytes)
    return pool_bytes([size * sizes.layers for size in sizes.offloaded_bytes])


def step_seconds(case, sizes, rate, link):
    """Return None if a rate is not known; `rate` is FLOP per second of the layers."""
    if not rate or not link.get("out"):
        return None
    forward = sizes.layers * sizes.forward_flop / rate
    if case.method == "recomputed":     # forward, again, and backward, which counts twice
        return 4 * forward
    rest = 3 * forward - sizes.layers * sizes.projection_flop / rate
    live = sizes.layers * sum(sizes.offloaded_bytes)
    out, back = live / link["out"], live / link["in"]
    if case.method in OURS:
        return max(forward, out) + max(rest, back) + back / sizes.layers + \
            2 * live / link["device"]
    return forward + rest if case.form == "unrolled" else max(forward, out) + rest + back


def first_run_seconds(step, pinned, allocation_rate):
    if step is None or pinned and not allocation_rate:
        return None
    return step + (pinned / allocation_rate if pinned else 0)
