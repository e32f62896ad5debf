# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Parsers of Hugging Face configurations, one for each architecture: see models.py."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from actmem.plan._structure import (Attention, Experts, Layer, Model, ModelError, Vision,
                                    grouped)

# Fields that change neither the cost of the computation, nor sizes, nor the saved values. The list
# includes the fields that control routing, because routing changes which experts a token uses, not
# how many.
NEUTRAL = frozenset("""
    _attn_implementation _name_or_path architectures attention_dropout attn_implementation
    audio_token_id auto_map aux_loss_alpha bos_token_id boi_token_index boi_token_id
    boa_token_id cache_implementation chunk_size_feed_forward dtype eoi_token_index eoi_token_id
    eoa_token_id eoa_token_index eos_token_id ep_size hidden_act hidden_activation
    image_token_index image_token_id initializer_factor initializer_range layer_norm_eps
    max_position_embeddings max_window_layers mlp_dropout model_type n_group norm_topk_prob
    num_nextn_predict_layers output_router_logits pad_token_id pretraining_tp projector_hidden_act
    quantization_config query_pre_attn_scalar rms_norm_eps rope_interleave rope_local_base_freq
    rope_parameters rope_scaling rope_theta routed_scaling_factor router_aux_loss_coef
    router_jitter_noise scoring_func seq_aux sliding_window_size topk_group topk_method
    torch_dtype transformers_version use_bidirectional_attention use_cache video_token_id
    vocab_size_per_layer_input ignore_index partial_rotary_factor unsloth_fixed
    num_image_tokens attention_type
""".split())


