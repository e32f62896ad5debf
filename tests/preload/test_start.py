# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem run in front of programs without CUDA: what it sets, and that they notice nothing."""
import contextlib
import glob
import os
import shutil
import subprocess
import sys
import tempfile

from harness import ACTMEM, BUILD, actmem, clean_environment, expect
from tap import Skip, case, main

PRELOAD = os.path.join(BUILD, "lib", "libactmem_preload.so")
TESTS = os.path.join(BUILD, "tests", "preload")
PLAIN = os.path.join(TESTS, "programs", "plain")
SECURE = os.path.join(TESTS, "programs", "secure")
STANDIN = os.path.join(BUILD, "tests", "cuda", "standin", "libcuda.so.1")
STATIC = os.path.join(BUILD, "tests", "malloc", "static")
MUSL = os.path.join(TESTS, "programs", "musl")
SHOW = ("sh", "-c", 'echo "$ACTMEM_CUDA $LD_PRELOAD"')


def run(*arguments, **variables):
    return actmem("run", "--allow", "any", *arguments, environment=clean_environment(**variables))


def start(*program, **variables):
    return subprocess.run(program, env=clean_environment(**variables), capture_output=True,
                          text=True, check=False, timeout=60)


@case
def the_preload_is_in_front_unless_it_is_not_wanted():
    expect(run("--", *SHOW), 0, f"1 {PRELOAD}\n")
    expect(run("--", *SHOW, ACTMEM_CUDA="1"), 0, f"1 {PRELOAD}\n")
    expect(run("--no-cuda", "--", *SHOW), 0, "0 \n")
    expect(run("-C", "--", *SHOW, ACTMEM_CUDA="1"), 0, "0 \n")
    expect(run("--", *SHOW, ACTMEM_CUDA="0"), 0, "0 \n")
    expect(run("--no-cuda", "--malloc", "--", *SHOW), 0, f"0 {PRELOAD}\n")
    # Inside of another one.
    expect(run("--", ACTMEM, "run", "--allow", "any", "--", *SHOW), 0, f"1 {PRELOAD}\n")
    expect(run("--", ACTMEM, "run", "--allow", "any", "-C", "--", *SHOW), 0, f"0 {PRELOAD}\n")


# Arguments: the length of a mapping that the kernel refuses, and the program.
REFUSE_MAPPING = """
import ctypes, os, struct, sys
number = {"x86_64": 9, "aarch64": 222}[os.uname().machine]
code = ((0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 24), (0x15, 0, 1, int(sys.argv[1])),
        (0x06, 0, 0, 0x50000 | 12), (0x06, 0, 0, 0x7fff0000))
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, program, 0, 0)
os.environ["LD_PRELOAD"] = sys.argv[2]
os.execvp(sys.argv[3], sys.argv[3:])
"""


@case
def variables_that_cannot_be_kept_are_told():
    """The copy of them is a mapping, whose length no other mapping has."""
    variables = {"ACTMEM_CUDA": "1", "ACTMEM_PADDING": "x" * 5000}
    kept = [f"{name}={value}" for name, value in clean_environment(**variables).items()
            if name.startswith("ACTMEM_")]
    length = 8 * (len(kept) + 1) + sum(len(each) + 1 for each in kept)
    for refused, told in (length, True), (length + 1, False):
        result = start(sys.executable, "-c", REFUSE_MAPPING, str(refused), PRELOAD, "true",
                       **variables)
        expected = ("actmem: no memory for a copy of the variables ACTMEM_*: if this program "
                    "clears its environment before it first uses CUDA, its host memory for CUDA "
                    "does not come from regions.\n") if told else ""
        assert (result.returncode, result.stderr) == (0, expected), (refused, result)


@case
def it_exports_what_it_is_in_front_of_and_no_more():
    result = subprocess.run(["nm", "-D", "--defined-only", PRELOAD], capture_output=True,
                            text=True, check=True)
    exported = {line.split()[2] for line in result.stdout.splitlines()}
    blocks = {"aligned_alloc", "free", "free_aligned_sized", "free_sized", "malloc_trim",
              "malloc_usable_size", "memalign", "posix_memalign", "pvalloc",
              "realloc", "reallocarray", "valloc"}
    cuda = {f"{name}@ACTMEM_CUDA" for name in (
        "cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemFreeHost", "cuMemHostRegister_v2",
        "cuMemHostUnregister", "cuMemHostGetDevicePointer_v2", "cuMemHostGetFlags",
        "cuGetProcAddress", "cuGetProcAddress_v2")}
    lookups = {"dlsym", "dlvsym", "ACTMEM_CUDA"}
    expected = blocks | cuda | lookups
    assert exported == expected, exported ^ expected


