# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Tokens that Python has, and what becomes of what they are for.

A token that a compiled program gives to Python, or takes from it, may be taken any number
of times, as long as there is an array of it. When that is gone its value is dropped, not
at once, as programs that take it may be under way, but by a program of its own, to which
the token's memory is donated: that runs when all others that read it have ended.
"""
import collections
import threading
import weakref
from typing import TYPE_CHECKING

import jax

if TYPE_CHECKING:
    from actmem.jax._kept import Kept

# The words of arrays of tokens that are gone. Python may collect such an array at any time,
# also while a thread has the lock: so what is called then only adds its words here.
_ended: collections.deque[jax.Array] = collections.deque()
_gone: collections.deque[jax.Array] = collections.deque()
# How many arrays of tokens share the words of one in memory.
_counts: collections.Counter[int] = collections.Counter()
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
    """`kept` is an array of tokens: what they are for is dropped when it is gone, and all
    others that are the same in memory, as where a program returns what it was given."""
    with _lock:
        _counts[id(kept.base)] += 1
    weakref.finalize(kept, _ended.append, kept.base).atexit = False


def drain(wait: bool = False) -> None:
    """Drops what tokens were for that are gone; waits until that is done, or not."""
    from actmem.jax._primitives import drop_now
    _count_ended()
    while _gone:
        try:
            words = _gone.popleft()
        except IndexError:      # another thread was faster
            return
        if not words.is_deleted():
            with jax.ensure_compile_time_eval(), jax.disable_jit(False):
                done = drop_now(words)
            if wait:
                done.block_until_ready()