class Fields:
    """The fields of a configuration, and which of them a parser has read."""

    def __init__(self, values: Any, where: str, ignore: Iterable[str] = ()) -> None:
        if not isinstance(values, Mapping):
            raise ModelError(f"{where}: expected an object of fields, not "
                             f"{type(values).__name__}")
        self.values = values
        self.where = where
        self.ignore = frozenset(ignore)
        self.taken: set[str] = set()
        self.kind = values.get("model_type")

    def error(self, name: str, why: str) -> ModelError:
        return ModelError(f"{self.where}: field '{name}' {why}")

    def _value(self, name: str, default: Any) -> Any:
        self.taken.add(name)
        value = self.values.get(name)
        if value is None:
            if default is ...:
                raise self.error(name, f"is missing: a model of type {self.kind!r} must have "
                                 "this field")
            return default
        return value

    def size(self, name: str, default: Any = ..., least: int = 1) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(name, f"is {value!r}, but must be an integer of at least {least}")
        return value

    def flag(self, name: str, default: Any = ...) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"is {value!r}, but must be true or false")
        return value

    def real(self, name: str, default: Any = ...) -> float:
        value = self._value(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
            raise self.error(name, f"is {value!r}, but must be a number of at least 0")
        return float(value)

    def items(self, name: str, default: Any = ...) -> list[Any]:
        value = self._value(name, default)
        if not isinstance(value, list):
            raise self.error(name, f"is {value!r}, but must be a list")
        return value

    def inner(self, name: str) -> Fields:
        return Fields(self._value(name, ...), f"{self.where}: {name}", self.ignore)

    def refuse(self, name: str, why: str, allowed: Sequence[Any] = (0, False)) -> None:
        value = self._value(name, None)
        if value is not None and value not in allowed:
            raise self.error(name, f"is {value!r}: {why}")

    def act(self) -> str:
        name = self.values.get("hidden_activation") or self.values.get("hidden_act")
        if name is None:
            return "silu"
        if not isinstance(name, str) or not name.startswith(("gelu", "silu", "swish")):
            raise self.error("hidden_act", f"is {name!r}, but must be gelu or silu")
        return "gelu" if name.startswith("gelu") else "silu"

    def end(self) -> None:
        """Raises an error if a field is not null, no parser has read the field, and neither NEUTRAL
        nor `ignore` contains it."""
        left = sorted(name for name, value in self.values.items()
                      if value is not None and name not in self.taken | NEUTRAL | self.ignore)
        if left:
            raise self.error(left[0], f"is unknown for a model of type {self.kind!r}: if the field "
                             "changes no size, remove it from the file or, in Python, pass "
                             f"ignore={tuple(left)!r}")


def _attention(fields: Fields, head_dim: Any = None, **more: Any) -> Attention:
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    kv_heads = fields.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"is {kv_heads}, which does not divide the "
                           f"{heads} of num_attention_heads")
    dim = _even(fields, "head_dim", fields.size("head_dim", head_dim or hidden // heads))
    bias = fields.flag("attention_bias", False)
    return Attention(heads, kv_heads, dim, **{"qkv_bias": bias, "out_bias": bias, **more})


def _even(fields: Fields, name: str, dim: int) -> int:
    """Returns `dim`, which must be even, because position embeddings rotate pairs of numbers."""
    if dim % 2:
        raise fields.error(name, f"is {dim}, but must be even")
    return dim


def _experts(fields: Fields, count: str, each: str, d_ff: int, shared_d_ff: int = 0,
             has_bias: bool = False) -> Experts:
    number, taken = fields.size(count), fields.size(each)
    if taken > number:
        raise fields.error(each, f"is {taken}, but {count} is only {number}")
    return Experts(number, taken, d_ff, shared_d_ff, has_bias)


def _text(fields: Fields, layers: Sequence[Layer], is_tied: bool,
          softcap: float = 0) -> Model:
    model = Model("", fields.size("hidden_size"), fields.size("vocab_size"),
                  fields.flag("tie_word_embeddings", is_tied), grouped(layers),
                  fields.real("final_logit_softcapping", softcap))
    fields.end()
    return model


def _llama(fields: Fields) -> Model:
    has_bias = fields.flag("mlp_bias", False)
    layer = Layer(_attention(fields), fields.size("intermediate_size"), act=fields.act(),
                  has_mlp_bias=has_bias)
    return _text(fields, [layer] * fields.size("num_hidden_layers"), False)


def _mistral(fields: Fields) -> Model:
    attention = _attention(fields, window=fields.size("sliding_window", 0, 0))
    experts = None
    if fields.kind == "mixtral":
        experts = _experts(fields, "num_local_experts", "num_experts_per_tok",
                           fields.size("intermediate_size"))
    layer = Layer(attention, fields.size("intermediate_size"), experts, act=fields.act())
    return _text(fields, [layer] * fields.size("num_hidden_layers"), False)


def _windowed(fields: Fields, count: int, is_local: Callable[[int], bool]) -> list[bool]:
    """Returns for each layer whether its attention has a window. Uses layer_types, or
    is_local(layer) if the configuration lacks this field."""
    known = {"sliding_attention": True, "full_attention": False}
    types = fields.items("layer_types", [])
    if not types:
        return [is_local(i) for i in range(count)]
    for kind in types:
        if not isinstance(kind, str) or kind not in known:
            raise fields.error("layer_types", f"has {kind!r}; valid types are {', '.join(known)}")
    if len(types) != count:
        raise fields.error("layer_types", f"has {len(types)} layers, but num_hidden_layers is "
                           f"{count}")
    return [known[kind] for kind in types]


def _qwen(fields: Fields) -> Model:
    count = fields.size("num_hidden_layers")
    is_3 = fields.kind != "qwen2"
    more = {} if is_3 else {"qkv_bias": True, "out_bias": False}
    attention = _attention(fields, has_norms=is_3, **more)
    window = fields.size("sliding_window", 0, 0)
    first = fields.size("max_window_layers", count, 0)
    has_window = fields.flag("use_sliding_window", False)
    local = _windowed(fields, count, lambda i: has_window and i >= first)
    d_ff = fields.size("intermediate_size")
    layers = [Layer(dataclasses.replace(attention, window=window if local[i] else 0), d_ff,
                    act=fields.act()) for i in range(count)]
    if fields.kind == "qwen3_moe":
        experts = _experts(fields, "num_experts", "num_experts_per_tok",
                           fields.size("moe_intermediate_size"))
        step, dense = fields.size("decoder_sparse_step", 1), fields.items("mlp_only_layers", [])
        layers = [layer if i in dense or (i + 1) % step
                  else dataclasses.replace(layer, experts=experts)
                  for i, layer in enumerate(layers)]
    return _text(fields, layers, False)


def _gemma(fields: Fields) -> Model:
    """Parses all generations of Gemma: each extends the previous one."""
    count = fields.size("num_hidden_layers")
    generation = {"gemma": 1, "gemma2": 2, "gemma3_text": 3, "gemma4_text": 4}[str(fields.kind)]
    if generation in (2, 3):
        # Defaults of the transformers library. The files of the smallest models omit these fields.
        fields = _with_defaults(fields, num_attention_heads=8, num_key_value_heads=4)
    attention = _attention(fields, head_dim=256, has_norms=generation >= 3,
                           softcap=fields.real("attn_logit_softcapping",
                                               50 if generation == 2 else 0))
    pattern = 0
    if generation == 2:
        pattern = 2
    elif generation >= 3:
        pattern = fields.size("sliding_window_pattern", 6)
    local = [False] * count
    window = 0
    if generation > 1:
        local = _windowed(fields, count, lambda i: bool((i + 1) % pattern))
        window = fields.size("sliding_window", 4096 if generation == 2 else ...)
    wide = attention
    experts = None
    if generation == 4:
        shares = fields.flag("attention_k_eq_v", False)
        wide = dataclasses.replace(
            attention, shares_kv=shares, head_dim=_even(
                fields, "global_head_dim", fields.size("global_head_dim", 512)))
        kv_heads = fields.size("num_global_key_value_heads", attention.kv_heads)
        if shares:
            wide = dataclasses.replace(wide, kv_heads=kv_heads)
        for name in ("hidden_size_per_layer_input", "num_kv_shared_layers",
                     "use_double_wide_mlp"):
            fields.refuse(name, "actmem plan does not support such layers")
        fields.taken.update(("num_experts", "top_k_experts", "moe_intermediate_size"))
        if fields.flag("enable_moe_block", False):
            experts = _experts(fields, "num_experts", "top_k_experts",
                               fields.size("moe_intermediate_size"),
                               fields.size("intermediate_size"))
    d_ff = fields.size("intermediate_size")
    narrow = dataclasses.replace(attention, window=window)
    layers = [Layer(narrow if is_local else wide, d_ff, experts, act="gelu",
                    has_post_norms=generation > 1) for is_local in local]
    return _text(fields, layers, True, 30 if generation == 2 else 0)


def _with_defaults(fields: Fields, **defaults: Any) -> Fields:
    filled = Fields({**defaults, **{name: value for name, value in fields.values.items()
                                     if value is not None}}, fields.where, fields.ignore)
    filled.taken = fields.taken
    return filled


def _deepseek(fields: Fields) -> Model:
    heads = fields.size("num_attention_heads")
    rope = _even(fields, "qk_rope_head_dim", fields.size("qk_rope_head_dim"))
    fields.size("num_key_value_heads", heads)
    fields.refuse("attention_bias", "actmem plan does not support such projections")
    attention = Attention(heads, heads, fields.size("qk_nope_head_dim") + rope,
                          fields.size("v_head_dim"), q_rank=fields.size("q_lora_rank", 0, 0),
                          kv_rank=fields.size("kv_lora_rank"), rope_dim=rope)
    expert_d_ff = fields.size("moe_intermediate_size")
    experts = _experts(fields, "n_routed_experts", "num_experts_per_tok", expert_d_ff,
                       expert_d_ff * fields.size("n_shared_experts", 0, 0), True)
    dense = Layer(attention, fields.size("intermediate_size"), act=fields.act())
    sparse = dataclasses.replace(dense, experts=experts)
    first, step = fields.size("first_k_dense_replace", 0, 0), fields.size("moe_layer_freq", 1)
    layers = [dense if i < first or i % step else sparse
              for i in range(fields.size("num_hidden_layers"))]
    return _text(fields, layers, False)


def _siglip(fields: Fields, tokens: int | None, has_norm: bool) -> Vision:
    if fields.kind != "siglip_vision_model":
        raise fields.error("model_type", f"is {fields.kind!r}, but the only supported tower is "
                           "'siglip_vision_model'; text_config can be planned by itself")
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    if hidden % heads:
        raise fields.error("num_attention_heads", f"is {heads}, which does not divide the "
                           f"{hidden} of hidden_size")
    attention = Attention(heads, heads, hidden // heads, causal=False, qkv_bias=True,
                          out_bias=True, has_rope=False)
    layer = Layer(attention, fields.size("intermediate_size"), is_gated=False, act="gelu",
                  has_mlp_bias=True, norm="layer")
    # projection_dim repeats hidden_size of text_config.
    fields.taken.add("projection_dim")
    fields.refuse("vision_use_head", "actmem plan does not support the head of a tower")
    vision = Vision(layer, fields.size("num_hidden_layers"), hidden,
                    fields.size("image_size", 224), fields.size("patch_size"),
                    fields.size("num_channels", 3), 0, not has_norm, has_norm)
    fields.end()
    if not vision.patches:
        raise fields.error("image_size", f"is {vision.image}, but patch_size is {vision.patch}")
    tokens = tokens or vision.patches
    ratio = vision.patches / tokens
    if int(ratio ** 0.5) ** 2 != ratio:
        raise fields.error("image_size", f"makes {vision.patches} patches, which cannot be "
                           f"pooled to {tokens} tokens")
    return dataclasses.replace(vision, tokens=tokens)


def _with_images(fields: Fields) -> Model:
    """Parses a decoder with a vision tower. The weight of the decoder's embedding is always also
    the weight of its head."""
    text = fields.inner("text_config")
    inner = parser_of(text)
    if inner is _with_images:
        raise text.error("model_type", f"is {text.kind!r}, which itself contains a text_config")
    model = inner(Fields({**text.values, "tie_word_embeddings": True}, text.where,
                          text.ignore))
    # These fields repeat fields of text_config and vision_config.
    fields.taken.update(("hidden_size", "vocab_size", "projection_dim", "tie_word_embeddings",
                         "vision_soft_tokens_per_image"))
    fields.refuse("audio_config", "actmem plan does not support audio", ())
    tokens = fields.size("mm_tokens_per_image", 256) if fields.kind == "gemma3" else None
    vision = None
    if fields.kind != "gemma4" or fields.values.get("vision_config") is not None:
        vision = _siglip(fields.inner("vision_config"), tokens, fields.kind == "gemma3")
    fields.end()
    return dataclasses.replace(model, vision=vision,
                               images=1 if fields.kind == "paligemma" else 0)


PARSERS: dict[str, Callable[[Fields], Model]] = {
    "llama": _llama, "mistral": _mistral, "mixtral": _mistral,
    "qwen2": _qwen, "qwen3": _qwen, "qwen3_moe": _qwen,
    "gemma": _gemma, "gemma2": _gemma, "gemma3_text": _gemma, "gemma4_text": _gemma,
    "gemma3": _with_images, "gemma4": _with_images, "paligemma": _with_images,
    "deepseek_v3": _deepseek,
}


def parser_of(fields: Fields) -> Callable[[Fields], Model]:
    kind = fields.kind
    if not isinstance(kind, str) or kind not in PARSERS:
        raise fields.error("model_type",
                           f"is {kind!r}; valid types are {', '.join(sorted(PARSERS))}")
    return PARSERS[kind]
