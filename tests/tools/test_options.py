# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What --help and actmem(1) say of options, kinds and variables is what the command has."""
import os
import re

from harness import BUILD, MEASURING, PLANNING, SUBCOMMANDS, actmem, expect
from tap import case, main

ROOT = os.path.dirname(BUILD)
LONG = r"(?<![\w-])--[a-z][\w-]*"
SHORT = r"(?<![\w-])-[A-Za-z](?![\w-])"
# What all have.
COMMON = {"--help", "-h"}
# Whose options are in a file of several.
PRINTING = ("waits", "info")
SETTING = ("pool", "limit")


def source(*names):
    text = ""
    for name in names:
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text += file.read()
    return text


def manual():
    """The sections of actmem(1)."""
    text = source("docs/actmem.1.scd")
    return dict(re.findall(r"^# (.+?)\n(.*?)(?=^# |\Z)", text, re.MULTILINE | re.DOTALL))


def options_in(text):
    return set(re.findall(LONG, text)) | set(re.findall(SHORT, text))


def helped(subcommand):
    """Of the lines that begin with an option."""
    result = actmem(subcommand, "--help")
    expect(result, 0)
    lines = [line for line in result.stdout.splitlines() if line.lstrip().startswith("-")]
    return options_in("\n".join(re.split(r"   |  +(?=[a-z])", line.lstrip())[0]
                                for line in lines))


def manuals(sections, subcommand):
    text = sections[subcommand.upper()]
    if subcommand in (*PRINTING, "list"):
        text += sections["OPTIONS OF LIST, WAITS AND INFO"]
    text += sections["OPTIONS OF ALL"]
    return options_in("\n".join(line for line in text.splitlines() if line.startswith("*-")))


def parser_of(subcommand):
    """What makes it in Python."""
    text = source("lib/python/actmem/_command.py")
    return text[text.index(f"def {subcommand}_parser"):].split("return parser")[0]


def sources(subcommand):
    if subcommand in PRINTING:
        return ["tools/options.c", "tools/tool.h"]
    if subcommand in MEASURING:
        return [f"bench/cmd_{subcommand}.c", "tools/memory_options.h", "tools/tool.h"]
    if subcommand == "exporter":
        return ["tools/cmd_exporter.c"]
    if subcommand in SETTING:
        return [f"tools/cmd_{subcommand}.c", "tools/settings.h", "tools/tool.h"]
    if subcommand in ("doctor", "list", "prune"):
        return [f"tools/cmd_{subcommand}.c", "tools/tool.h"]
    return [f"tools/cmd_{subcommand}.c", "tools/memory_options.h"]


def taken(subcommand):
    if subcommand in PLANNING:
        calls = re.findall(r'add\(((?:"-[\w-]+",? ?)+)', parser_of(subcommand))
        assert calls, subcommand
        return COMMON | set(re.findall(r'"(.+?)"', "".join(calls)))
    names = sources(subcommand)
    found = re.findall(r'\{ "([\w-]+)", (?:no|required|optional)_argument, NULL, (\S+) \}',
                       source(*names))
    assert found, names
    return ({f"--{name}" for name, _ in found} |
            {f"-{letter[1]}" for _, letter in found if letter.startswith("'")})


@case
def options_are_in_the_help_and_in_the_manual():
    sections = manual()
    for subcommand in SUBCOMMANDS:
        expected = taken(subcommand)
        assert COMMON <= expected, (subcommand, expected)
        assert helped(subcommand) == expected, (subcommand, helped(subcommand) ^ expected)
        told = manuals(sections, subcommand)
        assert told - {"--version", "-V"} == expected, (subcommand, told ^ expected)


@case
def short_options_are_those_that_are_parsed():
    for subcommand in set(SUBCOMMANDS) - set(PLANNING):
        text = source(*sources(subcommand))
        call = (re.search(r"struct option_table table = \{\s*(.*?),", text, re.DOTALL) or
                re.search(r"getopt_long\(argc, argv, (.*?),", text, re.DOTALL))[1]
        parsed = "".join(re.findall(r'"([^"]*)"', call))
        if "MEMORY_OPTIONS_SHORT" in call:
            parsed += re.search(r'#define MEMORY_OPTIONS_SHORT\s+"([^"]*)"', text)[1]
        if "SETTINGS_OPTIONS_SHORT" in call:
            parsed += re.search(r'#define SETTINGS_OPTIONS_SHORT\s+"([^"]*)"', text)[1]
        expected = {option[1] for option in taken(subcommand) if not option.startswith("--")}
        assert set(parsed) - set("-:+") == expected, (subcommand, parsed, expected)


@case
def what_is_waited_for_is_told_in_each_place():
    kinds = set(re.findall(r'\[WAIT_\w+\] = "(\w+)"', source("tools/cmd_waits.c")))
    assert len(kinds) >= 10, kinds
    text = actmem("waits", "--help").stdout.split("WAITS FOR:")[1]
    helps = set(re.findall(r"^  (\w+) ", text, re.MULTILINE))
    assert helps == kinds | {"others", "unknown"}, helps ^ kinds
    heads = [line for line in manual()["WAITS"].splitlines() if line.startswith("*")]
    assert set(re.findall(r"\*(\w+)\*", "\n".join(heads))) == helps, heads
    table = [line.split("|")[1] for line in source("docs/stuck.md").splitlines()
             if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(table))) == kinds, table


@case
def variables_that_are_read_are_in_the_manual():
    """Those of the library, the preload, the Python module and the command."""
    read = set()
    for folder, _, names in os.walk(ROOT):
        parts = os.path.relpath(folder, ROOT).split(os.sep)
        if parts[0] not in ("lib", "tools", "bench"):
            continue
        for name in names:
            if name.endswith((".c", ".py")):
                text = source(os.path.join(folder, name))
                read |= set(re.findall(r'(?:getenv|is_set|variables?_find|cuda_variable'
                                       r'|environ\.get)\((?:\w+, )?"(ACTMEM_\w+)"',
                                       text))
    read |= set(re.findall(r"\((ACTMEM_\w+)\)", source("lib/base/knob.c")))
    assert len(read) >= 15, read
    told = set(re.findall(r"\*(ACTMEM_\w+)\*", manual()["ENVIRONMENT"]))
    assert read <= told, read - told


if __name__ == "__main__":
    main()
