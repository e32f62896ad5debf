# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Schedules are read from their text, targets are found by name, and results are cached. No compiler
runs here: tests/aot runs XLA's."""
import dataclasses
import os
import signal
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import pytest

from actmem.plan import _schedule, compiled, machine, targets

# The first value leaves at once, the second one only before the backward pass, the third one during
# it. A loop sends three parts of a stack.
TEXT = """HloModule jit_f, is_scheduled=true

%body (arg: (s32[], f32[3,256])) -> (s32[], f32[3,256]) {
  %arg = (s32[], f32[3,256]{1,0:S(5)}) parameter(0)
  %stack = f32[3,256]{1,0:T(8,128)(2,1)S(5)} get-tuple-element(%arg), index=1
  %i = s32[] get-tuple-element(%arg), index=0
  %x = f32[1,256]{1,0} fusion(%i), kind=kLoop, calls=%f, metadata={op_name="jvp()/dot_general"}
  %put = u32[4]{0} custom-call(%x), custom_call_target="actmem_put"
  %out-start = ((f32[3,256]{1,0:S(5)}, f32[1,256]{1,0}, s32[]), f32[3,256]{1,0:S(5)}, u32[]) fusion-start(%stack, %x), kind=kLoop
  %y = f32[1,256]{1,0} fusion(%x), kind=kLoop, calls=%f, metadata={op_name="jvp()/dot_general"}
  %out-done = f32[3,256]{1,0:S(5)} fusion-done(%out-start)
  ROOT %t = (s32[], f32[3,256]{1,0:S(5)}) tuple(%stack, %out-done)
}

ENTRY %main (p: f32[256]) -> f32[256] {
  %p = f32[256]{0} parameter(0)
  %buffer = f32[3,256]{1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"
  %loop = (s32[], f32[3,256]{1,0:S(5)}) while(%p), condition=%c, body=%body, metadata={op_name="jvp()/while"}TRIPS
  %a = bf16[256]{0} fusion(%p), kind=kCustom, metadata={op_name="jit(f)/jvp()/dot_general"}
  %a1 = bf16[2,128]{1,0} bitcast(%a)
  %s0 = (bf16[2,128]{1,0:S(5)}, bf16[2,128]{1,0}, u32[]) copy-start(%a1)
  %b = bf16[256]{0} custom-call(%a), custom_call_target="__cublas$gemm", metadata={op_name="jvp()"}
  %d0 = bf16[2,128]{1,0:S(5)} copy-done(%s0)
  %c = bf16[256]{0} fusion(%b), kind=kCustom, metadata={op_name="jit(f)/jvp()/dot_general"}
  %c.remat2.1 = bf16[256]{0} fusion(%b), kind=kLoop, metadata={op_name="jit(f)/jvp()/add"}
  %c.rematerialized = bf16[256]{0} fusion(), kind=kLoop, metadata={op_name="jit(f)/jvp()/add"}
  %d = bf16[256]{0} fusion(%c), kind=kCustom, metadata={op_name="jit(f)/jvp()/dot_general"}
  %e = bf16[256]{0} add(%d, %d), metadata={op_name="jit(f)/transpose(jvp())/add"}
  %s1 = (bf16[256]{0:S(5)}, bf16[256]{0}, u32[]) copy-start(%b)
  %d1 = bf16[256]{0:S(5)} copy-done(%s1)
  %g = bf16[256]{0} fusion(%d), kind=kCustom, metadata={op_name="jit(f)/transpose(jvp())/dot_general"}
  %h = bf16[256]{0:S(5)} copy(%c)
  %s2 = (bf16[2,128]{1,0}, bf16[2,128]{1,0:S(5)}, u32[]) copy-start(%d0)
  %i = bf16[256]{0} fusion(%g), kind=kCustom, metadata={op_name="jit(f)/transpose(jvp())/dot_general"}
  %d2 = bf16[2,128]{1,0} copy-done(%s2)
  %s3 = (bf16[256]{0}, bf16[256]{0:S(5)}, u32[]) copy-start(%d1)
  %d3 = bf16[256]{0} copy-done(%s3)
  %take = bf16[256]{0} custom-call(%i), custom_call_target="actmem_take"
  %late = u32[4]{0} custom-call(%i), custom_call_target="actmem_put"
  ROOT %r = f32[256]{0} fusion(%d2, %h), kind=kLoop
}
"""


# The condition of the loop in TEXT.
CONDITION = """
%c (arg: (s32[], f32[3,256])) -> pred[] {
  %n = s32[] constant(3)
  %arg = (s32[], f32[3,256]{1,0:S(5)}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}
"""


# For TPUs, XLA's text has no number of iterations, but the loop's condition. If that is not the
# condition of a scan, the number of copies follows from the stack's size.
@pytest.mark.parametrize("trips, condition, puts", [
    (', backend_config={"known_trip_count":{"n":"3"}}', "", 3), ("", CONDITION, 3),
    ("", CONDITION.replace("LT", "GT"), 1), ("", "", 1)])
