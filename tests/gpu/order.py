# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Where XLA's compiler for GPUs has the puts of a program that it has scheduled."""
import re

CALL = re.compile(r'custom_call_target="actmem_(\w+)"')


def calls(text):
    """(index, name) of each call of the handlers among the instructions of the entry."""
    lines = [line for line in text[text.index("\nENTRY"):].splitlines() if " = " in line]
    return [(i, CALL.search(line)[1]) for i, line in enumerate(lines) if CALL.search(line)]


def late_share(text):
    """Of the puts, those in the last quarter of what comes before the first tie, or behind
    it: about a quarter where layers put what they compute, all where puts were left."""
    found = calls(text)
    puts = [i for i, name in found if name == "put"]
    end = next((i for i, name in found if name == "tie"), None)
    if not puts or end is None:
        return None
    return sum(put > 0.75 * end for put in puts) / len(puts)
