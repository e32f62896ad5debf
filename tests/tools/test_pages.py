# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Commands, options, targets of make, files, variables and links that the pages name exist, and the
README's outputs are real. tests/libraries/test_pages.py runs the Python of the pages,
tests/man/test_pages.py the README's C."""
import functools
import pathlib
import re
import shlex
import subprocess

from harness import SUBCOMMANDS, actmem, clean_environment, holder, private_dev
from options import LONG, helped
from pages import ROOT, TEXTS, lines_by_language, targets
from tap import case, main

# Programs of others.
KNOWN = set("""
    apt bpftrace cat cd cp docker echo gdb git grep kubectl ldconfig ls mkdir modinfo modprobe mokutil
    mount perf pip ps py-spy reboot rm rpmbuild systemctl systemd-sysusers time trace-cmd udevadm
    uname usermod
    """.split())
# Programs of others that start a program.
LAUNCHERS = {"srun", "watch"}
PYTHON = re.compile(r"(?:.*/)?python3?")
# Options of container runtimes and of Slurm.
OF_OTHERS = {"--device", "--group-add", "--ulimit", "--shm-size", "--cap-add", "--gres", "--mem"}
# Files that use make's variables.
MADE = r"(.*/)?(Makefile|Kbuild|[^/]*\.mk)|(scripts|packaging|lib|tests/(vm|bench))/(.*/)?[^./]*(\.(c|py))?"
# Functions of the kernel and of CUDA that pages name, and that are called nowhere here.
FUNCTIONS_OF_OTHERS = {"cuMemGetInfo", "dma_set_max_seg_size", "folio_maybe_dma_pinned",
                       "pin_user_pages", "remap_pfn_range"}
# A name that stands for others, such as NAME.
PLACEHOLDER = re.compile(r"[A-Z]{3,}")


def files_here():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, check=False,
                            stdout=subprocess.PIPE).stdout.split()
    # The tarball has no repository, but may have been built.
    return set(listed) or {str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                           if path.relative_to(ROOT).parts[0] != "build"}


FILES = files_here()
FOLDERS = {str(folder) for file in FILES for folder in pathlib.PurePath(file).parents}
TOP = {file.partition("/")[0] for file in FILES if "/" in file} - {"build"}


@functools.cache
def text_of(pattern):
    """Of all files whose path matches."""
    return "\n".join((ROOT / file).read_text(encoding="utf-8") for file in sorted(FILES)
                     if re.fullmatch(pattern, file) and (ROOT / file).is_file())


def options_of(words):
    return {re.match(r"(--[\w-]+|-\w|-?).*", word)[1] for word in words
            if word.startswith("-")} - {"-"}


def check_actmem(words):
    if not words or words[0] in ("--help", "--version", "..."):
        return
    assert words[0] in SUBCOMMANDS, f"actmem {words[0]}"
    end = words.index("--") if "--" in words else len(words)
    unknown = options_of(words[1:end]) - helped(words[0])
    assert not unknown, f"actmem {words[0]} {' '.join(unknown)}"
    if words[end + 1:] and words[0] == "run":
        check(words[end + 1:])


def check_make(words):
    for word in words:
        name, is_variable, _ = word.partition("=")
        if is_variable:
            assert re.search(rf"(?<!\w){name}(?!\w)", text_of(MADE)), f"make {word}"
        elif PLACEHOLDER.search(name):
            pattern = PLACEHOLDER.sub(".+", name)
            assert any(re.fullmatch(pattern, target) for target in targets()), f"make {word}"
        elif name.startswith("bench-") and name not in targets():
            part = f"tests/bench/{name.removeprefix('bench-')}."
            assert any(file.startswith(part) for file in FILES), f"make {word}"
        elif not name.startswith("-") and name != "...":
            assert name in targets(), f"make {word}"


def check_own(program, words):
    """A program of this repository takes its options, if it has any, from its folder."""
    assert program in FILES, program
    folder = re.escape(program.rpartition("/")[0])
    unknown = options_of(words) - set(re.findall(LONG, text_of(rf"{folder}/.*")))
    assert not unknown, f"{program} {' '.join(unknown)}"