def test_a_schedule(trips, condition, puts):
    found = _schedule.read(condition + TEXT.replace("TRIPS", trips))
    assert found == _schedule.Schedule(
        rematerialised=1, copies_out=6, late_out=2, bytes_out=3 * 1024 + 3 * 512,
        late_bytes_out=2 * 512, exposed_bytes_out=2 * 512,
        # The last fusion reads a value of the host.
        copies_in=3, bytes_in=512 + 512 + 1024, exposed_bytes_in=512 + 1024,
        puts=puts + 1, late_puts=1, put_bytes=puts * 1024 + 512, takes=1)
    assert _schedule.read("HloModule nothing") == _schedule.Schedule()


# XLA for TPUs estimates cycles. Two copies of 1024 bytes share the link, and each iteration waits
# for both of them. The loop in front of the last copy takes time too.
TIMED = """
%body (arg: f32[3,256]) -> f32[3,256] {
  %stack = f32[3,256]{1,0:S(5)} get-tuple-element(%arg), index=1
  %x = f32[1,256]{1,0} fusion(%i), backend_config={"estimated_cycles":"60"}
  %x1 = f32[1,256]{1,0} fusion(%i), backend_config={"estimated_cycles":"40"}
  %out = ((f32[3,256]{1,0:S(5)}, f32[1,256]{1,0}), f32[3,256]{1,0:S(5)}, u32[]) dynamic-update-slice-start(%stack, %x)
  %y = f32[1,256]{1,0} fusion(%x), backend_config={"estimated_cycles":"300"}
  %other = (f32[256]{0}, f32[256]{0}, u32[]) copy-start(%y)
  %out1 = ((f32[3,256]{1,0:S(5)}, f32[1,256]{1,0}), f32[3,256]{1,0:S(5)}, u32[]) dynamic-update-slice-start(%stack, %x)
  %done = f32[3,256]{1,0:S(5)} dynamic-update-slice-done(%out)
  %z = f32[1,256]{1,0} fusion(%x), backend_config={"estimated_cycles":"50"}
  %other1 = f32[256]{0} copy-done(%other)
  %done1 = f32[3,256]{1,0:S(5)} dynamic-update-slice-done(%out1)
}

ENTRY %main (p: f32[256]) -> f32[256] {
  %h = f32[3,256]{1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"
  %in = (f32[256]{0}, f32[256]{0:S(5)}, u32[]) copy-start(%h)
  %loop = f32[3,256]{1,0:S(5)} while(%h), condition=%c, body=%body
  %in1 = f32[256]{0} copy-done(%in)
  %in2 = f32[256]{0} copy(%h)
}
"""


def test_the_wait_for_copies():
    found = _schedule.read(TIMED)
    # One byte out, and half a byte in, takes a cycle.
    body = (100 + 1024 - 400) + (1024 - 50)
    assert found.wait(1e9, 1e9, 0.5e9) == pytest.approx((3 * body + 2048 - 450 + 2048) / 1e9)
    assert found.wait(1e9, 1e12, 1e12) == pytest.approx(1024 / 1e12)
    assert not _schedule.read(TEXT.replace("TRIPS", "")).timed


def test_targets():
    for name in targets.gpus():
        found = targets.find(name)
        # A target has the memory of the machine that it stands for, and a bit for the driver.
        size = int(found.config.partition("device_memory_size: ")[2].split()[0])
        assert size == pytest.approx(machine.find(name).need("hbm_bytes"), rel=0.08)
        assert (found.devices, found.topology) == (1, "1x1x1")
    found = targets.find("h200x8")
    assert (found.machine, found.platform, found.devices) == ("h200", "cuda", 8)
    assert found.topology == "1x1x8"
    found = targets.find("v5p:2x2x4")
    assert (found.machine, found.platform, found.devices) == ("v5p", "tpu", 16)
    for name in ("h200x0", "h200x", "cray", "v5p", "v4:2x2x1", "v5p:2", "H200", ""):
        with pytest.raises(targets.TargetError, match="b300, h100, h200, .*h200x8.*v5p:2x2x1"):
            targets.find(name)


def lowered(target):
    shape = jax.ShapeDtypeStruct((8, 8), "float32")
    return compiled.lowered(lambda x: jnp.sum(x @ x), [shape], target)


def test_a_missing_compiler(monkeypatch):
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(targets.os.path, "isfile", lambda path: False)
    nvidia = "nvidia-cuda-nvcc nvidia-nvvm$"
    for name, command in (
            ("h200", "pip install --no-deps jax-cuda13-plugin==.* jax-cuda13-pjrt==.* " + nvidia),
            ("v5p:2x2x1", r"pip install 'jax\[tpu\]==")):
        target = targets.find(name)
        with pytest.raises(ImportError, match=command):
            compiled.compile_for(target, lowered(target))
    # XLA crashes without libdevice, which is in the wheels of CUDA or in its toolkit.
    spec = types.SimpleNamespace(submodule_search_locations=["/site/nvidia"])
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ImportError, match="pip install --no-deps " + nvidia):
        targets.check_compiler(targets.find("h200"))
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/opt/own --other=1")
    for folder in ("/site/nvidia/cu13", "/usr/local/cuda", "/opt/own"):
        monkeypatch.setattr(targets.os.path, "isfile", lambda path: path ==
                            f"{folder}/nvvm/libdevice/libdevice.10.bc")
        targets.check_compiler(targets.find("h200"))


