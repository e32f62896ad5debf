# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What --help and actmem(1) say of options, kinds and variables is what the command has."""
import re

import messages
from harness import PLANNING, SUBCOMMANDS, actmem
from options import COMMON, LONG, helped, manual, manuals, source, sources, taken
from tap import case, main


@case
def options_are_in_the_help_and_in_the_manual():
    sections = manual()
    for subcommand in SUBCOMMANDS:
        expected = taken(subcommand)
        assert COMMON <= expected, (subcommand, expected)
        assert helped(subcommand) == expected, (subcommand, helped(subcommand) ^ expected)
        told = manuals(sections, subcommand)
        assert told - {"--version", "-V"} == expected, (subcommand, told ^ expected)


def grouped(lines, heading, option):
    """The long options of each group, in their order; those of all subcommands left out."""
    groups = {}
    for line in lines:
        if heading(line):
            group = groups.setdefault(heading(line)[1], [])
        elif groups and option(line):
            group += [name for name in re.findall(LONG, option(line)[0]) if name != "--help"]
    return {name: options for name, options in groups.items() if options}


@case
def groups_of_the_help_are_those_of_the_manual():
    sections, seen = manual(), set()
    for subcommand in SUBCOMMANDS:
        helps = grouped(actmem(subcommand, "--help").stdout.splitlines(),
                        re.compile(r"([A-Z][a-z]+):$").match,
                        re.compile(r"  (-\w, |    )?--\S+").match)
        told = grouped(sections[subcommand.upper()].splitlines(),
                       re.compile(r"## (.+)").match, re.compile(r"\*-.*").match)
        assert helps == told, (subcommand, helps, told)
        seen |= set(helps)
    assert {"Place", "Pages", "Budget", "Preload"} <= seen, seen


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
    assert len(kinds) >= 9, kinds
    text = actmem("waits", "--help").stdout.split("WAITS FOR:")[1]
    helps = set(re.findall(r"^  (\w+) ", text, re.MULTILINE))
    assert helps == kinds | {"others", "unknown"}, helps ^ kinds
    heads = [line for line in manual()["WAITS"].splitlines() if line.startswith("*")]
    assert set(re.findall(r"\*(\w+)\*", "\n".join(heads))) == helps, heads
    table = [line.split("|")[1] for line in source("docs/stuck.md").splitlines()
             if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(table))) == kinds, table


@case
def messages_are_in_the_manual_and_those_there_in_the_commands():
    of_library, of_commands = messages.manuals()
    told, everything = messages.told(), messages.sources().splitlines()
    assert len(told) > 80 and len(of_commands) > 60 and len(of_library) > 8, of_library
    for message in told:
        assert any(messages.is_told(parts, message) for parts in of_commands), message
    for parts in of_commands + of_library:
        assert any(messages.is_told(parts, line) for line in everything), parts


if __name__ == "__main__":
    main()
