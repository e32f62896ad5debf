# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The Python of docs/planning.md runs as it stands there."""
import os
import re
import textwrap

import flax.linen
import flax.nnx
import jax

from programs import (decoder_layer, decoder_weights, language_loss, language_params, scanned,
                      tokens_of)

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                    "docs", "planning.md")


def blocks():
    """Those of Python, in the page's order."""
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    for block in re.findall(r"(?:^ {4}.*\n)+(?:\n*^ {4}.*\n)*", text, re.MULTILINE):
        block = re.sub(r"^actmem .*\n", "", textwrap.dedent(block), flags=re.MULTILINE)
        # Output of commands, and lines of a configuration.
        if block and not re.search(r"^\$ |^\w+: \w+$", block, re.MULTILINE):
            yield block


def test_the_page_s_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def init(_):
        return jax.tree.map(lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype), params)
    params = language_params(decoder_weights(2, 128, 352), 128)
    names = {"jax": jax, "flax": flax, "init": init, "params": params,
             "batch": tokens_of(4, 128), "Layer": flax.linen.Dense, "layer": decoder_layer,
             "loss": language_loss(scanned, decoder_layer, None)}
    seen = list(blocks())
    for word in ("def make_step", "actmem.jax.plan(", " = jax.checkpoint(", "flax.nnx.remat(",
                 "actmem.jax.load_plan("):
        assert sum(word in block for block in seen) == 1, word
    found = None
    for block in seen:
        if "load_plan(" in block:
            found = names["plan"]
            found.save("plan.json")
        exec(block, names)      # pylint: disable=exec-used
    assert found and names["plan"] == found
    loss, *arguments = names["make_step"]()
    assert loss is names["loss"] and jax.eval_shape(loss, *arguments).shape == ()
