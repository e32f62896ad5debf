# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Ask CUDA's driver what its manual leaves open and actmem relies on: what it says about
memory that it registered or allocated, what it refuses, which copies may cross ranges, and
what ends a capture. Prints each answer as a fact.

tests/cuda/driver_api.c has what the library relies on. All tests without a card take the
stand-in for the driver; --standin shows where it differs.
"""
import argparse
import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading
import time

from telling import fact, figure

from driver import KINDS, PORTABLE, Cuda, Memory, libc

BYTES = 64 << 20         # a small piece, as regions are registered
REGISTER_READ_ONLY = 8
POINTER_ATTRIBUTES = {"CONTEXT": 1, "MEMORY_TYPE": 2, "DEVICE_POINTER": 3, "HOST_POINTER": 4,
                      "BUFFER_ID": 7, "RANGE_START_ADDR": 11, "RANGE_SIZE": 12, "MAPPED": 13}
CAPTURE_MODES = {"global": 0, "thread local": 1}
cuda = None
answers = {}
pointer = ctypes.c_void_p


def tell(question, answer):
    answers[question] = answer
    return answer == "CUDA_SUCCESS"


def ask(question, name, *arguments):
    """Call the driver; the answer is the name of the result."""
    return tell(question, cuda.result(name, *arguments))


def register(question, address, size=BYTES, flags=PORTABLE, keep=False):
    """Ask whether memory can be registered, and unregister it unless it is to be kept."""
    done = ask(f"cuMemHostRegister(0x{flags:x}) of {question}", "cuMemHostRegister_v2",
               pointer(address), ctypes.c_size_t(size), flags)
    if done and not keep:
        ask(f"cuMemHostUnregister of {question}", "cuMemHostUnregister", pointer(address))
    return done


def ask_flags_of(what, address):
    value = ctypes.c_uint(0xdead)
    result = cuda.result("cuMemHostGetFlags", ctypes.byref(value), pointer(address))
    tell(f"cuMemHostGetFlags of {what}", f"0x{value.value:x}" if result == "CUDA_SUCCESS"
         else result)


def ask_pointer(what, address):
    for name, number in POINTER_ATTRIBUTES.items():
        value = ctypes.c_uint64()
        result = cuda.result("cuPointerGetAttribute", ctypes.byref(value), number,
                             ctypes.c_uint64(address))
        if result == "CUDA_SUCCESS":
            near = abs(value.value - address) <= BYTES
            result = f"the address {value.value - address:+d}" if near else f"0x{value.value:x}"
        tell(f"cuPointerGetAttribute({name}) of {what}", result)


def flags():
    """What are the flags and attributes of memory that was allocated, or registered?"""
    for given in (0, 1, 4):             # none, PORTABLE, WRITECOMBINED
        allocated = cuda.allocate_host(BYTES, given).value
        ask_flags_of(f"cuMemHostAlloc(0x{given:x})", allocated)
        if not given:
            ask_pointer("cuMemHostAlloc(0x0)", allocated)
        cuda.call("cuMemFreeHost", pointer(allocated))
    memory = Memory("memfd 4K", BYTES)
    ask_pointer("memory that is not registered", memory.address)
    for given in (0, 1, 2, 3):          # none, PORTABLE, DEVICEMAP, both
        cuda.call("cuMemHostRegister_v2", pointer(memory.address), ctypes.c_size_t(BYTES), given)
        ask_flags_of(f"memory registered with 0x{given:x}", memory.address)
        if given == PORTABLE:
            ask_pointer("registered memory", memory.address)
            ask_flags_of("the middle of registered memory", memory.address + BYTES // 2)
            ask_pointer("the middle of registered memory", memory.address + BYTES // 2)
        cuda.call("cuMemHostUnregister", pointer(memory.address))
    ask_flags_of("memory that was registered", memory.address)
    ask_pointer("memory that was registered", memory.address)


def registering():
    """Which memory and which ranges can be registered, and how fast?"""
    for kind in KINDS:
        try:
            memory = Memory(kind, BYTES)
        except OSError as error:
            tell(f"a mapping of {kind}", error.strerror)
            continue
        register(f"{kind}, not touched", memory.address)
        register(f"{kind}, touched", memory.touch().address)
        began = time.perf_counter()
        cuda.result("cuMemHostRegister_v2", pointer(memory.address), ctypes.c_size_t(BYTES), 0)
        took = time.perf_counter() - began
        if cuda.result("cuMemHostUnregister", pointer(memory.address)) == "CUDA_SUCCESS":
            figure(f"register, {kind}", BYTES / took / 1e9)
        libc.mprotect(memory.address, BYTES, mmap.PROT_READ)
        for given in (PORTABLE, PORTABLE | REGISTER_READ_ONLY):
            register(f"{kind}, read-only", memory.address, flags=given)
        memory.unmap()
    address, half = Memory("memfd 4K", BYTES).address, BYTES // 2
    register("0 bytes", address, 0)
    register("an odd address", address + 4097, half)
    register("an odd length", address, half + 1)
    if register("the first half", address, half, keep=True):
        register("the same again", address, half)
        register("what overlaps it", address + half // 2, half)
        register("a part of it", address + half // 4, half // 4)
        register("what follows it", address + half, half)
        cuda.call("cuMemHostUnregister", pointer(address))


def freeing():
    """What does the driver refuse to free or to unregister?"""
    own = ctypes.create_string_buffer(BYTES)
    ask("cuMemFreeHost of NULL", "cuMemFreeHost", None)
    ask("cuMemFreeHost of malloc()'s", "cuMemFreeHost", own)
    ask("cuMemHostUnregister of what was never registered", "cuMemHostUnregister", own)
    address = Memory("memfd 4K", BYTES).address
    if register("memory to unregister", address, keep=True):
        for name, what, where in (
                ("cuMemFreeHost", "of registered memory", address),
                ("cuMemHostUnregister", "of the middle", address + BYTES // 2),
                ("cuMemHostUnregister", "after these", address),
                ("cuMemHostUnregister", "a second time", address)):
            ask(f"{name} {what}", name, pointer(where))
    address = cuda.allocate_host(BYTES).value
    ask("cuMemHostUnregister of cuMemHostAlloc's", "cuMemHostUnregister", pointer(address))
    ask("cuMemFreeHost of the middle", "cuMemFreeHost", pointer(address + BYTES // 2))
    ask("cuMemHostRegister of cuMemHostAlloc's", "cuMemHostRegister_v2", pointer(address),
        ctypes.c_size_t(BYTES), 0)
    ask("cuMemFreeHost after these", "cuMemFreeHost", pointer(address))
    ask("cuMemFreeHost after that", "cuMemFreeHost", pointer(address))
    ask("cuMemHostAlloc of 0 bytes", "cuMemHostAlloc", ctypes.byref(pointer(None)),
        ctypes.c_size_t(0), 0)


def ranges():
    """Do copies reach memory that is registered in part, or in two ranges?"""
    address, half = Memory("memfd 4K", BYTES).touch().address, BYTES // 2
    device, stream, value = cuda.allocate(BYTES), cuda.stream(), ctypes.c_uint64()

    def copy(what, where, size):
        size = ctypes.c_size_t(size)
        ask(f"cuMemcpyHtoDAsync of {what}", "cuMemcpyHtoDAsync_v2", device, pointer(where), size,
            stream)
        ask(f"cuMemcpyDtoHAsync to {what}", "cuMemcpyDtoHAsync_v2", pointer(where), device, size,
            stream)
        ask(f"cuStreamSynchronize after copies of {what}", "cuStreamSynchronize", stream)
    register("the first half", address, half, keep=True)
    ask("cuMemHostGetDevicePointer of memory registered without DEVICEMAP",
        "cuMemHostGetDevicePointer_v2", ctypes.byref(value), pointer(address), 0)
    copy("registered memory", address + 1, half - 1)
    copy("what is registered in part", address, BYTES)
    if register("the second half", address + half, half, keep=True):
        copy("two ranges that follow each other", address, BYTES)


def capture():
    """Which calls of another thread end a capture?"""
    address, allocated = Memory("memfd 4K", BYTES).address, ctypes.c_void_p()
    stream, size = cuda.stream(), ctypes.c_size_t(BYTES)
    allocate = ("cuMemHostAlloc", ctypes.byref(allocated), size, PORTABLE)
    free = ("cuMemFreeHost", allocated)
    enter = ("cuMemHostRegister_v2", pointer(address), size, PORTABLE)
    leave = ("cuMemHostUnregister", pointer(address))

    def act(deed, result):
        cuda.call("cuCtxSetCurrent", cuda.context)
        result.append(cuda.result(*deed))
    # What comes before, meanwhile, and afterwards.
    for before, deed, after in ((None, allocate, free), (allocate, free, None),
                                (None, enter, leave), (enter, leave, None),
                                (None, ("cuCtxSynchronize",), None)):
        for mode, number in CAPTURE_MODES.items():
            if before:
                cuda.call(*before)
            cuda.call("cuStreamBeginCapture_v2", stream, number)
            result, graph = [], ctypes.c_void_p()
            thread = threading.Thread(target=act, args=(deed, result))
            thread.start()
            thread.join()
            ended = cuda.result("cuStreamEndCapture", stream, ctypes.byref(graph))
            undo = after if result[0] == "CUDA_SUCCESS" else before and deed
            if undo:
                cuda.call(*undo)
            tell(f"{deed[0]} by another thread during a capture ({mode})",
                 f"{result[0]}, and the capture ends with {ended}")


def unmapping():
    """May memory be unmapped while it is registered? Then the driver may be in disorder."""
    memory = Memory("memfd 4K", BYTES)
    register("memory to unmap", memory.address, keep=True)
    memory.unmap()
    ask("cuMemHostUnregister after munmap", "cuMemHostUnregister", pointer(memory.address))


GROUPS = {each.__name__: each for each in (flags, registering, freeing, ranges, capture,
                                           unmapping)}


def answers_of_standin(group, folder):
    printed = subprocess.run([sys.executable, __file__, group], stdout=subprocess.PIPE, text=True,
                             check=False, env={**os.environ, "LD_LIBRARY_PATH": folder}).stdout
    return {each["fact"]: each["answer"] for each in map(json.loads, printed.splitlines())
            if "fact" in each}


def main():
    global cuda
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--standin", metavar="FOLDER", help="show where that libcuda.so.1 differs")
    options = parser.parse_args()
    peers = answers_of_standin(options.group, options.standin) if options.standin else {}
    cuda, status = Cuda(), 0
    try:
        GROUPS[options.group]()
    except OSError as error:
        tell(f"the rest of {options.group}", str(error))
        status = 1
    for question, answer in answers.items():
        fact(question, answer)
        if peers.get(question, answer) != answer and not answer.startswith("0x"):
            fact(f"stand-in: {question}", peers[question])      # addresses always differ
    return status


if __name__ == "__main__":
    sys.exit(main())