@case
def other_preloads_stay_behind_it():
    other = os.path.join(TESTS, "other_preload.so")
    expect(run("--", *SHOW, LD_PRELOAD=other), 0, f"1 {PRELOAD}:{other}\n")
    expect(run("--", *SHOW, LD_PRELOAD=f"{PRELOAD}:{other}"), 0, f"1 {PRELOAD}:{other}\n")


@case
def wrong_values_are_refused():
    for name in ("CUDA", "MALLOC", "OFFLOAD", "QUIET", "STRICT"):
        expect(run("--", "true", **{f"ACTMEM_{name}": "yes"}), 2, "",
               [f"ACTMEM_{name} is 'yes'", "1 or 0"])
    result = start("echo", "runs", LD_PRELOAD=PRELOAD, ACTMEM_CUDA="yes")
    assert result.stdout == "runs\n" and result.returncode == 0, result
    assert "ACTMEM_CUDA is 'yes'" in result.stderr, result


@contextlib.contextmanager
def pytorch(*words):
    """A folder with a python3 in its bin, which has a PyTorch whose header says that."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "bin"))
        os.symlink("/bin/sh", os.path.join(folder, "bin", "program"))
        headers = os.path.join(folder, "lib", "python3.12", "site-packages", "torch", "include",
                               "c10", "core")
        os.makedirs(headers)
        with open(os.path.join(headers, "AllocatorConfig.h"), "w", encoding="ascii") as file:
            file.writelines(f"  static size_t {word}();\n" for word in words)
        yield os.path.join(folder, "bin", "program"), folder


OPTIONS = "pinned_max_round_threshold_mb:1024,pinned_max_cached_size_mb:1024"


@case
def pytorch_is_told_not_to_round_if_it_knows_how():
    show = ("-c", 'echo "$PYTORCH_ALLOC_CONF/$PYTORCH_CUDA_ALLOC_CONF"')
    knows = ("pinned_max_round_threshold", "pinned_max_cached_size")
    with pytorch(*knows) as (program, folder):
        told = [f"PYTORCH_ALLOC_CONF={OPTIONS}", "1024 MiB"]
        expect(run("--", program, *show), 0, f"{OPTIONS}/\n", told)
        # By its name alone, by a script's environment, and by a folder of packages.
        path = f"{folder}/bin:/usr/bin:/bin"
        expect(run("--", "program", *show, PATH=path), 0, f"{OPTIONS}/\n", told)
        expect(run("--", "sh", *show, VIRTUAL_ENV=folder), 0, f"{OPTIONS}/\n", told)
        packages = f"/nowhere:{folder}/lib/python3.12/site-packages"
        expect(run("--", "sh", *show, PYTHONPATH=packages), 0, f"{OPTIONS}/\n", told)
        # With others of the user's, by the name that he uses.
        expect(run("--", program, *show, PYTORCH_CUDA_ALLOC_CONF="backend:native"), 0,
               f"/backend:native,{OPTIONS}\n", f"PYTORCH_CUDA_ALLOC_CONF=backend:native,{OPTIONS}")
        expect(run("--", program, *show, PYTORCH_CUDA_ALLOC_CONF="a:b", PYTORCH_ALLOC_CONF="c:d"),
               0, f"c:d,{OPTIONS}/a:b\n", f"PYTORCH_ALLOC_CONF=c:d,{OPTIONS}")
        # He has said something of it himself; and CUDA is left alone.
        for own in ("pinned_max_round_threshold_mb:64", "pinned_max_cached_size_mb:64"):
            expect(run("--", program, *show, PYTORCH_ALLOC_CONF=own), 0, f"{own}/\n")
            expect(run("--", program, *show, PYTORCH_CUDA_ALLOC_CONF=own), 0, f"/{own}\n")
        expect(run("--no-cuda", "--", program, *show), 0, "/\n")
        # One that is found besides does not know it.
        with pytorch("pinned_num_register_threads") as (_, older):
            expect(run("--", program, *show, VIRTUAL_ENV=older), 0, "/\n")
    with pytorch(knows[0]) as (program, _):
        expect(run("--", program, *show), 0, "/\n")
    with pytorch() as (program, _):
        expect(run("--", program, *show), 0, "/\n")
    expect(run("--", "sh", *show), 0, "/\n")


@case
def a_program_without_cuda_finds_what_it_found():
    expected = start(PLAIN)
    assert expected.returncode == 0 and "undefined symbol: cuMemHostAlloc" in expected.stdout
    for variables in ({"ACTMEM_CUDA": "1"}, {"ACTMEM_CUDA": "0"}, {},
                      {"ACTMEM_CUDA": "1", "ACTMEM_MALLOC": "1"}):
        result = start(PLAIN, LD_PRELOAD=PRELOAD, **variables)
        assert result.stdout == expected.stdout, (variables, result.stdout)
        assert result.returncode == 0 and not result.stderr, result
    assert run("--", PLAIN).stdout == expected.stdout


@case
def a_missing_preload_is_told_and_can_be_done_without():
    with tempfile.TemporaryDirectory() as folder:
        for kind, file in (("bin", "actmem"), ("lib", "libactmem.so.0")):
            os.mkdir(os.path.join(folder, kind))
            shutil.copy(os.path.join(BUILD, kind, file), os.path.join(folder, kind))
        program = os.path.join(folder, "bin", "actmem")
        options = ("run", "--allow", "any")
        expect(actmem(*options, "--", "true", program=program), 1, "",
               ["libactmem_preload.so", "No such file", "--no-cuda"])
        expect(actmem(*options, "--no-cuda", "--", "true", program=program), 0, "")
        expect(actmem(*options, "--no-cuda", "--malloc", "--", "true", program=program), 1, "",
               "libactmem_preload.so")
        spaced = os.path.join(folder, "a b")
        shutil.copytree(os.path.join(folder, "bin"), os.path.join(spaced, "bin"))
        shutil.copytree(os.path.join(folder, "lib"), os.path.join(spaced, "lib"))
        shutil.copy(PRELOAD, os.path.join(spaced, "lib"))
        program = os.path.join(spaced, "bin", "actmem")
        expect(actmem(*options, "--", "true", program=program), 1, "", "space or a colon")
    # One that is gone when the program starts is the loader's to tell.
    result = start("echo", "runs", LD_PRELOAD="/nowhere/libactmem_preload.so", ACTMEM_CUDA="1")
    assert result.stdout == "runs\n" and result.returncode == 0, result
    assert "cannot be preloaded" in result.stderr, result


@case
def a_static_program_runs():
    for options in ((), ("--malloc",)):
        expect(run(*options, "--", STATIC), 0, "static\n")


@case
def a_program_of_another_c_library_runs():
    expect(start(MUSL), 0, "musl\n")
    expect(run("--", MUSL), 0, "musl\n")
    expect(run("--malloc", "--", MUSL), 0, "musl\n", ["malloc mode needs glibc", "Malloc mode is off"])


@case
def programs_with_sanitizers_begin():
    # ThreadSanitizer wants addresses that are not randomized too far.
    fixed = ("setarch", "-R") if not start("setarch", "-R", "true").returncode else ()
    for kind in ("thread", "address"):
        program = os.path.join(TESTS, "programs", f"sanitized-{kind}")
        for options in ((), ("--malloc",)):
            expect(run(*options, "--", *fixed, program), 0, "sanitized\n")


@contextlib.contextmanager
def public_programs(mode):
    """A folder that every user can read: a program of another user's, and a libcuda.so.1."""
    if os.getuid():
        raise Skip("only root can make a file another user's")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        for path in (SECURE, STANDIN, PRELOAD):
            shutil.copy(path, folder)
        program = os.path.join(folder, "secure")
        os.chown(program, 65534, 65534)
        os.chmod(program, mode)
        yield folder, (program, os.path.join(folder, "libcuda.so.1"))


