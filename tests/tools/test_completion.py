# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Words that bash and zsh complete for the command, and files and folders among them."""
import os
import re

from harness import MEASURING, SUBCOMMANDS
from options import source, taken
from shells import bash, zsh
from tap import case, main

VALUES = {
    "run --backend ": ("auto", "driver", "memfd"),
    "run -p ": ("1G", "2M", "thp", "4K"),
    "run --policy=": ("bind", "preferred", "interleave"),
    "run -qb d": ("driver",),
    "run --share --pages t": ("thp",),
    "run --spill /a:/b --backend m": ("memfd",),
    "run --spill=/a:/b --backend=m": ("memfd",),
    "replay --pages ": ("1G", "2M", "thp", "4K"),
    "bench --only=": ("copying", "spilling"),
    "plan --train ": ("all", "attention"),
    "list --user roo": ("root",),
    "run --nodes ": (),
    "waits x": (),
}
# After a comma, what is left.
LISTS = {
    "run --allow ": ("2m", "thp", "4k", "node", "unlocked", "any"),
    "run -a 2m,": ("thp", "4k", "node", "unlocked", "any"),
    "bench --allow=thp,4k,n": ("node",),
    "run --spill-allow m": ("memory",),
}


def columns():
    table = source("tools/cmd_list.c").split("all_columns[] = {")[1].split("};")[0]
    return {heading.lower() for heading in re.findall(r'\{ "([A-Z]+)",', table)}


def words(found):
    """As the one or the other shell has them: the last part of a list, no = behind."""
    return sorted({word.rpartition(",")[2].rstrip("=") for word in found})


def long_options(subcommand):
    return sorted(option for option in taken(subcommand) if option.startswith("--"))


def check_options(shell):
    for command, subcommands in ("actmem", SUBCOMMANDS), ("actmem-bench", MEASURING):
        found = shell.complete(f"{command} ")[1]
        assert words(set(found) - {"--help", "--version"}) == sorted(subcommands), found
        for subcommand in subcommands:
            found = shell.complete(f"{command} {subcommand} --")[1]
            assert words(found) == long_options(subcommand), (command, subcommand, found)


def check_values(shell):
    for table in VALUES, LISTS, {"list --output ": columns(),
                                 "list -o pid,user,": columns() - {"pid", "user"}}:
        for line, expected in table.items():
            now, found = shell.complete(f"actmem {line}")
            assert words(found) == sorted(expected), (line, now, found)


def check_files(shell):
    """Files where an option takes those, folders alone where it takes these."""
    for path in "only/file.py", "only/folder/":
        os.makedirs(os.path.join(shell.folder, os.path.dirname(path)), exist_ok=True)
        if not path.endswith("/"):
            with open(os.path.join(shell.folder, path), "w", encoding="ascii"):
                pass
    for line, expected in (
            ("exporter --textfile on", "only/"), ("exporter --textfile=only/fi", "only/file.py"),
            ("run --spill only/", "only/folder/"), ("run --spill=only/fi", "only/fi"),
            ("run --spill only:only/", "only:only/folder/"),
            ("doctor -s only/", "only/folder/"), ("run --name only/fi", "only/file.py"),
            ("plan --save only/fi", "only/file.py"), ("plan only/fi", "only/file.py"),
            ("probe --spill only/", "only/folder/"), ("waits only/fi", "only/fi")):
        before = re.split(r"[ =]", line)[:-1]
        now = shell.complete(f"actmem {line}")[0].strip()
        assert re.split(r"[ =]", now)[1:] == [*before, expected], (line, now)


def check_program(shell, nested):
    """A program's name comes after the options; its own words are completed, too."""
    for line in "run actmem-ben", "run -- actmem-ben", "run -qn 0 --allow any -- actmem-ben":
        now = shell.complete(f"actmem {line}")[0]
        assert now.rstrip() == f"actmem {line}ch", now
    if nested:
        for line in ("actmem run -- actmem run --pag", "actmem run actmem run --pag"):
            now = shell.complete(line)[0]
            assert now.rstrip(" =") == f"{line}es", now


@case
def bash_completes_words_that_the_help_has():
    with bash() as shell:
        check_options(shell)
        check_values(shell)


@case
def bash_completes_files_and_programs():
    with bash() as shell:
        check_files(shell)
        check_program(shell, nested=False)


@case
def bash_completion_finds_the_file_and_completes_a_program_of_run():
    with bash(completion=True) as shell:
        assert shell.complete("actmem run --pag")[0] == "actmem run --pages "
        assert shell.complete("actmem-bench re")[0] == "actmem-bench replay "
        check_files(shell)
        check_program(shell, nested=True)


@case
def zsh_completes_words_that_the_help_has():
    with zsh() as shell:
        check_options(shell)
        check_values(shell)


@case
def zsh_completes_files_and_programs():
    with zsh() as shell:
        check_files(shell)
        check_program(shell, nested=True)


@case
def options_may_be_cut_short_in_bash():
    with bash() as shell:
        assert shell.complete("actmem run --bud 1G --pag t")[1] == ["thp"]


@case
def what_is_no_subcommand_completes_to_nothing():
    for start in bash, zsh:
        with start() as shell:
            assert shell.complete("actmem nothing --") == ("actmem nothing --", []), start


if __name__ == "__main__":
    main()
