# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""empty and asarray in processes of their own: with other knobs, forked, at
their end, and with CUDA's part played by the stand-in."""
import errno
import os
import subprocess
import sys
import tempfile
import textwrap

import jax

from conftest import TREE
from test_module import MODULE, python


def process(script, **environment):
    """What a process of its own printed, as JSON, or its error output if it failed."""
    return python("import sys, numpy as np\n" + textwrap.dedent(script),
                  **{"ACTMEM_ALLOW": "any", **environment})


def test_the_limit_is_told_and_holds():
    words, held, after = process("""
        kept = [actmem.jax.empty(3 << 20, np.uint8)]
        try:
            while True:
                kept.append(actmem.jax.asarray(np.zeros(3 << 20, np.uint8)))
        except actmem.Error as error:
            words = [error.errno, str(error)]
        held = actmem.jax.stats()["arrays"]["bytes"] >> 20
        del kept
        actmem.jax.asarray(np.zeros(3 << 20, np.uint8))
        print(json.dumps([words, held, actmem.counters()["region_bytes"] >> 20]))
    """, ACTMEM_HEAP_LIMIT="16M", ACTMEM_HEAP_GROW="4M")
    assert words[0] == errno.ENOMEM
    assert "the heap's limit is 16.0 MiB" in words[1]
    assert "heap_limit= (ACTMEM_HEAP_LIMIT)" in words[1]
    assert 9 <= held <= 16 and after <= 16


def test_the_budget_is_that_of_activations():
    """Arrays beside a store that may have 4 MiB."""
    with tempfile.TemporaryDirectory(dir=os.path.join(TREE, "build")) as folder:
        arrays_bytes, resident, total = process("""
            table = actmem.jax.asarray(np.ones((8 << 20,), np.float32))
            f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)),
                                      offload_argnums=0)
            step = jax.jit(jax.grad(lambda x, t: jnp.sum(f(f(f(f(x))))) + t[0]))
            jax.block_until_ready(step(jnp.ones(1 << 19), table))
            stats = actmem.jax.stats()
            print(json.dumps([stats["arrays"]["bytes"] >> 20,
                              stats["store"]["memory_bytes_peak"] >> 20,
                              float(table.sum())]))
        """, ACTMEM_BUDGET="4M", ACTMEM_SPILL=folder)
    assert arrays_bytes == 32 and resident <= 4 and total == 8 << 20


def test_a_forked_child_is_told():
    words, values = process("""
        array = actmem.jax.empty((4, 4))
        array[...] = 7
        taken = actmem.jax.asarray(array)
        more = [actmem.jax.empty(1000) for _ in range(10)]
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                actmem.jax.empty(3)
            except actmem.Error as error:
                words = [error.errno, str(error)]
            more.clear()        # the parent's stay
            os.write(write, json.dumps(words).encode())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert actmem.jax.stats()["arrays"]["blocks"] == 11
        print(json.dumps([json.loads(os.read(read, 4096)), float(taken.sum())]))
    """)
    assert words[0] == errno.EOWNERDEAD and "fork" in words[1]
    assert values == 112


def test_the_end_of_a_process_with_arrays_alive():
    for end in ("", "del array",
                "array = jax.jit(lambda x: x + 1)(taken)"):
        assert process(f"""
            array = actmem.jax.empty((256, 256))
            array[...] = 1
            taken = actmem.jax.asarray(array)
            print(json.dumps(float(taken.sum())))
            {end}
        """) == 65536


def test_memory_can_be_closed_when_no_array_is_left():
    words, again = process("""
        actmem.open(allow="any", heap_grow=4 << 20)
        array = actmem.jax.empty(3)
        memory = actmem.default()
        try:
            memory.close()
        except actmem.Error as error:
            words = [error.errno, str(error)]
        del array
        actmem.jax.reset()
        memory.close()
        actmem.open(allow="any", heap_grow=6 << 20)
        array = actmem.jax.empty(3)
        print(json.dumps([words, actmem.counters()["region_bytes"] >> 20]))
    """)
    assert words[0] == errno.EBUSY and again == 6
    assert "actmem.jax.reset() closes the unused regions" in words[1]


def test_no_pages_is_told():
    words = process("actmem.jax.empty(3)", ACTMEM_ALLOW="", ACTMEM_PAGES="1G",
                    ACTMEM_BACKEND="memfd")
    assert "actmem.Error" in words and "with allow=\"2m\" (ACTMEM_ALLOW)" in words


