# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""gemma.py DIRECTORY FLAGS...: trains a Gemma-like model of MaxText in bfloat16, for one step on
one device: with stock offloading, under patch(), and with the same values kept on the device.
Prints whether patch() has the bits of each of the others, and its largest difference to stock
offloading, by the largest element of the leaf: a line for each FLAGS, which are those of XLA."""
import json
import os
import sys

import actmem.jax
import numpy as np
from models import Count
from test_maxtext import trained

# Two layers are one block, with soft caps and a norm behind each part.
GEMMA = {"decoder_block": "gemma2", "final_logits_soft_cap": 30.0,
         "attn_logits_soft_cap": 50.0, "sliding_window_size": 16, "use_post_attn_norm": True,
         "use_post_ffw_norm": True, "mlp_activations": "[gelu,linear]", "steps": 1}


def leaves(policy):
    return trained(sys.argv[1], policy, **GEMMA)


def difference(a, b):
    a, b = (np.asarray(leaf, np.float64) for leaf in (a, b))
    return float(np.abs(a - b).max() / (np.abs(b).max() or 1))


def compare():
    stock, kept = leaves("qkv_proj_offloaded"), leaves("save_qkv_proj")
    with actmem.jax.patch():
        count = Count()
        patched = leaves("qkv_proj_offloaded")
    print("\n" + json.dumps({
        "puts": count("puts_total"),
        "stock": [leaf.tobytes() for leaf in patched] == [leaf.tobytes() for leaf in stock],
        "kept": [leaf.tobytes() for leaf in patched] == [leaf.tobytes() for leaf in kept],
        "difference": max(map(difference, patched, stock))}), flush=True)


def main():
    """XLA reads its flags once, when JAX is first used, so each run needs its own process. These
    share the import of MaxText, which takes as long as a run."""
    for flags in sys.argv[2:]:
        pid = os.fork()
        if not pid:
            os.environ["XLA_FLAGS"] = flags
            compare()
            return
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            sys.exit(f"{flags}: exit status {status}")


if __name__ == "__main__":
    main()
