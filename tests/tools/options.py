# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Options of the subcommands: in their sources, in --help and in actmem(1)."""
import os
import re

from harness import BUILD, MEASURING, PLANNING, actmem, expect

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