def check(words):
    """Asserts that a command and its options exist, as far as they are of this repository."""
    while words and re.match(r"[A-Z][A-Z_0-9]*=", words[0]):
        words = words[1:]
    if not words:
        return
    name, *rest = words
    for before, word in zip(words, rest):
        if not before.startswith("-"):  # what an option names may be written
            check_path(word)
    if name == "actmem":
        check_actmem(rest)
    elif name == "make":
        check_make(rest)
    elif name in LAUNCHERS:
        for at, word in enumerate(rest):
            if " " in word:
                for command in commands(word):
                    check(command)
            elif word == "actmem":
                check_actmem(rest[at + 1:])
    elif PYTHON.fullmatch(name):
        if rest and "/" in rest[0]:     # else a program of the reader's
            check_own(rest[0], rest[1:])
    elif name.partition("/")[0] in TOP:
        check_own(name, rest)
    elif name.startswith("build/"):     # a program that make builds
        check_make([name])
    else:
        assert name in KNOWN, f"{name}: a program that {__file__} does not know"


def check_path(word):
    """Asserts that a file or folder of the repository exists."""
    path = word.removeprefix("./").rstrip("/.,")
    if path.partition("/")[0] in TOP and "/" in path and \
            re.fullmatch(r"[\w./-]+", path):
        assert path in FILES or path in FOLDERS or PLACEHOLDER.search(path), f"no file {word}"


def commands(text):
    """The words of each command in lines for a shell."""
    text = re.sub(r"\\\n", " ", text)
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split = True
        words = []
        for word in [*lexer, ";"]:
            if re.fullmatch(r"[;&|()<>]+", word):
                yield words
                # What follows is a file.
                words = ["echo"] if word in (">", ">>", "<") else []
            else:
                words.append(word)


class Wrong:
    """What is wrong on which page, all of it in one error."""

    def __enter__(self):
        self.found = []
        return self

    def check(self, page, function, *args):
        try:
            function(*args)
        except AssertionError as error:
            self.found.append(f"{page}: {error}")

    def __exit__(self, kind, *_):
        assert kind or not self.found, "\n".join(self.found)


@case
def commands_in_blocks_exist():
    count = 0
    with Wrong() as wrong:
        for page, text in TEXTS.items():
            block = []
            for language, line in lines_by_language(text):
                if language == "console" and line.startswith("$ "):
                    block.append(line[2:])
                elif language == "sh":
                    block.append(line)
            for command in commands("\n".join(block)):
                count += 1
                wrong.check(page, check, command)
    assert count > 100, count


def spans(text):
    """What is `code` outside of blocks."""
    outside = "\n".join(line for language, line in lines_by_language(text) if language is None)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", outside)]


@case
def functions_exist():
    code = text_of(r"(lib|driver|uapi|tools|bench|examples)/.*\.(c|h|py|S)")
    known = set(re.findall(r"\b[a-z_]\w+(?=\()", code)) | FUNCTIONS_OF_OTHERS
    named = {}
    for page, text in TEXTS.items():
        on_page = set(re.findall(r"\bdef (\w+)\(", text))
        for span in spans(text):
            place = re.fullmatch(r"(?:([\w./]+): )?([a-z_]\w+)\(\)", span)
            if place and place[1]:
                assert re.search(rf"\b{place[2]}\(", text_of(re.escape(place[1]))), (page, span)
            if place and place[2] not in on_page:
                named[place[2]] = page
    assert len(named) > 50, len(named)
    missing = {name: page for name, page in named.items() if name not in known}
    assert not missing, missing


@case
def commands_in_sentences_exist():
    count = 0
    with Wrong() as wrong:
        for page, text in TEXTS.items():
            for span in spans(text):
                name = span.partition(" ")[0]
                wrong.check(page, check_path, span)
                if name in ("actmem", "make") or "/" in name and name in FILES:
                    for command in commands(span):
                        count += 1
                        wrong.check(page, check, command)
    assert count > 100, count


