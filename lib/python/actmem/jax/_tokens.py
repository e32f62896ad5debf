# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Drops the values of tokens that Python does not refer to any more. A token is a few integers that
identify a value in actmem memory (_kept.py).

While Python refers to a token, programs can take (read) the token's value any number of times.
After Python has deleted the last array that contains the token, the value must be dropped, but
programs that take the value may still be running. So a separate program drops the value. The
token's memory is donated to this program, so JAX runs this program only after all programs that
read the token.
"""
import collections
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from actmem.jax._kept import Kept

# The finalizer of a token array appends the underlying array of integers to _ended. Python can
# collect a token array at any time, even in a thread that holds _lock. So the finalizer must not
# take _lock: it only appends.
_ended: collections.deque[jax.Array] = collections.deque()
# Arrays of integers whose token arrays are all deleted. drain() drops the values that these
# integers identify.
_gone: collections.deque[jax.Array] = collections.deque()
# The results of programs that drop values. These programs may still be running.
_drops: list[Any] = []
# id() of an array of integers → the number of token arrays that share the array.
_counts: collections.Counter[int] = collections.Counter()
# The token arrays of Stored arrays (_state.py) to which Python still refers.
_states: "weakref.WeakSet[Kept]" = weakref.WeakSet()
_lock = threading.RLock()


def _count_ended() -> None:
    with _lock:
        while _ended:
            words = _ended.popleft()
            _counts[id(words)] -= 1
            if not _counts[id(words)]:
                del _counts[id(words)]
                _gone.append(words)


def watch(kept: "Kept") -> None:
    """Ensures that the values of the tokens in `kept` are dropped after Python has deleted `kept`
    and all arrays that share its memory. For example, if a program returns its input, its result
    shares the input's memory. Also calls drain(), because a training loop that calls only one
    program would otherwise never call drain()."""
    with _lock:
        _counts[id(kept.base)] += 1
    weakref.finalize(kept, _ended.append, kept.base).atexit = False
    drain()


def watch_state(kept: "Kept") -> None:
    _states.add(kept)


def state_ids() -> list[int]:
    """Returns the ids of the blocks of all states that Python refers to. Waits for the programs
    that make these blocks."""
    arrays = [kept.base for kept in list(_states) if not kept.is_deleted()]
    return [int(token[0]) for base in arrays if not _has_failed(base)
            for shard in base.addressable_shards
            for token in np.asarray(shard.data).view(np.uint64).reshape(-1, 2)]


def _has_failed(words: jax.Array) -> bool:
    """Waits for the program that makes `words`. Returns true if the program failed: the array then
    has no elements to read."""
    try:
        words.block_until_ready()
    except jax.errors.JaxRuntimeError:
        return True
    return False


def _drop(words: jax.Array) -> jax.Array:
    from actmem.jax._primitives import drop_now
    if jax.sharding.get_abstract_mesh().empty:
        with jax.ensure_compile_time_eval(), jax.disable_jit(False):
            done: jax.Array = drop_now(words)
        return done
    # A program for an array on one mesh fails while another mesh is set. A new thread has no mesh,
    # so the program can run there.
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(drop_now, words).result()
    return done


def drain(wait: bool = False) -> None:
    """Starts programs that drop the values of all tokens that Python has deleted. If `wait` is
    true, waits for these programs, and for those of earlier calls."""
    _count_ended()
    while _gone:
        try:
            words = _gone.popleft()
        except IndexError:      # another thread was faster
            break
        if words.is_deleted() or wait and _has_failed(words):
            continue
        done = _drop(words)
        with _lock:     # another thread may be replacing the list
            _drops.append(done)
    with _lock:
        drops = list(_drops)
    for done in drops if wait else ():
        _has_failed(done)
    with _lock:
        _drops[:] = [done for done in _drops if not done.is_ready()]