@pytest.fixture(name="compiler")
def fixture_compiler(monkeypatch, tmp_path):
    """A compiler that makes one program of all. Yields the requests that it gets."""
    ran = []

    def run(command, env, **_):
        ran.append(env)
        with open(command[-1], "w", encoding="utf-8") as file:
            file.write('{"argument": 5, "output": 4, "temp": 3, "alias": 1, "host_temp": 7, '
                       '"schedule": {"put_bytes": 20}}')
        return types.SimpleNamespace(returncode=int(len(ran) > 6),
                                     stderr="a line\nfrom XLA\nI0000 a note\n\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled.subprocess, "run", run)
    monkeypatch.setattr(targets, "check_compiler", lambda target: None)
    return ran


def test_a_result_is_kept(compiler, tmp_path, monkeypatch):
    target = targets.find("h200")
    found = compiled.compile_for(target, lowered(target))
    assert found.peak == 11
    assert found.host_bytes == 27 and not found.exhausted
    assert compiled.compile_for(target, lowered(target)) == found and len(compiler) == 1
    assert compiler[0]["JAX_PLATFORMS"] == "cpu"
    file, = (tmp_path / "actmem" / "compiled").iterdir()
    # Another target, other flags and another program have other results.
    compiled.compile_for(targets.find("h100"), lowered(target))
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    compiled.compile_for(target, lowered(target))
    monkeypatch.delenv("XLA_FLAGS")
    shape = jax.ShapeDtypeStruct((8, 9), "float32")
    compiled.compile_for(target, compiled.lowered(lambda x: x.T @ x, [shape], target))
    compiled.compile_for(target, lowered(target), {"LIBTPU_INIT_ARGS": "--one=1"})
    assert len(compiler) == 5 and compiler[4]["LIBTPU_INIT_ARGS"] == "--one=1"
    file.write_text('{"argument": ')
    assert compiled.compile_for(target, lowered(target)) == found and len(compiler) == 6


def test_a_compiler_that_fails(compiler):
    target = targets.find("v5p:2x2x1")
    compiler += [None] * 6
    with pytest.raises(compiled.CompileError, match=r"v5p:2x2x1 failed \(exit status 1\): from XLA"):
        compiled.compile_for(target, lowered(target))


def test_a_number_of_devices(compiler):
    target = targets.find("h200x8")
    program = lowered(target)
    compiled.compile_for(target, program)       # the part of one device
    program = dataclasses.replace(program, exported=dataclasses.replace(
        program.exported, nr_devices=4))
    with pytest.raises(ValueError, match="is for 4 devices, but h200x8 has 8"):
        compiled.compile_for(target, program)
    assert len(compiler) == 1


def test_the_first_arguments_are_donated(compiler):
    """Values on the host need no device memory."""
    target = targets.find("h200")
    mesh = jax.make_mesh((1,), ("device",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:1])
    on_host = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(),
                                         memory_kind="pinned_host")
    shapes = [jax.ShapeDtypeStruct((2, 4), "float32", sharding=sharding)
              for sharding in (None, on_host, None, None)]

    def program(donated):
        return compiled.lowered(lambda *args: [x + 1 for x in args], shapes, target, donated)
    assert [program(size).donated for size in (0, 31, 64, 95, 96)] == [
        (), (), (0, 2), (0, 2), (0, 2, 3)]
    compiled.compile_for(target, program(0))
    compiled.compile_for(target, program(32))
    assert len(compiler) == 2               # their results are kept apart


@pytest.mark.parametrize("parent", ("killed", "gone"))
def test_a_compiler_ends_with_the_process_that_started_it(parent, tmp_path):
    """Even by SIGKILL. Otherwise the compiler would keep libtpu locked."""
    request = tmp_path / "request"
    os.mkfifo(request)          # the compiler waits for the request
    start = ("import os, subprocess, sys; subprocess.run([sys.executable, '-m', "
             "'actmem.plan._compiling', sys.argv[2] or str(os.getpid()), sys.argv[1], ''])")
    with subprocess.Popen([sys.executable, "-c", start, request, "1" if parent == "gone" else ""],
                          env=compiled._environment(targets.find("h200")), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as started:
        if parent == "killed":
            writer = os.open(request, os.O_WRONLY)      # returns when the compiler opens the file
            os.kill(started.pid, signal.SIGKILL)
        # The compiler has the pipe open until it ends.
        told = started.communicate(timeout=60)[0]
    assert (b"has ended" in told) == (parent == "gone"), told
    if parent == "killed":
        os.close(writer)
