# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The time of a step whose state is in host memory: the update on the device and on the host."""
import math

import pytest

from actmem.plan import machine
from actmem.plan.update import Bytes, Job, Load, Rates, Update, predict, rates_of

B13, B70 = 13e9, 70.6e9
# A host's memory in GB/s, at 80% of the peak: two sockets with 8 channels of DDR5-4800, 8 of
# DDR5-6400, 12 of DDR5-6400, and 12 of MRDIMM-8800.
SPR, XEON_6700, XEON_6900, MRDIMM = 490e9, 655e9, 983e9, 1350e9


def rates(devices=1, dram=SPR):
    """An H200 with 55 GB/s each way."""
    link = {f"link_{way}{kind}": 55e9 for way in ("out", "in") for kind in ("", "_both", "_all")}
    return rates_of(machine.find("h200").replace(
        host_bandwidth=dram / 2, dram_efficiency=1, **link), devices)


def job(parameters, tokens, clips, devices=1, **options):
    """630 TFLOP/s, and 8 FLOP for each parameter and token with recomputation: a quarter forward,
    three quarters backward."""
    compute = 8 * parameters * tokens / 630e12
    return Job(parameters / devices, compute / 4, compute * 3 / 4, clips=clips, **options)


# Seconds of a step, computed by hand with these rates: 12 bytes of state for each parameter each way
# on the link and 24 of the host's memory if the device updates; 2 each way and 32 if the host does.
# A step is forward + max(backward, update) without clipping, max(forward, update) + backward with a
# delayed update, and otherwise the sum. The weights of 70B do not fit on one H200: they are copied
# twice in a step. A pair is a range.
TABLE = [
    # parameters, tokens, devices, place: no clipping, delayed, after the backward pass
    (B13, 8192, 1, "device", 3.2, 3.8, 4.2),
    (B13, 65536, 1, "device", 10.8, 10.9, 13.6),
    (B70, 8192, 1, "device", 20.5, 20.5, None),
    (B70, 65536, 1, "device", 58.8, (60, 62), 74),
    (B13, 8192, 1, "host", 1.35, 1.9, (2.2, 2.6)),
    (B13, 65536, 1, "host", 10.8, 10.8, 11.7),
    (B70, 8192, 1, "host", 7.5, 10.1, 12),
    (B70, 65536, 1, "host", 58.8, 58.8, 63),
    (B70, 8192, 8, "device", 7.3, 8.9, None),
    (B70, 8192, 8, "host", 7.3, 10.1, None),
    (B70, 65536, 8, "device", 58, 58, None),
    (B70, 65536, 8, "host", 58, 58, None)]
CELLS = [(*row[:4], behind, row[4 + number])
         for row in TABLE for number, behind in enumerate(("backward", "forward", "nothing"))
         if row[4 + number] is not None]


def seconds(parameters, tokens, devices, place, behind):
    stored = "weights" if parameters == B70 and devices == 1 else "state"
    return predict(job(parameters, tokens, behind != "backward", devices),
                   Update(stored, place, behind), rates(devices)).seconds


@pytest.mark.parametrize("parameters, tokens, devices, place, behind, wanted", CELLS)
def test_a_cell_of_the_table(parameters, tokens, devices, place, behind, wanted):
    low, high = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    got = seconds(parameters, tokens, devices, place, behind)
    print(f"{parameters/1e9} {tokens} {devices} {place} {behind} {got:.2f} {wanted} {got/high-1:+.1%}")
    assert 0.85 * low < got < 1.15 * high