def test_memory_for_a_gpu(pytestconfig):
    """All but what JAX does with it, which takes a GPU: CUDA's part is played
    by the stand-in, and a CPU device is said to be one of CUDA."""
    standin = pytestconfig.getoption("standin")
    assert os.path.exists(os.path.join(standin, "libcuda.so.1"))
    script = """
        import ctypes
        from actmem.jax import _arrays
        _arrays._is_cuda = lambda device: True
        array = actmem.jax.empty((256, 1024))
        array[...] = 1
        cuda = ctypes.CDLL("libcuda.so.1")
        counts = (ctypes.c_uint64 * 16)()
        cuda.standin_counts(counts)
        words = []
        try:
            actmem.jax.asarray(array, copy=False)
        except (NotImplementedError, RuntimeError) as error:
            words.append(str(error))
        try:
            actmem.jax.asarray(array, device=jax.sharding.NamedSharding(
                jax.make_mesh((1,), ("x",)), jax.sharding.PartitionSpec()))
        except ValueError as error:
            words.append(str(error))
        exported = _arrays._Exported(array, 3, 0)
        capsule = exported.__dlpack__()
        views = actmem.jax.stats()["arrays"]["views"]
        exported.close()
        left = actmem.jax.stats()["arrays"]
        del array, exported, capsule
        actmem.jax.reset()
        after = (ctypes.c_uint64 * 16)()
        cuda.standin_counts(after)
        print(json.dumps([words, counts[2], views, left, after[2]]))
    """
    words, registered, views, left, after = process(
        script, LD_LIBRARY_PATH=standin, ACTMEM_HEAP_GROW="4M")
    assert registered == 4 << 20 and after == 0 and left["cuda"]
    assert views == 1 and left["views"] == 0 and left["blocks"] == 1
    if jax.__version_info__ < (0, 11):
        assert "does not accept host memory as pinned_host" in words[0]
    else:
        # It gets as far as to ask for a platform that is not there.
        assert "does not accept host memory" not in words[0]
        assert "unknown backend" in words[0].lower() and "cuda" in words[0]
    assert 'with_memory_kind("pinned_host")' in words[1]
    told = process("""
        from actmem.jax import _arrays
        _arrays._is_cuda = lambda device: True
        actmem.jax.empty(3)
    """, LD_LIBRARY_PATH="/nowhere")
    assert "actmem.Error" in told and "libcuda.so.1" in told


def test_memory_for_one_of_several_kinds_of_devices(pytestconfig):
    """JAX_PLATFORMS=cpu,cuda: what is made for the CPU is not taken for the
    GPU as if CUDA had it, and what is made for the GPU is of that one."""
    standin = pytestconfig.getoption("standin")
    script = """
        import types
        from actmem.jax import _arrays
        gpu = types.SimpleNamespace(platform="cuda", local_hardware_id=1)
        _arrays._is_cuda = lambda device: device is gpu or device.id == 1
        array = actmem.jax.empty((256, 1024))
        words = []
        for copy in False, None:
            try:
                actmem.jax.asarray(array, device=jax.devices()[1], copy=copy)
            except (actmem.Error, ValueError) as error:
                words.append(str(error))
        is_registered = [actmem.jax.stats()["arrays"]["cuda"]]
        del array
        # Memory is made anew where there is no array.
        _arrays._default_device = lambda: gpu
        try:
            array = actmem.jax.empty((256, 1024))
            is_registered.append(actmem.jax.stats()["arrays"]["cuda"])
        except actmem.Error as error:
            words.append(str(error))
        print(json.dumps([words, is_registered]))
    """
    for devices in 1, 2:
        words, is_registered = process(
            script, LD_LIBRARY_PATH=standin, STANDIN_CUDA_DEVICES=str(devices))
        assert "not registered with CUDA, because JAX's default device was a CPU" in words[0]
        assert "not registered with CUDA, but device" in words[1]
        if devices == 1:
            assert "there is no device 1" in words[2] and is_registered == [False]
        else:
            assert len(words) == 2 and is_registered == [False, True]


def test_the_example_runs(tmp_path):
    """examples/arrays.py does what it says."""
    result = subprocess.run(
        [sys.executable, os.path.join(TREE, "examples", "arrays.py"), "--steps", "6"],
        env={**os.environ, "PYTHONPATH": MODULE}, cwd=tmp_path, capture_output=True, text=True,
        check=False)
    assert result.returncode == 0, result.stderr
    assert "the same losses, bit by bit" in result.stdout
    assert "0 bytes copied" in result.stdout
