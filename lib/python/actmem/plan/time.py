# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Simulates the time of a step. It models five queues: compute, the link to the host, the link from
the host, writes of files and reads of files. The layers run forward and then backward.

A layer that offloads values waits while `ring` earlier layers have unfinished transfers to the
host. Values that exceed the host's budget are written to files. These values are read back ahead of
the backward pass, which waits for values that arrive late.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from actmem.plan.machine import Rates

AHEAD = 2       # maximum number of layers with fetched values on the device, in the backward pass


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a step, run once forward and once backward."""

    forward: float          # seconds of compute
    backward: float         # seconds of compute, including recomputation
    sent: int = 0           # bytes offloaded
    values: int = 1         # number of offloaded values

    @property
    def each(self) -> float:
        return self.sent / max(1, self.values)


@dataclasses.dataclass(frozen=True)
class Step:
    seconds: float
    compute: float          # seconds in which the device computes
    waited: float           # seconds in which the device waits for transfers
    host_bytes: int
    disk_bytes: int


def simulate(layers: Sequence[Layer], rates: Rates, rest: float = 0.0, ring: int = 2,
             budget: float = math.inf, waits: bool = False) -> Step:
    """Simulates a step of `layers`, which are in the order of the forward pass, plus `rest` seconds
    of other compute. At most `ring` layers have unfinished transfers to the host at a time. The
    host holds at most `budget` bytes. In the backward pass, at most AHEAD layers have their values
    on the device. If `waits` is true, the device computes nothing during transfers from the
    host."""
    device = out = written = 0.0
    sent: dict[int, float] = {}         # layer → when its bytes are in the host's memory
    filed: dict[int, float] = {}        # layer → when its bytes are in a file
    sending = [i for i, layer in enumerate(layers) if layer.sent]
    host = most = 0
    for i, layer in enumerate(layers):
        if layer.sent and len(sent) >= ring:
            device = max(device, sent[sending[len(sent) - ring]])
        device += layer.forward
        if not layer.sent:
            continue
        room = 0.0
        while host + layer.sent > budget and len(filed) < len(sent):
            # Write the oldest layer to a file first, because the backward pass needs it last.
            oldest = sending[len(filed)]
            written = max(written, sent[oldest]) + layers[oldest].sent / rates.disk_write(
                layers[oldest].each)
            room = filed[oldest] = written
            host -= layers[oldest].sent
        host += layer.sent
        most = max(most, int(min(host, budget)))
        copied = layer.sent / rates.link_out + layer.values * rates.call
        out = max(out, device, room) + copied
        sent[i] = out
        device = max(device + rates.share * copied, out if rates.share == 1 else 0.0)
        if host > budget:       # one layer alone exceeds the budget
            written = filed[i] = max(written, out) + layer.sent / rates.disk_write(layer.each)
            host -= layer.sent
    taken = read = forward_end = device
    ended: list[float] = []             # end times of the layers' backward passes so far
    free = budget - host
    freed: list[tuple[float, int]] = []     # when a layer's bytes left the host, and how many
    for i in reversed(range(len(layers))):
        layer = layers[i]
        if not layer.sent:
            device += layer.backward
            continue
        room = ended[-AHEAD] if len(ended) >= AHEAD else forward_end
        ready = sent[i]
        if i in filed:
            begin = max(read, filed[i])
            while free < layer.sent and freed:
                when, size = freed.pop(0)
                begin, free = max(begin, when), free + size
            free -= layer.sent
            ready = read = begin + layer.sent / rates.disk_read(layer.each)
        start = max(taken, room, ready, device if rates.share == 1 or waits else 0.0)
        rate = rates.link_in_both if out > start else rates.link_in
        copied = layer.sent / rate + layer.values * rates.call
        taken = start + copied
        freed.append((taken, layer.sent))
        device = max(device + rates.share * copied, taken) + layer.backward
        ended.append(device)
    compute = sum(layer.forward + layer.backward for layer in layers)
    return Step(device + rest, compute + rest, device - compute, most,
                sum(layers[i].sent for i in filed))
