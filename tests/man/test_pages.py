# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The manual pages of the library say what its headers say, and their programs run."""
import glob
import os
import re
import subprocess
import sys
import tempfile

from tap import case, main

BUILD = os.path.abspath(sys.argv.pop(1))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADERS = sorted(glob.glob(os.path.join(ROOT, "lib", "include", "*.h")))
ERRNO = re.compile(r"-E[A-Z0-9]+\b")
DECLARATION = re.compile(r"^(?:static inline )?"
                         r"(\w[\w *]*\b(actmem_\w+)\((?:[^(){};]|\([^(){};]*\))*\))\s*[;{]",
                         re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Page:
    def __init__(self, path):
        self.name = os.path.basename(path).removesuffix(".3.scd")
        self.text = read(path)
        # What comes before the first title is the head of the page.
        self.sections = dict(part.split("\n", 1) for part in
                             re.split(r"^# ", self.text, flags=re.MULTILINE)[1:])
        self.names = self.sections["NAME"].strip().split(" - ")[0].split(", ")

    def shown(self):
        """As man shows it, and what man and groff say of it."""
        environment = {**os.environ, "LC_ALL": "C", "MANWIDTH": "120", "MANROFFSEQ": ""}
        page = os.path.join(BUILD, "man", self.name + ".3")
        man = subprocess.run(["man", "--warnings", "-l", page], env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        return man.stdout, man.stderr

    def program(self):
        """As a reader copies it, or None."""
        return (re.findall(r"^ +#include(?:(?!^\S).)*^ +\}$", self.shown()[0],
                           re.MULTILINE | re.DOTALL) or [None])[-1]

    def blocks(self):
        return re.findall(r"^```\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)


OVERVIEW = Page(os.path.join(ROOT, "docs", "libactmem.3.scd"))
PAGES = [Page(path) for path in sorted(glob.glob(os.path.join(ROOT, "docs", "man", "*.3.scd")))]
HEADER_TEXT = "".join(map(read, HEADERS))


def plain(text):
    """C without comments, and with single spaces where there must be some."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r" ?([(){};,*]) ?", r"\1", text).strip()


def declarations():
    """Each call's declaration, and the errors that the comment right before it has."""
    found = {}
    for match in DECLARATION.finditer(HEADER_TEXT):
        paragraph = HEADER_TEXT[:match.start()].rpartition("\n\n")[2]
        found[match[2]] = plain(match[1]), set(ERRNO.findall(paragraph))
    # Programs call it by the name without that, which is declared behind it.
    for name in [name for name in found if name.endswith("_sized")]:
        found[name.removesuffix("_sized")][1].update(found.pop(name)[1])
    del found["actmem_init"]
    return found


def page_of(call):
    pages = [page for page in PAGES if call in page.names]
    assert len(pages) == 1, f"{call}: {[page.name for page in pages]}"
    return pages[0]


@case
def each_call_has_a_page_that_declares_it():
    exported = re.findall(r"^\t(actmem_\w+);", read(os.path.join(ROOT, "lib", "libactmem.map")),
                          re.MULTILINE)
    declared = declarations()
    assert {name.removesuffix("_sized") for name in exported} == set(declared)
    wrong = [f"{call}: {code}" for call, (code, _) in declared.items()
             if code + ";" not in plain(page_of(call).sections["SYNOPSIS"])]
    assert not wrong, "\n".join(wrong)


@case
def pages_name_calls_that_there_are():
    calls = set(declarations())
    for page in PAGES:
        assert page.names[0] == page.name, page.name
        told = set(page.names) - {"ACTMEM_INIT"}
        assert told <= calls, (page.name, told - calls)
        declared = set(re.findall(r"\b(actmem_\w+)\(", page.sections["SYNOPSIS"]))
        assert declared == told, (page.name, declared ^ told)


@case
def errors_of_the_headers_are_in_the_pages():
    wrong = []
    for call, (_, errors) in declarations().items():
        missing = errors - set(ERRNO.findall(page_of(call).text))
        wrong += [f"{call}: {sorted(missing)}"] if missing else []
    assert not wrong, "\n".join(wrong)


@case
def structs_are_those_of_the_headers():
    pattern = r"^struct (actmem_\w+) (\{.*?^\});"
    found = {name: plain(body) for name, body in
             re.findall(pattern, HEADER_TEXT, re.MULTILINE | re.DOTALL)}
    told = set()
    for page in PAGES:
        for block in page.blocks():
            for name, body in re.findall(pattern, block, re.MULTILINE | re.DOTALL):
                assert found[name] == plain(body), f"{page.name}: {found[name]}"
                told.add(name)
    assert told == set(found), set(found) - told


@case
def constants_are_in_the_pages():
    text = re.sub(r"/\*.*?\*/", "", HEADER_TEXT, flags=re.DOTALL)
    constants = set(re.findall(r"^#define (ACTMEM_\w+)[ \t]+\S", text, re.MULTILINE))
    for body in re.findall(r"^enum actmem_\w+ \{(.*?)\}", text, re.MULTILINE | re.DOTALL):
        constants.update(re.findall(r"\bACTMEM_\w+", body))
    told = set(re.findall(r"\bACTMEM_\w+", "".join(page.text for page in PAGES)))
    assert constants <= told, sorted(constants - told)


@case
def references_lead_somewhere():
    names = {name for page in PAGES for name in page.names} | {"libactmem"}
    for page in [*PAGES, OVERVIEW]:
        told = set(re.findall(r"\*((?:lib)?actmem\w*)\*\(3\)", page.text))
        assert told <= names, (page.name, told - names)
    overview = set(re.findall(r"\*(actmem\w*)\*\(3\)", OVERVIEW.text))
    missing = {page.name for page in PAGES} - overview
    assert not missing, f"libactmem(3) leads to all but {missing}"


@case
def pages_are_shown_and_indexed_without_a_warning():
    for page in [*PAGES, OVERVIEW]:
        shown, wrong = page.shown()
        assert shown and not wrong, f"{page.name}: {wrong}"
        indexed = subprocess.run(["lexgrog", os.path.join(BUILD, "man", page.name + ".3")],
                                 text=True, check=True, stdout=subprocess.PIPE).stdout
        for name in page.names:
            assert f': "{name} - ' in indexed, (name, indexed)


@case
def names_lead_to_their_pages():
    for page in PAGES:
        for name in page.names[1:]:
            told = read(os.path.join(BUILD, "man", name + ".3"))
            assert told == f".so man3/{page.name}.3\n", (name, told)


def run(page, program):
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
        assert ran.returncode == 0, f"{page.name}: {ran.returncode}\n{ran.stdout}"


@case
def variables_are_in_the_manual():
    """Those of the table; and the table has those that the Python module reads."""
    for part, page, least in (("open", "actmem_options_from_environment.3", 6),
                              ("all", "actmem.1", 20)):
        printed = subprocess.run([os.path.join(BUILD, "docs", "variables"), part], text=True,
                                 check=True, stdout=subprocess.PIPE).stdout
        names = set(re.findall(r"^\*(ACTMEM_\w+)\*$", printed, re.MULTILINE))
        heads = set(re.findall(r"^\\fB(ACTMEM_\w+)\\fR$", read(os.path.join(BUILD, "man", page)),
                               re.MULTILINE))
        assert len(names) >= least and heads == names, (page, heads ^ names)
    modules = glob.glob(os.path.join(ROOT, "lib", "python", "**", "*.py"), recursive=True)
    taken = set(re.findall(r'(?:environ\.get|_is_on)\("(ACTMEM_\w+)"',
                           "".join(map(read, modules))))
    assert len(taken) > 8 and taken <= names, taken - names


@case
def programs_compile_and_run():
    """EXAMPLE of a page without one leads to a page that has one."""
    for page in [*PAGES, OVERVIEW]:
        program = page.program()
        if not program:
            other = re.search(r"\*(actmem\w*)\*\(3\)", page.sections["EXAMPLE"])
            program = page_of(other[1]).program()
        assert "int main(" in program, page.name
        run(page, program)


if __name__ == "__main__":
    main()