@case
def options_in_sentences_exist():
    known = {option for subcommand in SUBCOMMANDS for option in helped(subcommand)}
    known |= OF_OTHERS | set(re.findall(LONG, text_of(
        r"(tests/(gpu|bench|vm)|examples|packaging)/[^.]*(\.py)?")))
    seen = {}
    for page, text in TEXTS.items():
        for span in spans(text):
            option = re.match(r"--[a-z][\w-]*", span)
            if option and "xla" not in span:
                seen[option[0]] = page
    assert not set(seen) - known, [(seen[option], option) for option in set(seen) - known]
    assert len(seen) > 20 and OF_OTHERS <= set(seen), OF_OTHERS - set(seen)


@case
def variables_exist():
    code = text_of(r"(lib|tools|uapi|driver|packaging)/.*\.(c|h|py)|" + MADE)
    code += re.sub(r"\tf\((\w+),", r"ACTMEM_\1", text_of("lib/config/table.h"))
    for page, text in TEXTS.items():
        for name in set(re.findall(r"\bACTMEM_[A-Z_]*[A-Z]\b", text)):
            assert re.search(rf"\b{name}\b", code), f"{page}: {name}"


def anchors(text):
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@case
def links_lead_to_files_and_headings():
    count = 0
    for page, text in TEXTS.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?:", link):
                continue
            path, _, heading = link.partition("#")
            target = str((ROOT / page).parent.joinpath(path).resolve().relative_to(ROOT)) \
                if path else page
            assert target in FILES or target in FOLDERS, f"{page}: {link}"
            assert not heading or heading in anchors(TEXTS[target]), f"{page}: {link}"
            count += 1
    assert count > 40, count


def outputs(page):
    """Returns the output of each command in the console blocks of a page, as lists of lines."""
    found, command = {}, None
    for language, line in lines_by_language(TEXTS[page]):
        if language == "console" and line.startswith("$ "):
            command = found.setdefault(line[2:], [])
        elif language == "console":
            command.append(line)
    return found


@case
def outputs_of_the_readme_are_real():
    """Other processes have other numbers and names. A machine can lack a problem."""
    private_dev()
    shown = outputs("README.md")
    assert set(shown) == {"actmem list", "actmem doctor"}, shown
    environment = clean_environment(ACTMEM_ALLOW="any", ACTMEM_PAGES="4K", ACTMEM_BACKEND="memfd")
    with holder("arrays", 64 << 20, environment=environment) as one, \
            holder("activations", 64 << 20, environment=environment) as other:
        options = [f"--pid={each.pid}" for each in (one, other)]
        real = [line for option in options
                for line in actmem("list", option).stdout.splitlines()[1:]]
        headings = actmem("list").stdout.splitlines()[0]
    heading, *lines = shown["actmem list"]
    assert heading.split() == headings.split(), headings
    assert [line.split()[3:] for line in lines] == [line.split()[3:] for line in real], real
    real = actmem("doctor").stdout.splitlines()
    lines = shown["actmem doctor"]
    checks = [line.partition(":")[0] for line in lines[::2]]
    assert checks == ["fix   driver", "fix   huge pages"], checks
    for check_name, pair in zip(checks, (lines[:2], lines[2:])):
        at = next((i for i, line in enumerate(real) if line.startswith(check_name)), None)
        assert at is not None or "driver" not in check_name, real
        assert at is None or real[at:at + 2] == pair, real[at:at + 2]


@case
def costs_in_the_readme_are_those_of_the_makefile():
    makefile = text_of("Makefile")
    cost = re.search(r"^CHECK_COST := ((?:.*\\\n)*.*)", makefile, re.MULTILINE)[1]
    two = TEXTS["README.md"].partition("## Two commands")[2].partition("\n## ")[0]
    costs = re.findall(r"\d+ minutes|[\d.]+ GB", cost)
    assert len(costs) == 4 and all(each in two for each in costs), (costs, two)


if __name__ == "__main__":
    main()
