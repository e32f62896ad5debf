# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The import of actmem.jax changes nothing of what JAX compiles, nor of its errors."""
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive

import actmem.jax
import stock_programs
from models import Count

HERE = os.path.dirname(__file__)
PACKAGE = os.path.dirname(actmem.__file__)


def test_stock_programs():
    """Jaxprs and lowered texts of many programs, byte by byte, with the lines of the source:
    before and after the import, and after programs of actmem.jax were compiled. With patch(),
    those that offload nothing to pinned_host stay the same, too."""
    ended = subprocess.run(
        [sys.executable, os.path.join(HERE, "stock_programs.py")], capture_output=True,
        text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert not ended.returncode, ended.stderr
    told = json.loads(ended.stdout)
    assert told["drawn"] >= 30 and told["puts"] > 0
    assert told["differ"].pop("patched").keys() == {
        name for name, copies in told["copies"].items() if copies and name != "moved"}
    assert not any(told["differ"].values()), told["differ"]


def fails(*args, **params):
    raise ValueError("this policy fails")


X = jnp.ones((16, 16))
nowhere_p = Primitive("nowhere")
nowhere_p.def_abstract_eval(lambda x: x)


def of_function(f, policy=stock_programs.MOVE):
    wrapped = jax.checkpoint(lambda x, w: f(checkpoint_name(x @ w, "a")), policy=policy)
    return jax.jit(jax.grad(lambda w: jnp.sum(wrapped(X, w))))


FAILURES = {
    "a policy": lambda: of_function(jnp.sin, fails)(X),
    "the result of a policy": lambda: of_function(jnp.sin, lambda *_, **__: "save")(X),
    "a policy outside of jit": lambda: jax.grad(lambda x: jnp.sum(jax.checkpoint(
        lambda x: jnp.sin(checkpoint_name(x, "a")), policy=fails)(x)))(X),
    "the function": lambda: of_function(lambda x: x @ jnp.ones(3))(X),
    "a derivative": lambda: of_function(nowhere_p.bind)(X),
    "the lowering": lambda: jax.jit(nowhere_p.bind)(X),
    "another platform": lambda: jax.jit(lambda x: jax.pure_callback(
        jnp.sin, x, x)).trace(X).lower(lowering_platforms=("cuda",)),
    "a callback": lambda: jax.block_until_ready(
        jax.jit(lambda x: jax.pure_callback(fails, x, x))(X)),
    "an argument": lambda: jax.jit(jnp.sin)("x"),
}


def frames(error):
    """The files of all frames of an exception, and of those that led to it."""
    while error:
        trace = error.__traceback__
        while trace:
            yield trace.tb_frame.f_code.co_filename
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_errors_are_not_ours(failure):
    """Not even if JAX shows its own frames."""
    jax.clear_caches()
    jax.config.update("jax_traceback_filtering", "off")
    try:
        with pytest.raises(Exception) as caught:
            failure()
    finally:
        jax.config.update("jax_traceback_filtering", "auto")
    files = list(frames(caught.value))
    assert any("jax" in file for file in files)
    assert not [file for file in files if file.startswith(PACKAGE + os.sep)]


def test_rules_that_are_registered_later():
    """In the table that a library has imported before or after."""
    from jax.interpreters import partial_eval
    from actmem.jax._private import pe
    rule_p = Primitive("of a library")
    rule_p.def_abstract_eval(lambda x: x)
    for table in (partial_eval.partial_eval_jaxpr_custom_rules,
                  pe.partial_eval_jaxpr_custom_rules):
        table[rule_p] = lambda *_: None
        assert pe.partial_eval_jaxpr_custom_rules.get(rule_p) is table[rule_p]
        assert rule_p in partial_eval.partial_eval_jaxpr_custom_rules
        del table[rule_p]


@pytest.mark.parametrize("wrap", ["patch", "checkpoint"])
def test_the_forward_pass_computes_with_what_it_puts(wrap):
    """Not with a copy that came back, as JAX's before 0.10 did."""
    x = jnp.linspace(0., 1., 512)

    def f(x):
        return jnp.sin(checkpoint_name(jnp.sin(x), "a"))

    def passes():
        wrapped = jax.checkpoint(f, policy=stock_programs.MOVE) if wrap == "patch" else \
            actmem.jax.checkpoint(f, policy=stock_programs.MOVE)
        forward = jax.make_jaxpr(lambda x: jax.vjp(wrapped, x))(x)
        text = str(forward)
        assert text.count("actmem_put") == 1 and "actmem_take" not in text
        assert "device_put" not in text
        put, = [eqn for eqn in equations(forward) if eqn.primitive.name == "actmem_put"]
        value = put.outvars[0]
        users = [eqn.primitive.name for eqn in equations(forward) if value in eqn.invars]
        assert users == ["sin"]
        count = Count()
        jax.block_until_ready(jax.jit(jax.grad(lambda x: jnp.sum(wrapped(x))))(x))
        assert count("puts_total") == count("takes_total") == 1
    if wrap == "patch":
        with actmem.jax.patch():
            passes()
    else:
        passes()


def equations(jaxpr):
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for inner in jax.extend.core.jaxprs_in_params(eqn.params):
            yield from equations(inner)
