# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What a program for a GPU becomes, seen without one: the calls that the handlers
are registered for, where they belong, and nothing that a GPU cannot do."""
import ctypes
import re

import jax
import jax.numpy as jnp
import pytest

import actmem.jax
from actmem.jax import _handlers
from models import FORMS, LAYERS, data, layer, wrappers

CALL = re.compile(r"stablehlo\.custom_call @(actmem_put|actmem_take)\((.*)\)"
                  r" \{(.*)\} : \((.*)\) -> (\S+)")
TIED = re.compile(r"(%\w+)(?::(\d+))? = stablehlo\.custom_call @actmem_tie\((.*?)\)"
                  r" \{(.*)\} : \((.*)\) -> ")


SEPARATED = re.compile(r"(%\w+)((?::\d+)?) = (stablehlo\.custom_call @actmem_.*)\n"
                       r" *(%\w+)((?::\d+)?) = stablehlo\.optimization_barrier (.*) : .*\n")


def without_barriers(text):
    """Removes the barrier behind each call, which separates the call's results from what
    stores them."""
    functions = text.split("func.func")
    for i, function in enumerate(functions):
        while found := SEPARATED.search(function):
            result, count, call, barrier, as_many, operands = found.groups()
            assert as_many == count and set(re.findall(r"%\w+", operands)) == {result}
            rest = re.sub(rf"{barrier}\b", result, function[found.end():])
            function = f"{function[:found.start()]}{result}{count} = {call}\n{rest}"
        functions[i] = function
    return "func.func".join(functions)


def lowered(f, *arguments, platforms=("cuda",)):
    text = jax.jit(f).trace(*arguments).lower(lowering_platforms=platforms).as_text()
    assert len(SEPARATED.findall(text)) == text.count("@actmem_") // len(platforms)
    return without_barriers(text)


def calls(text):
    found = CALL.findall(text)
    assert len(found) == text.count("@actmem_put(") + text.count("@actmem_take(")
    return found


@pytest.mark.parametrize("form", FORMS)
def test_calls(form):
    weights, x = data()
    loss = FORMS[form](wrappers(offload_argnums=(0,))["actmem"](layer))
    found = calls(lowered(jax.grad(loss), weights, x))
    layers = LAYERS if form == "unrolled" else 1
    names = [name for name, *_ in found]
    # Three names and the layer's input.
    assert names.count("actmem_put") == 4 * layers
    assert names.count("actmem_take") == 4 * layers
    for name, _, attributes, types, result in found:
        # Of XLA's typed interface, which has attributes by name.
        assert re.search(r"(api_version = 4 : i32|mhlo\.backend_config = \{)",
                         attributes)
        assert "has_side_effect = true" in attributes
        # Row-major, on the device: no memory space is asked for.
        for layouts in re.findall(r"layouts = \[(.*?)\](?:,|\})", attributes + "}"):
            for layout in re.findall(r"dense<\[?(.*?)\]?> : tensor<(\d+)xindex>", layouts):
                axes = [int(axis) for axis in layout[0].split(",")]
                assert axes == list(range(int(layout[1])))[::-1]
        if name == "actmem_put":
            assert "site = " in attributes and "bounded = true" in attributes
            assert result == "tensor<4xui32>"
        else:
            assert types == "tensor<4xui32>" and "ends = true" in attributes


@pytest.mark.parametrize("form", FORMS)
def test_a_layer_is_tied(form):
    """To a cotangent, before its takes, which are announced by that."""
    weights, x = data()
    loss = FORMS[form](wrappers(offload_argnums=(0,))["actmem"](layer))
    text = lowered(jax.grad(loss), weights, x)
    tied = TIED.findall(text)
    assert len(tied) == (LAYERS if form == "unrolled" else 1)
    for i, (tie, count, _, attributes, types) in enumerate(tied):
        assert "has_side_effect = true" in attributes
        numbers = [4 * i + each for each in range(4)]
        assert count == "4" and f"dense<{numbers}> : tensor<4xi32>" in attributes
        # And a cotangent, of the layer's result.
        assert types == ", ".join(["tensor<4xui32>"] * 4 + ["tensor<4x16x32xf32>"])
        taken = {}
        for name, token, attributes, *_ in calls(text):
            if name == "actmem_take" and token.startswith(f"{tie}#"):
                number = re.search(r"number = (\d+) : i32", attributes)
                taken[int(token.split("#")[1])] = int(number[1])
                assert "site = " in attributes
        assert [taken[each] for each in range(4)] == numbers


BARRIER = re.compile(r"(%\w+):2 = stablehlo\.optimization_barrier (%\w+), (%\w+(?:#\d+)?) :")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_put_is_used_behind_its_put(form):
    """So that no forward pass is done while its puts are not."""
    weights, x = data()
    loss = FORMS[form](wrappers(offload_argnums=(0,))["actmem"](layer))
    text = lowered(jax.grad(loss), weights, x)
    assert "optimization_barrier" not in lowered(
        jax.grad(FORMS[form](lambda x, w: layer(x, w))), weights, x)
    puts = 0
    for function in text.split("func.func")[1:]:
        behind = {value: token for _, value, token in BARRIER.findall(function)}
        for token, value in re.findall(r"(%\w+) = stablehlo\.custom_call @actmem_put\((%\w+)\)",
                                       function):
            puts += 1
            assert behind.get(value) == token, function
            # Nothing but the put and the barrier has the value as it was, to the region's end.
            later = function[function.index(f"{token} = stablehlo.custom_call @actmem_put"):]
            later = re.split(r"\breturn\b", later)[0]
            assert len(re.findall(rf"{re.escape(value)}\b", later)) == 2, later
    assert puts == 4 * (LAYERS if form == "unrolled" else 1)


@pytest.mark.without_remat3("only names and products of matrices are saved")
def test_what_is_not_taken_is_not_tied():
    """Nor put."""
    def keep(x, w):
        return jnp.sin(jnp.sin(x) * w) * w

    f = actmem.jax.checkpoint(
        keep, policy=jax.checkpoint_policies.everything_saveable,
        offload_argnums=0, min_bytes=0)
    x = jnp.ones((8, 8))
    both = lowered(jax.grad(lambda x, w: f(x, w).sum(), (0, 1)), x, x)
    one = lowered(jax.grad(lambda x, w: f(x, w).sum(), 1), x, x)
    for text in both, one:
        names = [name for name, *_ in calls(text)]
        puts, takes = (names.count(f"actmem_{name}") for name in ("put", "take"))
        tied, = TIED.findall(text)
        assert puts == takes == int(tied[1] or 1)
    assert len(calls(one)) < len(calls(both))


def test_program_for_both():
    f = actmem.jax.checkpoint(lambda x: jnp.sin(x) ** 2, min_bytes=0,
                              offload_argnums=0)
    text = lowered(jax.grad(lambda x: f(x).sum()), jnp.ones((8, 8)),
                   platforms=("cpu", "cuda"))
    assert {name for name, *_ in calls(text)} == {"actmem_put", "actmem_take"}


class _Base(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_uint32),
                ("next", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t),
                ("extension_start", ctypes.c_void_p),
                ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("version", _Version),
                ("traits", ctypes.c_uint32), ("state", ctypes.c_int64 * 4)]


class _Extension(ctypes.Structure):
    _fields_ = [("base", _Base), ("metadata", ctypes.POINTER(_Metadata))]


class _Frame(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t),
                ("extension", ctypes.POINTER(_Extension)),
                ("rest", ctypes.c_void_p * 64)]


@pytest.mark.parametrize("handler", _handlers.PLATFORMS["cuda"].values())
def test_no_trait_is_claimed(handler):
    metadata = _Metadata(traits=0xffffffff)
    extension = _Extension(metadata=ctypes.pointer(metadata))
    extension.base.type = 1
    frame = _Frame(extension=ctypes.pointer(extension))
    function = getattr(_handlers.library, handler)
    function.restype = ctypes.c_void_p
    assert function(ctypes.byref(frame)) is None
    # Above all not that its commands can be recorded and run again.
    assert metadata.traits == 0 and metadata.version.minor > 0


def test_nothing_is_transferred_on_a_cpu():
    assert actmem.jax.stats()["transfers"] == {}


@pytest.mark.parametrize("size", [-1, "1M", 1 << 64])
def test_ring_is_bytes(size):
    with pytest.raises(ValueError, match="device_ring="):
        actmem.open(device_ring=size)
