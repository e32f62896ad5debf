# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What a case of layers.py is expected to take, before it is run.

Compute: FLOP by the rate that the un-offloaded case reached; for that case itself, by
0.7 of the rate of a large product of matrices. Copies: bytes by the driver's own rates.
    remat           4 forward passes: forward, again, and backward, which counts twice
    stock           one after the other, as nothing overlaps them without the
                    latency-hiding scheduler
    with it         scanned: the way out is hidden, the way in is not, as it begins when
                    its layer does; pipelined or unrolled: both are hidden
    actmem          both are hidden, but for two things that XLA's stream waits for: the
                    copies on the device, into the ring and out of it again; and the first
                    layer's copies in, before which there is nothing to do. The host also
                    waits once in each layer to read its tokens: this adds about 0.3% on an
                    H200, and is not part of the prediction
Hidden: what is longer counts, of copies out and the forward pass, of copies in and the
rest. Pinned: XLA's pool doubles from 2 MiB on until a request fits, and `actmem run` gives
it what it asks for; the handlers ask for the values, in regions of grow_bytes(), and for
what their thread makes ahead: two values, half a region or 1/64, whichever is most.
"""
EFFICIENCY = 0.7
MIB = 1 << 20


def pool_bytes(requests):
    """What XLA's pool has once it gave all of these, none freed."""
    regions, total, next_bytes = [], 0, 2 * MIB
    for request in requests:
        request = -(-request // 256) * 256
        fitting = [i for i, free in enumerate(regions) if free >= request]
        if fitting:
            best = min(fitting, key=lambda i: regions[i])
            regions[best] -= request
            continue
        doubled = False
        while next_bytes < request:
            next_bytes *= 2
            doubled = True
        regions.append(next_bytes - request)
        total += next_bytes
        if not doubled:
            next_bytes *= 2
    return total


def _rounded(size, unit):
    return -(-size // unit) * unit


def offloaded_requests(sizes, form):
    """As XLA asks its pool for them: one for each of Q, K and V, or for each layer."""
    if form == "scanned":
        return [size * sizes.layers for size in sizes.offloaded_bytes]
    return [size for _ in range(sizes.layers) for size in sizes.offloaded_bytes]


def grow_bytes(sizes):
    """Of each region that blocks are taken from: one of the longest values, so that little
    is made ahead of the last one and left over."""
    return _rounded(max(sizes.offloaded_bytes), 2 * MIB)


def pinned_bytes(case, sizes, grow):
    if case.method == "remat":
        return 0
    if case.method == "actmem":
        live = sizes.layers * sum(sizes.offloaded_bytes)
        ahead = max(2 * max(sizes.offloaded_bytes), live // 64)
        return _rounded(live, grow) + _rounded(ahead, grow)
    return pool_bytes(offloaded_requests(sizes, case.form))


def step_seconds(case, sizes, rate, link):
    """None where a rate is not known."""
    if not rate:
        return None
    forward = sizes.layers * sizes.forward_flop / rate
    rest = 3 * forward
    if case.method == "remat":
        return forward + rest
    rest -= sizes.layers * sizes.projection_flop / rate
    if not link.get("out") or not link.get("in"):
        return forward + rest
    live = sizes.layers * sum(sizes.offloaded_bytes)
    out, back = live / link["out"], live / link["in"]
    if case.method == "stock" and not case.flags:
        return forward + out + rest + back
    if case.method == "stock" and case.flags == "lhs" and case.form == "scanned":
        return max(forward, out) + rest + back
    step = max(forward, out) + max(rest, back)
    if case.method == "actmem":
        step += back / sizes.layers
        step += 2 * live / link["device"] if link.get("device") else 0
    return step


def first_run_seconds(step, pinned, allocation_rate):
    if step is None:
        return None
    return step + (pinned / allocation_rate if allocation_rate else 0)
