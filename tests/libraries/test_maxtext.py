# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""MaxText's own training loop, as released and unchanged, on four devices whose mesh has
axes of type Auto, for each of its policies that offload."""
import jax
import pytest
from maxtext.trainers.pre_train import train

import actmem.jax
from models import Count
from training import on_host, same_bits

LAYERS, STEPS, BATCH, TOKENS = 2, 5, 4, 32
HEADS, HEAD, WIDTH, MLP = 4, 16, 64, 128
CONFIG = {
    "run_name": "test", "hardware": "cpu", "dataset_type": "synthetic",
    "steps": STEPS, "per_device_batch_size": 1, "max_target_length": TOKENS,
    "base_num_decoder_layers": LAYERS, "base_emb_dim": WIDTH,
    "base_mlp_dim": MLP, "base_num_query_heads": HEADS,
    "base_num_kv_heads": HEADS, "head_dim": HEAD, "vocab_size": 256,
    "attention": "dot_product", "skip_jax_distributed_system": True,
    "enable_checkpointing": False, "enable_tensorboard": False,
    "enable_goodput_recording": False, "monitor_goodput": False,
    "log_config": False}

# What the policies send to the host, of each token: query, key, value; the
# attention's output; the two halves of what goes into the MLP. What comes out
# of that (mlpwo) the backward pass does not want. All are bfloat16.
PROJECTION = HEADS * HEAD
POLICIES = {
    "qkv_proj_offloaded": ({}, 3 * PROJECTION),
    "minimal_offloaded": ({}, 3 * PROJECTION + WIDTH + 2 * MLP),
    "custom": ({"query_proj": "offload", "mlpwi_0": "offload",
                "out_proj": "device"}, PROJECTION + MLP)}


def trained(directory, policy, scan=True, **chosen):
    """Weights, the optimizer's state and all else of the last step."""
    jax.clear_caches()
    options = {**CONFIG, **chosen, "remat_policy": policy, "scan_layers": scan,
               "base_output_directory": directory}
    config, recorder = train.initialize(
        ["train", "src/maxtext/configs/base.yml",
         *(f"{name}={value}" for name, value in options.items())])
    return on_host(jax.tree.leaves(train.train_loop(config, recorder)))


@pytest.mark.parametrize("policy,scan", [
    ("qkv_proj_offloaded", True), ("minimal_offloaded", True),
    ("custom", True), ("minimal_offloaded", False)])
def test_training_loop(policy, scan, tmp_path):
    chosen, per_token = POLICIES[policy]
    wanted = trained(tmp_path, policy, scan, **chosen)
    with actmem.jax.patch():
        count = Count()
        got = trained(tmp_path, policy, scan, **chosen)
    same_bits(got, wanted)
    assert count("put_bytes_total") == count("take_bytes_total") == \
        STEPS * LAYERS * BATCH * TOKENS * per_token * 2
    assert actmem.jax.stats()["live_blocks"] == 0


def test_context_parallelism(tmp_path):
    """Sequences are sharded, too. Puts and takes change no sharding of another value, which
    would change the order of sums."""
    mesh = {"ici_context_parallelism": 2, "ici_fsdp_parallelism": 2, "dtype": "float32"}
    wanted = trained(tmp_path, "qkv_proj_offloaded", **mesh)
    with actmem.jax.patch():
        count = Count()
        got = trained(tmp_path, "qkv_proj_offloaded", **mesh)
    same_bits(got, wanted)
    assert count("put_bytes_total") == STEPS * LAYERS * BATCH * TOKENS * 3 * PROJECTION * 4
