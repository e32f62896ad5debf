# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Each exported call has a manual page with all of its header's words, and the programs run."""
import glob
import os
import re
import subprocess
import sys
import tempfile

from pages import program as program_of
from tap import case, main

BUILD = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADERS = sorted(glob.glob(os.path.join(ROOT, "lib", "include", "*.h")))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


HEADER_TEXT = "".join(map(read, HEADERS))
CALLS = [name.removesuffix("_sized") for name in re.findall(
    r"^\t(actmem_\w+);", read(os.path.join(ROOT, "lib", "libactmem.map")), re.MULTILINE)]
NAMES = [*CALLS, "libactmem", *(os.path.basename(path).removesuffix(".h") for path in HEADERS)]


def shown(name):
    """The page as man shows it. What man and groff print besides is an error."""
    environment = {**os.environ, "LC_ALL": "C", "MANWIDTH": "200", "MANROFFSEQ": ""}
    man = subprocess.run(["man", "--warnings", "-l", page_of(name)], env=environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    assert man.stdout and not man.stderr, (name, man.stderr)
    return man.stdout


def page_of(name):
    path = os.path.join(BUILD, "man", name + ".3")
    leads = re.fullmatch(r"\.so man3/(\S+)\n", read(path))
    return os.path.join(BUILD, "man", leads[1]) if leads else path


PAGES = {name: shown(name) for name in NAMES}


def words(text):
    return set(re.findall(r"[\w.-]*\w", text.lower()))


@case
def pages_have_what_the_headers_say():
    """Each word of a comment right before a call, and each parameter."""
    for call in CALLS:
        found = re.search(rf"\n\n(/\*(?:(?!\*/).)*\*/\n(?:(?!\n\n).)*\b{call}(?:_sized)?"
                          r"\([^;{]*\))[;{]", HEADER_TEXT, re.DOTALL)
        assert found, call
        missing = words(found[1]) - words(PAGES[call])
        assert missing <= {call + "_sized", "size_t"}, (call, missing)


@case
def constants_and_structs_are_on_the_pages_of_their_headers():
    for path in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.DOTALL)
        names = set(re.findall(r"^#define (ACTMEM_\w+)[ \t]+\S", text, re.MULTILINE))
        for kind, body in re.findall(r"^(?:enum|struct) (actmem_\w+) \{(.*?)^\}", text,
                                     re.MULTILINE | re.DOTALL):
            names |= {kind, *re.findall(r"(\w+)(?:\[[^]]*\])?(?: = [^,]*)?[;,]$", body,
                                        re.MULTILINE)}
        page = PAGES[os.path.basename(path).removesuffix(".h")]
        missing = names - set(re.findall(r"\w+", page))
        assert not missing, (path, missing)


@case
def references_lead_somewhere():
    for name, page in PAGES.items():
        missing = set(re.findall(r"\b((?:lib)?actmem\w*)\(3\)", page)) - set(NAMES)
        assert not missing, (name, missing)
    called = set(re.findall(r"\b(actmem_\w+)\(", HEADER_TEXT))
    assert called - {name + "_sized" for name in CALLS} - {"actmem_init"} == set(CALLS)
    for header in HEADERS:
        assert os.path.basename(header).removesuffix(".h") + "(3)" in PAGES["libactmem"], header


@case
def pages_are_indexed_by_all_their_names():
    for name in NAMES:
        indexed = subprocess.run(["lexgrog", page_of(name)], text=True, check=True,
                                 stdout=subprocess.PIPE).stdout
        assert f': "{name} - ' in indexed, (name, indexed)


def run(name, program):
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        source, binary = os.path.join(folder, "program.c"), os.path.join(folder, "program")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        lib = os.path.join(BUILD, "lib")
        subprocess.run([os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", "-I",
                        os.path.join(ROOT, "lib", "include"), source, "-o", binary, "-L", lib,
                        "-lactmem", f"-Wl,-rpath,{lib}"], check=True)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("ACTMEM_")}
        environment.update(ACTMEM_BACKEND="memfd", ACTMEM_PAGES="4K", ACTMEM_ALLOW="unlocked")
        ran = subprocess.run([binary], cwd=folder, env=environment, text=True, timeout=60,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert ran.returncode == 0, f"{name}: {ran.returncode}\n{ran.stdout}"


@case
def variables_are_in_the_manual():
    """Those of the table; and the table has those that the Python module reads."""
    printed = subprocess.run([os.path.join(BUILD, "docs", "variables")], text=True, check=True,
                             stdout=subprocess.PIPE).stdout
    names = set(re.findall(r"^\*(ACTMEM_\w+)\*$", printed, re.MULTILINE))
    heads = set(re.findall(r"^\\fB(ACTMEM_\w+)\\fR$",
                           read(os.path.join(BUILD, "man", "actmem.1")), re.MULTILINE))
    assert len(names) >= 20 and heads == names, heads ^ names
    modules = glob.glob(os.path.join(ROOT, "lib", "python", "**", "*.py"), recursive=True)
    taken = set(re.findall(r'(?:environ\.get|_is_on)\("(ACTMEM_\w+)"',
                           "".join(map(read, modules))))
    assert len(taken) > 8 and taken <= names, taken - names


@case
def programs_compile_and_run():
    """As a reader copies them from the page."""
    examples = [os.path.basename(path).removesuffix(".c")
                for path in glob.glob(os.path.join(ROOT, "docs", "man", "*.c"))]
    assert len(examples) > 15
    for name in [*examples, "libactmem"]:
        program = re.search(r"^ +#include(?:(?!^\S|^ +#include <actmem_?\w*\.h>\n\n).)*^ +\}$",
                            PAGES[name].split("\nEXAMPLE\n")[1], re.MULTILINE | re.DOTALL)
        assert program and "int main(" in program[0], name
        run(name, program[0])
    run("README.md", program_of("README.md", "c"))


if __name__ == "__main__":
    main()
