# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Programs that were built with other headers run with the library as it is.

Every struct with a size may grow at its end. Of the headers there are two more sets
here: one in which each of these structs is shorter, and one in which each has a field
more. A program is compiled with each, and run with the shared library."""
import glob
import itertools
import os
import re
import subprocess
import tempfile

from harness import BUILD, clean_environment
from tap import case, main

ROOT = os.path.dirname(BUILD)
HEADERS = {os.path.basename(path): open(path, encoding="utf-8").read()
           for path in glob.glob(os.path.join(ROOT, "lib", "include", "*.h"))}
PROGRAM = os.path.join(ROOT, "tests", "tools", "abi.c")
TAP = os.path.join(ROOT, "tests", "common")
# A caller's own size is an argument of the calls that fill these.
BY_ARGUMENT = ("actmem_completion",)
STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\t[a-z].*;.*\n", re.MULTILINE)


def grows(name, body):
    return body.startswith("\tsize_t size;") or name in BY_ARGUMENT


def sized():
    return [match[1] for text in HEADERS.values() for match in STRUCT.finditer(text)
            if grows(*match.groups())]


def without(body, count):
    """A struct's fields but for the last."""
    for field in list(FIELD.finditer(body))[:-count - 1:-1]:
        body = body[:field.start()] + body[field.end():]
    return body


def write_headers(folder, change):
    def changed(match):
        name, body = match.groups()
        return f"struct {name} {{\n{change(name, body) if grows(name, body) else body}}};"
    for file, text in HEADERS.items():
        with open(os.path.join(folder, file), "w", encoding="utf-8") as header:
            header.write(STRUCT.sub(changed, text))


def compile_with(folder, source, program, *options):
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Werror",
               "-I", folder, *options, *source, "-o", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}\n{result.stderr}"


def sizes(folder):
    source, program = os.path.join(folder, "sizes.c"), os.path.join(folder, "sizes")
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <stdio.h>\n#include <actmem_runtime.h>\n#include <actmem_store.h>\n"
                   "int main(void)\n{\n")
        file.writelines(f'\tprintf("%zu\\n", sizeof(struct {name}));\n' for name in sized())
        file.write("\treturn 0;\n}\n")
    compile_with(folder, [source], program)
    told = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(zip(sized(), map(int, told.split())))


def run(folder, *options):
    program, library = os.path.join(folder, "abi"), os.path.join(BUILD, "lib")
    compile_with(folder, [PROGRAM, os.path.join(TAP, "tap.c"),
                          os.path.join(library, "libactmem.so")],
                 program, "-I", TAP, f"-Wl,-rpath,{library}", *options)
    result = subprocess.run([program, os.path.join(BUILD, "tests")], capture_output=True,
                            text=True, timeout=100, check=False, env=clean_environment())
    assert result.returncode == 0, result.stdout + result.stderr


@case
def the_program_has_every_struct_with_a_size():
    with open(PROGRAM, encoding="utf-8") as file:
        text = file.read()
    assert len(sized()) > 15, sized()
    missing = [name for name in sized() if not re.search(rf"\b{name}\b", text)]
    assert not missing, missing


@case
def a_program_with_these_headers_runs():
    with tempfile.TemporaryDirectory() as folder:
        write_headers(folder, lambda name, body: body)
        run(folder)


@case
def a_program_with_shorter_structs_runs():
    with tempfile.TemporaryDirectory() as folder:
        write_headers(folder, lambda name, body: body)
        today = sizes(folder)
        fewer = dict.fromkeys(today, 1)
        for _ in range(4):
            write_headers(folder, lambda name, body: without(body, fewer[name]))
            now = sizes(folder)
            same = [name for name in today if now[name] == today[name]]
            fewer |= {name: fewer[name] + 1 for name in same}
            if not same:
                break
        assert not same, same
        run(folder)


@case
def a_program_with_longer_structs_runs_as_far_as_it_leaves_them_empty():
    with tempfile.TemporaryDirectory() as folder:
        write_headers(folder, lambda name, body: body)
        today = sizes(folder)
        write_headers(folder, lambda name, body: body + "\tuint64_t later;\n")
        now = sizes(folder)
        assert all(now[name] > today[name] for name in today), now
        run(folder, "-DNEWER")


@case
def only_a_struct_with_a_size_can_be_initialized():
    for (argument, is_good), language in itertools.product(
            (("&options", True), ("&options.region", False), ("&options.grow_bytes", False),
             ("&pointer", False)), ("c", "c++")):
        text = "#include <actmem.h>\nvoid f(void);\nvoid f(void)\n{\n\tstruct actmem_heap_options " \
            f"options, *pointer = &options;\n\tACTMEM_INIT({argument});\n\t(void)pointer;\n}}\n"
        ended = subprocess.run(["cc", "-fsyntax-only", "-I", os.path.join(ROOT, "lib", "include"),
                                f"-x{language}", "-"], input=text, capture_output=True, text=True,
                               check=False)
        assert (ended.returncode == 0) == is_good, (argument, language, ended.stderr)


main()
