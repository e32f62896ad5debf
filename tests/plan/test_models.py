# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Models of the table and of config.json, and the function that is made of them."""
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actmem.plan import _attention, _layer, _trace, decoder, machine, models, of_model
from actmem.plan.models import Attention, Experts, Layer, ModelError
from actmem.plan.search import Nothing

SIZES = {"vocab_size": 48, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}
TOWER = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 12,
         "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 2, "image_size": 8,
         "vision_use_head": False}
GEMMA = {**SIZES, "head_dim": 8, "sliding_window": 5}
TINY = {
    "llama": SIZES,
    "mistral": {**SIZES, "sliding_window": 5},
    "mixtral": {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {**SIZES, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": {**SIZES, "head_dim": 8},
    "qwen3_moe": {**SIZES, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 8, "mlp_only_layers": [1]},
    "gemma": {**SIZES, "head_dim": 8},
    "gemma2": GEMMA,
    "gemma3_text": {**GEMMA, "sliding_window_pattern": 2},
    "gemma4_text": {**GEMMA, "global_head_dim": 16, "num_global_key_value_heads": 1,
                    "attention_k_eq_v": True, "enable_moe_block": True, "num_experts": 4,
                    "top_k_experts": 2, "moe_intermediate_size": 8,
                    "layer_types": ["sliding_attention", "full_attention"]},
    "gemma3": {"text_config": {"model_type": "gemma3_text", **GEMMA}, "vision_config": TOWER,
               "mm_tokens_per_image": 4},
    "gemma4": {"text_config": {"model_type": "gemma4_text", **GEMMA}},
    "paligemma": {"text_config": {"model_type": "gemma2", **GEMMA}, "vision_config": TOWER},
    "deepseek_v3": {**SIZES, "q_lora_rank": 8, "kv_lora_rank": 6, "qk_nope_head_dim": 4,
                    "qk_rope_head_dim": 2, "v_head_dim": 4, "n_routed_experts": 4,
                    "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                    "first_k_dense_replace": 1},
}


def tiny(kind, **fields):
    return models.from_config({"model_type": kind, **TINY[kind], **fields}, kind)


def product_flops(jaxpr):
    """Of all products, with those of a scan's body as often as it goes."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            ((over, _), _) = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            total += 2 * math.prod(eqn.outvars[0].aval.shape) * math.prod(shape[i] for i in over)
        made_of = _attention.MADE_OF.get(eqn.primitive.name)
        if made_of:
            total += product_flops(jax.make_jaxpr(functools.partial(made_of, **eqn.params))(*(
                jax.ShapeDtypeStruct(each.aval.shape, each.aval.dtype)
                for each in eqn.invars)).jaxpr)
        inner = [value for param in eqn.params.values()
                 for value in (param if isinstance(param, (tuple, list)) else (param,))]
        for value in inner:
            value = getattr(value, "jaxpr", value)
            if hasattr(value, "eqns"):
                total += product_flops(value) * eqn.params.get("length", 1)
    return total


def flops(step, gradient=True):
    loss = jax.grad(step.loss) if gradient else step.loss
    return product_flops(jax.make_jaxpr(loss)(step.trained, step.frozen, step.batch).jaxpr)


@pytest.mark.parametrize("name", models.names())
def test_as_many_weights_as_published(name):
    model = models.find(name)
    assert model.parameters and model.source
    assert abs(decoder.count(model) / model.parameters - 1) < 0.01


def test_the_published_bytes_of_query_key_and_value():
    for name, wanted in (("llama-3.3-70b", 20480), ("llama-2-13b", 30720),
                         ("gemma-2-27b", 16384), ("paligemma2-28b", 16384),
                         ("gemma-3-27b", 16384)):
        for layer in models.find(name).layers:
            kind = layer.attention
            assert 2 * kind.head_dim * (kind.q_heads + 2 * kind.kv_heads) == wanted


def test_several_kinds_of_attention_in_one_model():
    model = models.find("gemma-4-31b")
    (group,) = model.groups
    local, wide = group.layers[0].attention, group.layers[5].attention
    assert group.repeat == 10 and group.layers[:5] == (group.layers[0],) * 5
    assert (local.kv_heads, local.head_dim, local.window, local.shares_kv) == \
        (16, 256, 1024, False)
    assert (wide.kv_heads, wide.head_dim, wide.window, wide.shares_kv) == (4, 512, 0, True)
    assert [group.repeat for group in models.find("gemma-3-27b").groups] == [10, 2]
    dense, sparse = models.find("deepseek-v3").groups
    assert (dense.repeat, sparse.repeat) == (3, 58)
    assert dense.layers[0].experts is None and sparse.layers[0].experts.shared_d_ff == 2048


def test_few_programs_are_predicted_before_nothing_fits(monkeypatch):
    """A search learns from a choice that does not fit what each name adds. It would predict 54
    programs if it learnt only from the programs that it predicts anyway."""
    saved = []
    graph_saving = _trace.Program.graph_saving

    def counted(program, names=()):
        saved.append(names)
        return graph_saving(program, names)
    monkeypatch.setattr(_trace.Program, "graph_saving", counted)
    with pytest.raises(Nothing):
        of_model.plan_of(models.find("gemma-4-31b"), machine.find("h100"), batch=8, tokens=4096,
                         shard=decoder.Shard(fsdp=8), device_memory=71 << 30)
    assert len(saved) < 40


def test_layers_are_grouped_by_what_repeats():
    a, b = (Layer(Attention(2, 2, 4), d_ff) for d_ff in (4, 8))
    for layers in ([a], [a, b], [a, a, b], [a, b] * 3 + [a], [a, a, b] * 2, [b] + [a] * 3):
        groups = models.grouped(layers)
        assert [layer for group in groups for layer in group.layers * group.repeat] == layers
    assert len(models.grouped([a, a, b] * 4)) == 1


def test_a_bias_where_key_is_value():
    model = tiny("gemma4_text", attention_bias=True)
    layer = model.layers[1]
    shapes = decoder.layer_shapes(layer, 16, decoder.Shard())
    assert layer.attention.shares_kv and "key_bias" in shapes and "value_bias" not in shapes
    assert flops(decoder.step(model, batch=1, tokens=8), False) > 0


def test_no_such_model():
    with pytest.raises(ModelError, match="unknown model 'llama'.*llama-2-13b.*--config FILE"):
        models.find("llama")


def test_a_field_is_missing_or_not_known_or_wrong():
    for kind, fields in TINY.items():
        for name in [name for name in fields if name in SIZES and
                     name != "num_key_value_heads"]:
            if kind in ("gemma2", "gemma3_text") and name == "num_attention_heads":
                continue
            with pytest.raises(ModelError, match=f"^{kind}: field '{name}' is missing"):
                tiny(kind, **{name: None})
        with pytest.raises(ModelError, match="field 'layer_drop' is unknown.*remove it"):
            tiny(kind, layer_drop=0.1)
    for fields, words in (
            ({"hidden_size": "16"}, "'hidden_size' is '16', but must be an integer of at least 1"),
            ({"hidden_size": 0}, "'hidden_size' is 0"),
            ({"hidden_size": True}, "'hidden_size' is True"),
            ({"tie_word_embeddings": 1}, "'tie_word_embeddings' is 1, but must be true or false"),
            ({"num_key_value_heads": 3}, "'num_key_value_heads' is 3, which does not divide"),
            ({"model_type": ["llama"]}, r"'model_type' is \['llama'\]; valid types are deepseek"),
            ({"head_dim": 3}, "'head_dim' is 3, but must be even"),
            ({"hidden_act": "relu"}, "'hidden_act' is 'relu', but must be gelu or silu")):
        with pytest.raises(ModelError, match=words):
            tiny("llama", **fields)
    for kind, fields, words in (
            ("mixtral", {"num_experts_per_tok": 5},
             "'num_experts_per_tok' is 5, but num_local_experts is only 4"),
            ("qwen3_moe", {"num_experts_per_tok": 5}, "but num_experts is only 4"),
            ("gemma4_text", {"top_k_experts": 5}, "'top_k_experts' is 5, but .* is only 4"),
            ("deepseek_v3", {"num_experts_per_tok": 5}, "but n_routed_experts is only 4"),
            ("deepseek_v3", {"qk_rope_head_dim": 1}, "'qk_rope_head_dim' is 1, but must be even"),
            ("gemma4_text", {"global_head_dim": 5}, "'global_head_dim' is 5, but must be even"),
            ("qwen2", {"max_window_layers": "x"}, "'max_window_layers' is 'x', but must be"),
            ("gemma2", {"layer_types": [["full_attention"]] * 2}, "'layer_types' has \\['full"),
            ("gemma3", {"text_config": {"model_type": "gemma3"}}, "itself contains a text_config"),
            ("gemma3", {"text_config": {"model_type": [1]}}, "'model_type' is \\[1\\]; valid "),
            ("paligemma", {"vision_config": {**TOWER, "image_size": 1}},
             "'image_size' is 1, but patch_size is 2")):
        with pytest.raises(ModelError, match=words):
            tiny(kind, **fields)
    with pytest.raises(ModelError, match="'layer_types' has 1 layers, but num_hidden_layers is 2"):
        tiny("gemma2", layer_types=["full_attention"])
    with pytest.raises(ModelError, match="'layer_types' has 'chunked'; valid types are"):
        tiny("gemma2", layer_types=["chunked"] * 2)
    with pytest.raises(ModelError, match="'num_kv_shared_layers' is 2: .* not support such layers"):
        tiny("gemma4_text", num_kv_shared_layers=2)
    with pytest.raises(ModelError, match="'model_type' is 'bert'; valid types are deepseek_v3, "):
        models.from_config({"model_type": "bert"})
    with pytest.raises(ModelError, match="paligemma: text_config: field '.*' is missing"):
        models.from_config({"model_type": "paligemma", "text_config": {"model_type": "gemma2"}},
                           "paligemma")
    with pytest.raises(ModelError, match="'model_type' is 'clip'.*siglip_vision_model"):
        tiny("paligemma", vision_config={**TOWER, "model_type": "clip"})
    with pytest.raises(ModelError, match="'vision_use_head' is True: .* not support the head"):
        tiny("paligemma", vision_config={**TOWER, "vision_use_head": True})
    with pytest.raises(ModelError, match="16 patches, which cannot be pooled to 8 tokens"):
        tiny("gemma3", mm_tokens_per_image=8)


def test_a_file(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(ModelError, match=f"cannot read the model of {path}"):
        models.load(path)
    path.write_text("{")
    with pytest.raises(ModelError, match=f"cannot read the model of {path}"):
        models.load(path)
    path.write_text("[]")
    with pytest.raises(ModelError, match="expected an object of fields, not list"):
        models.load(path)
    fields = {"model_type": "llama", **SIZES, "rope_theta": 1e4, "torch_dtype": "bfloat16",
              "new_field": 1, "other": None}
    path.write_text(json.dumps(fields))
    with pytest.raises(ModelError, match="field 'new_field' is unknown"):
        models.load(path)
    model = models.load(path, ignore=["new_field"])
    assert model.groups == tiny("llama").groups and model.source == model.name == str(path)


def attended(kind, prefix, of, q, k, v):
    """What attend() is to make, with all scores at once."""
    k, v = (of.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = of.einsum("bthd,bshd->bhts", q, k) * q.shape[3] ** -0.5
    if kind.softcap:
        scores = kind.softcap * of.tanh(scores / kind.softcap)
    behind = np.arange(q.shape[1])[:, None] - np.arange(q.shape[1])
    seen = (behind >= 0) | (not kind.causal) | (np.arange(q.shape[1]) < prefix)
    if kind.window:
        seen &= behind < kind.window
    weights = of.exp(of.where(seen, scores, -1e30))
    return of.einsum("bhts,bshd->bthd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("kind, prefix", [
    (Attention(4, 2, 8), 0), (Attention(4, 4, 8, 6), 3), (Attention(4, 2, 8, window=1), 0),
    (Attention(4, 2, 8, window=5), 0), (Attention(4, 1, 8, window=16, softcap=5.0), 0),
    (Attention(4, 2, 8, window=4), 3), (Attention(4, 4, 8, causal=False), 0)])
def test_attention(kind, prefix):
    random = np.random.default_rng(0)
    for tokens in (1, 33):
        q, k, v = (random.normal(size=(2, tokens, heads, dim)).astype(np.float32)
                   for heads, dim in ((kind.q_heads, 8), (kind.kv_heads, 8),
                                      (kind.kv_heads, kind.values)))
        attend = functools.partial(_attention.attend, kind, prefix, 1, "context")
        by_products = functools.partial(_attention.attend_by_products, kind, prefix, 1)
        _, wanted = jax.vjp(functools.partial(attended, kind, prefix, jnp), q, k, v)
        along = random.normal(size=(2, tokens, kind.q_heads, kind.values)).astype(np.float32)
        for computes in (attend, by_products):
            values, pull = jax.vjp(computes, q, k, v)
            np.testing.assert_allclose(values, attended(kind, prefix, np, q, k, v), atol=1e-5)
            for derivative, right in zip(pull(along), wanted(along)):
                np.testing.assert_allclose(derivative, right, atol=2e-5)


def test_experts():
    layer = Layer(Attention(2, 2, 4), 0, Experts(4, 4, 8, 8))
    random = np.random.default_rng(0)
    w = {name: random.normal(size=shape).astype(np.float32) for name, shape in
         decoder.layer_shapes(layer, 8, decoder.Shard()).items()}
    x = random.normal(size=(2, 5, 8)).astype(np.float32)

    def silu(y):
        return y / (1 + np.exp(-y))
    gates = np.exp(x @ w["router"])
    gates /= gates.sum(-1, keepdims=True)
    wanted = (silu(x @ w["shared_wi_0"]) * (x @ w["shared_wi_1"])) @ w["shared_wo"]
    for i in range(4):
        hidden = silu(x @ w["expert_wi_0"][i]) * (x @ w["expert_wi_1"][i])
        wanted += gates[..., i:i + 1] * (hidden @ w["expert_wo"][i])
    np.testing.assert_allclose(
        _layer.experts_of(layer, w, jnp.asarray(x), lambda x, _: x), wanted, rtol=1e-3, atol=1e-3)


@pytest.fixture(name="few_blocks")
def fixture_few_blocks(monkeypatch):
    """That take less time to compile."""
    monkeypatch.setattr(_attention, "QUERY_BLOCKS", 2)


def test_a_policy_keeps_what_it_names():
    model = tiny("llama", num_hidden_layers=4)
    options = {"batch": 2, "tokens": 64}

    def work(*names):
        policy = jax.checkpoint_policies.save_only_these_names(*names)
        return flops(decoder.step(model, **options, remat=functools.partial(
            jax.checkpoint, policy=policy)))
    nothing, everything = work(), work(*decoder.NAMES)
    product = 4 * 2 * 128 * 16      # of all layers, for each column of a weight
    attention = 4 * 2 * 2 * (64 * 64 * 9 // 16) * 2 * 16
    # mlpwo's output is never needed again.
    assert nothing - everything == product * (16 + 8 + 8 + 16 + 24 + 24) + attention
    assert nothing - work("context") == attention
    assert nothing - work("query_proj") == product * 16
    assert nothing - work("key_proj", "value_proj") == product * 16
    assert nothing - work("mlpwi_0") == product * 24


def test_the_names_are_maxtexts():
    for kind, more in (("llama", set()), ("mixtral", set()),
                       ("deepseek_v3", {"query_wa_proj", "kv_wa_proj"})):
        names = set(decoder.NAMES) - {"query_wa_proj", "kv_wa_proj"} | more
        for attention, lacks in (("kernel", "attention_out"), ("dot_product", "context")):
            step = decoder.step(tiny(kind), batch=1, tokens=8, attention=attention)
            text = str(jax.make_jaxpr(step.loss)(step.trained, step.frozen, step.batch))
            found = {name for name in decoder.NAMES if f"name={name}\n" in text or
                     f"name={name}]" in text}
            assert found == names - {lacks}
    with pytest.raises(ValueError, match="attention='flash' must be one of kernel, dot_product"):
        decoder.step(tiny("llama"), batch=1, tokens=8, attention="flash")


def test_products_of_attention_write_all_scores():
    model, tokens = tiny("llama", num_hidden_layers=4), 1024
    most = {}
    for attention in decoder.ATTENTIONS:
        step = decoder.step(model, batch=1, tokens=tokens, attention=attention)
        jaxpr = jax.make_jaxpr(step.loss)(step.trained, step.frozen, step.batch)
        most[attention] = max(math.prod(var.aval.shape) for eqn in _trace._eqns(jaxpr)
                              for var in eqn.outvars)
    heads = model.groups[0].layers[0].attention.q_heads
    assert most["dot_product"] >= heads * tokens ** 2 > most["kernel"]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "mixtral", "deepseek_v3"])
def test_a_mesh_divides_the_work(kind):
    model = tiny(kind)
    whole = decoder.step(model, batch=4, tokens=64)
    for shard in (decoder.Shard(sequence=2), decoder.Shard(data=2, fsdp=2, tensor=2)):
        part = decoder.step(model, batch=4, tokens=64, shard=shard)
        ratio = flops(part) * shard.devices / flops(whole)
        assert 0.99 < ratio < 1.3, shard      # routers and latent products are each device's
    assert not whole.collectives
    step = decoder.step(model, batch=4, tokens=64, shard=decoder.Shard(fsdp=2, tensor=2))
    assert {(one.axis, one.kind) for one in step.collectives} == {
        ("fsdp", "all-gather"), ("fsdp", "reduce-scatter"), ("tensor", "all-reduce")}
    gathered = sum(one.bytes * one.count for one in step.collectives
                   if one.kind == "all-gather" and one.phase == "forward")
    counted = sum(math.prod(value.shape) for name, value in step.trained.items()
                  if name != "final_norm_scale")
    assert gathered == 2 * counted
    layers = {}
    for name, value in step.trained.items():
        if ".0." in name or ".1." in name:
            layer = tuple(name.split(".")[:2])
            layers[layer] = layers.get(layer, 0) + 2 * math.prod(value.shape) // (
                model.groups[int(layer[0][5:])].repeat)
    assert step.bytes["gathered"] == max(layers.values()) and not whole.bytes["gathered"]
    assert step.bytes["weights"] == sum(math.prod(value.shape) * 4 // 2
                                        for value in step.trained.values())


def test_a_mesh_that_does_not_divide():
    model = tiny("llama")
    for shard, words in (({"tensor": 3}, "tensor=3 does not divide the vocabulary|heads"),
                         ({"tensor": 8}, "tensor=8 does not divide the number of query heads"),
                         ({"fsdp": 3}, "data x fsdp x expert=3 does not divide the batch"),
                         ({"sequence": 3}, "sequence=3 does not divide the number of tokens"),
                         ({"data": 0}, "data=0 is not a number")):
        with pytest.raises(decoder.ShardError, match=words):
            decoder.step(model, batch=4, tokens=64, shard=decoder.Shard(**shard))
    with pytest.raises(decoder.ShardError, match="expert=3 does not divide the number of exp"):
        decoder.step(tiny("mixtral"), batch=3, tokens=64, shard=decoder.Shard(expert=3))
    # Fewer heads of keys than devices: each has one.
    step = decoder.step(tiny("llama"), batch=4, tokens=64, shard=decoder.Shard(tensor=4))
    assert step.trained["group0.0.key"].shape == (2, 16, 1, 4)


def test_what_is_not_trained_has_no_gradient(few_blocks):
    model = tiny("paligemma")
    options = {"batch": 2, "tokens": 8, "dtype": jnp.float32}
    everything = decoder.step(model, **options)
    attention = decoder.step(model, **options, train="attention")
    lora = decoder.step(model, **options, lora=decoder.Lora(2))
    assert all(name.startswith("vision.") for name in everything.frozen)
    assert {name.split(".")[-1] for name in attention.trained} == {"query", "key", "value",
                                                                   "out"}
    assert {name.split(".")[-1] for name in lora.trained} == {"lora_a", "lora_b"}
    assert len(lora.trained) == 2 * 4 * 2   # of two kinds of layers
    work = [flops(step) for step in (everything, attention, lora)]
    assert work == sorted(work, reverse=True) and work[0] > 1.1 * work[2]
    for step in (attention, lora):
        gradients = jax.jit(jax.grad(step.loss))(*step.initial())
        assert gradients.keys() == step.trained.keys()
        assert all(jnp.any(value != 0) for value in gradients.values())
        assert step.bytes["optimizer"] == 2 * step.bytes["gradients"]
    with pytest.raises(ValueError, match="no weight of paligemma is trained"):
        decoder.step(model, **options, lora=decoder.Lora(2, ("gate",)))
    with pytest.raises(ValueError, match="train='mlp' is neither"):
        decoder.step(model, **options, train="mlp")
    with pytest.raises(ValueError, match="images=1, but llama has no vision tower"):
        decoder.step(tiny("llama"), batch=1, tokens=1, images=1)


def test_the_loss_goes_by_chunks(few_blocks):
    model = tiny("llama")
    options = {"batch": 2, "tokens": 8, "dtype": jnp.float32}
    one, four = (decoder.step(model, **options, loss_chunks=n) for n in (1, 4))
    np.testing.assert_allclose(jax.jit(one.loss)(*one.initial()),
                               jax.jit(four.loss)(*one.initial()), rtol=1e-6)
    with pytest.raises(decoder.ShardError, match="loss_chunks=3 does not divide"):
        decoder.step(model, **options, loss_chunks=3)


def test_the_largest_are_looked_at_in_seconds():
    for name in ("llama-3.1-405b", "deepseek-v3"):
        model = models.find(name)
        step = decoder.step(model, batch=64, tokens=2048, shard=decoder.Shard(fsdp=64),
                            remat=jax.checkpoint)
        work = flops(step)
        active = sum(math.prod(value.shape) for name, value in step.trained.items()
                     if ".expert_" not in name and name != "embed")
        experts = sum(math.prod(value.shape) for name, value in step.trained.items()
                      if ".expert_" in name)
        active += experts * 8 // 256
        # 6 for each weight and token, 2 more where it is computed again; and attention.
        assert 7 < work / (active * 2048) < 9