@case
def a_setuid_program_has_no_preload():
    with public_programs(0o755) as (_, program):
        expect(run("--", *program), 0, "plain libactmem_preload.so\n")
    with public_programs(0o4755) as (_, program):
        expect(run("--", *program), 0, "secure libcuda.so.1\n")


@case
def a_setuid_program_that_has_it_even_so_has_the_drivers_own():
    # The loader takes one by its name, if it is set-user-ID itself and in a trusted folder.
    trusted = next(iter(glob.glob("/lib/*-linux-gnu/libpcprofile.so")), None)
    assert trusted, "the C library's own preload is in none of the usual places"
    for mode, words in ((0o755, "plain libpcprofile.so\n"), (0o4755, "secure libcuda.so.1\n")):
        with public_programs(mode) as (folder, program):
            ours = os.path.join(folder, "libactmem_preload.so")
            os.chmod(ours, 0o4755)
            result = start("unshare", "--mount", "sh", "-c",
                           f'mount --bind {ours} {trusted} && LD_PRELOAD=libpcprofile.so exec "$@"',
                           "sh", *program, ACTMEM_CUDA="1", ACTMEM_MALLOC="x")
        assert result.stdout == words, result
        assert ("ACTMEM_MALLOC is 'x'" in result.stderr) == (mode == 0o755), result


@case
def loaded_late_it_does_nothing():
    load = f"""
import ctypes, _ctypes
library = ctypes.CDLL({PRELOAD!r})
for name in ("cuMemHostAlloc", "no_such_function"):
    try:
        ctypes.CDLL(None)[name]
    except AttributeError as error:
        print(error)
_ctypes.dlclose(library._handle)
"""
    result = start(sys.executable, "-c", load, ACTMEM_CUDA="1")
    assert not result.stderr and result.returncode == 0, result
    assert result.stdout.count("undefined symbol") == 2, result


main()
