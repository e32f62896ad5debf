# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Programs of libraries, unchanged, under `actmem run --offload`."""
import os
import re
import sys

from running import BEGINS, COUNTED, ENDS, of_python, run, starts

PATH = os.environ["PYTHONPATH"]

# A training of Keras that knows nothing of actmem. Prints a digest of its weights.
KERAS = """
import hashlib, os
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
keras.utils.set_random_seed(0)
with keras.RematScope("full"):
    layers = [keras.layers.Dense(16, activation="relu") for _ in range(2)]
model = keras.Sequential([keras.Input((16,)), *layers])
model.compile("sgd", "mse", jit_compile=True)
x = np.linspace(-1, 1, 8 * 16, dtype="float32").reshape(8, 16)
model.fit(x, x, batch_size=8, epochs=2, shuffle=False, verbose=0)
print(hashlib.sha256(b"".join(np.asarray(variable.value).tobytes()
                              for variable in model.variables)).hexdigest())
"""


def trained(**named):
    """The digest, how many values were put, and the lines."""
    (digest, _, puts), lines = of_python(COUNTED + KERAS, PYTHONPATH=PATH, **named)
    return digest, puts, lines


def test_keras():
    """Its remat takes no policy: both lines say what that comes to."""
    wanted, puts, lines = trained(options=())
    assert puts == "False", "actmem.jax was imported"
    starts(lines, ENDS)
    digest, puts, lines = trained()
    assert (digest, puts) == (wanted, "0")
    starts(lines, BEGINS, ENDS)
    assert "no policy of jax.checkpoint offloads" in lines[1]
    assert trained(options=("--offload", "--quiet"))[2] == []


OPTIONS = """run_name=test hardware=cpu dataset_type=synthetic steps=3 per_device_batch_size=1
    max_target_length=32 base_num_decoder_layers=2 base_emb_dim=64 base_mlp_dim=128
    base_num_query_heads=4 base_num_kv_heads=4 head_dim=16 vocab_size=256
    attention=dot_product skip_jax_distributed_system=True enable_checkpointing=False
    enable_tensorboard=False enable_goodput_recording=False monitor_goodput=False
    remat_policy=minimal_offloaded""".split()


def maxtext(folder, *options):
    """The losses of its steps, and all that it wrote."""
    import maxtext
    base = os.path.join(os.path.dirname(maxtext.__file__), "configs", "base.yml")
    status, output, lines, words = run(
        sys.executable, "-m", "maxtext.trainers.pre_train.train", base, *OPTIONS,
        f"base_output_directory={folder}", options=options, PYTHONPATH=PATH, with_words=True,
        XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert status == 0, words
    losses = re.findall(r"completed step: \d+.*? loss: ([\d.]+)", output + words)
    assert len(losses) == 3, words
    return losses, lines, words


def test_maxtext(tmp_path):
    """As a package, with its own options: the same losses, and each name of its policy has a
    row, that of the value that no backward pass needs, too."""
    wanted, lines, _ = maxtext(tmp_path)
    starts(lines, ENDS)
    losses, lines, words = maxtext(tmp_path, "--offload", "--report")
    assert losses == wanted
    assert lines[0].startswith(BEGINS) and not any(ENDS in line for line in lines)
    goes = {row.split()[0]: row.split()[-2:] for row in words.splitlines()
            if re.search(r" (actmem|unneeded) +(pinned_host|unneeded)$", row)}
    kept = {"query_proj", "key_proj", "value_proj", "out_proj", "mlpwi_0", "mlpwi_1"}
    assert {name for name, (where, _) in goes.items() if where == "actmem"} == kept, words
    assert goes["mlpwo"] == ["unneeded", "unneeded"]
