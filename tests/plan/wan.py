# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""One device's part of a training step of Wan 2.1 14B, a diffusion transformer for videos. Four
devices divide the tokens of one video among themselves: 81 frames of 720 x 1280 pixels.
"""
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from actmem.plan import _attention, _layer, models

LAYERS, WIDTH, HEADS, HIDDEN = 40, 5120, 40, 13824
DEVICES, TEXT = 4, 512
TOKENS = 21 * 45 * 80           # patches of 2 x 2 latents, for each of 21 latent frames
KIND = models.Attention(HEADS, HEADS, WIDTH // HEADS, causal=False)


def norm(x, scale=1.0, shift=0.0):
    return _layer.normed({"_scale": scale, "_bias": shift}, "", x, "layer")


def attended(w, prefix, x, seen, name, devices):
    """Attends to all keys of `seen`, of which each of `devices` devices has a part."""
    def heads(y):
        return y.reshape(*y.shape[:2], HEADS, -1)
    q, k = norm(x @ w[f"{prefix}_q"]), norm(seen @ w[f"{prefix}_k"])
    q, k, v = heads(q), heads(k), heads(seen @ w[f"{prefix}_v"])
    if devices > 1:
        q, k = _layer.rotated(q), _layer.rotated(k)
    y = _attention.attend(KIND, 0, devices, name, q, k, v)
    return y.reshape(x.shape) @ w[f"{prefix}_o"]


def layer(x, w, text, time):
    x = checkpoint_name(x, "hidden_states")
    shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = (w["modulation"] + time)
    y = norm(x, 1 + scale, shift)
    x = x + attended(w, "self", y, y, "self_attn", DEVICES) * gate.astype(x.dtype)
    x = x + attended(w, "cross", norm(x), text, "cross_attn", 1)
    y = jax.nn.gelu(norm(x, 1 + mlp_scale, mlp_shift) @ w["up"]) @ w["down"]
    return x + y * mlp_gate.astype(x.dtype)


def loss(weights, batch):
    def body(x, w):
        return layer(x, w, batch["text"], batch["time"]), None
    x, _ = jax.lax.scan(body, batch["latents"] @ weights["in"], weights["layers"])
    return jnp.mean(jnp.square(norm(x) @ weights["out"] - batch["target"]), dtype=jnp.float32)


def shape(*sizes, dtype="bfloat16"):
    return jax.ShapeDtypeStruct(sizes, dtype)


def make_step():
    square = {f"{kind}_{which}": shape(LAYERS, WIDTH, WIDTH)
              for kind in ("self", "cross") for which in "qkvo"}
    layers = square | {"up": shape(LAYERS, WIDTH, HIDDEN), "down": shape(LAYERS, HIDDEN, WIDTH),
                       "modulation": shape(LAYERS, 6, WIDTH)}
    here = TOKENS // DEVICES
    return loss, {"layers": layers, "in": shape(64, WIDTH), "out": shape(WIDTH, 64)}, {
        "latents": shape(1, here, 64), "target": shape(1, here, 64),
        "text": shape(1, TEXT, WIDTH), "time": shape(6, WIDTH, dtype="float32")}
