# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The tables of docs/gpu.md and of the README are those of docs/results. Each table of results in
docs/ has the command that makes it, and the date, beside it."""
import glob
import json
import pathlib
import re
import subprocess
import sys

from pages import ROOT, targets
from tap import case, main

sys.path.append(str(ROOT / "tests/bench"))

import heading  # noqa: E402

RESULTS = sorted(glob.glob(f"{ROOT}/docs/results/gpu-*/*.json"))
COLUMNS = ("recomputed", "stock", "stock, actmem run", "actmem run --offload", "actmem")
FIGURES = ("step_s", "first_run_s", "pinned_gb")
BESIDE = 6                  # lines above or below a table, and in its section, without empty ones
DATE = re.compile(r"\b\d{1,2} (?:January|February|March|April|May|June|July|August|September|"
                  r"October|November|December) \d{4}\b|\b\d{4}-\d\d-\d\d\b")
COMMAND = re.compile(r"(?:make|actmem plan) .+|(?:tests|examples)/[\w./-]+.*")
FIGURE = re.compile(r"\(?[+-]?\d|–")
# Tables with figures that nothing measured: models by arithmetic, and figures of others.
COMPUTED = {("docs/fleet.md", "One node"), ("docs/offloading.md", "Temp"),
            ("docs/planning.md", "Update")}
# Another test compares these tables with the planner.
COMPARED = ("<!-- outcomes -->", "<!-- largest -->")
UNDATED = {"docs/training.md"}      # which names the versions of JAX


def table_of(*arguments):
    return subprocess.run([sys.executable, "-B", f"{ROOT}/tests/gpu/table", *arguments],
                          text=True, check=True, stdout=subprocess.PIPE).stdout


@case
def the_page_has_the_tables_of_the_results():
    page = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    begin, end = page.index("\n* 2026-"), page.index("\n\nTwo more figures follow")
    wanted, found = table_of(*RESULTS).splitlines(), page[begin + 1:end].splitlines()
    different = [f"{there}\ninstead of {line}" for line, there in zip(wanted, found)
                 if line != there]
    assert wanted == found, "\n".join(different) or f"{len(found)} lines of {len(wanted)}"


def tables(text):
    """The cells of each table, and the number of its first line."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if re.fullmatch(r"\|[ :|-]+\|", line) and "-" in line:
            end = at
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            yield at - 1, [[cell.strip() for cell in row.strip("|").split("|")]
                           for row in (lines[at - 1], *lines[at + 1:end])]


def agree(cell, values):
    """Whether a cell of the README has the lowest and the highest value, with its own precision."""
    if cell == "none":
        return max(values) < 0.1
    places = re.findall(r"\d+\.(\d+)", cell)
    shown = [f"{value:.{len(places[0])}f}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(shown)) == re.sub(r" (s|GB)$", "", cell.strip("*"))


@case
def the_readme_has_figures_of_the_results():
    rows = {}
    for path in RESULTS:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        for row in content["parts"].get("layers", {}).get("cases", []):
            method = re.fullmatch(r"llama-2-13b scanned (.+)", row["case"])
            if method and row.get("layers") == 40 and "step_s" in row:
                assert content["versions"]["jax"] == "0.11.2", path
                rows.setdefault(method[1].replace("remat", "recomputed"), []).append(row)
    _, table = next(tables((ROOT / "README.md").read_text(encoding="utf-8")))
    assert table[0][0].startswith("Llama-2-13B, 40 scanned layers") and len(table) == 4, table[0]
    for (name, *cells), figure in zip(table[1:], FIGURES):
        for cell, method in zip(cells, COLUMNS, strict=True):
            values = [row[figure] for row in rows[method] if row.get(figure) is not None]
            assert agree(cell, values), f"{name}, {method}: {cell}, but the results have {values}"
    pinned = next(row for row in rows["actmem"] if row.get("pinned_per_live"))
    live = pinned["pinned_gb"] / pinned["pinned_per_live"]
    assert f"for {live:.2f} GB offloaded" in table[3][0], live


def is_of_results(table):
    cells = [cell for _, *row in table[1:] for cell in row]
    return sum(bool(FIGURE.match(cell)) for cell in cells) >= 0.6 * len(cells)


def exists(command, known):
    name, *words = command.split()
    if name == "make":
        target = next((word for word in words if "=" not in word), "")
        part = target.removeprefix("bench-")
        return target in known or target != part and bool(glob.glob(f"{ROOT}/tests/bench/{part}.*"))
    return (ROOT / "tools" / f"cmd_{words[0]}.c").is_file() if name == "actmem" else \
        (ROOT / name).is_file()


def beside(lines, at):
    """The table, and the lines of its section above and below it."""
    headings = [i for i, line in enumerate(lines) if re.match(r"#+ [A-Z]", line)]
    begin = max((i for i in headings if i < at), default=0)
    end = min((i for i in headings if i > at), default=len(lines))
    below = next((i for i in range(at, end) if not lines[i].startswith("|")), end)
    first = ([i for i in range(begin, at) if lines[i]][-BESIDE:] or [at])[0]
    last = ([i for i in range(below, end) if lines[i]][:BESIDE] or [below - 1])[-1]
    # The text of a window that cuts a span of code begins with the span's end.
    is_cut = "\n".join(lines[:first]).replace("```", "").count("`") % 2
    return "`" * is_cut + "\n".join(lines[first:last + 1])


def what_lacks(text, known):
    """What the lines beside a table lack."""
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text.replace("```", ""))]
    commands = [span for span in spans + text.splitlines() if COMMAND.fullmatch(span)]
    return [what for what, is_there in (
        ("a command that exists", any(exists(command, known) for command in commands)),
        ("a date", DATE.search(" ".join(text.split())))) if not is_there]


@case
def tables_of_results_have_their_command_and_date():
    known, count, wrong = targets(), 0, []
    for path in sorted((ROOT / "docs").glob("*.md")):
        page, text = f"docs/{path.name}", path.read_text(encoding="utf-8")
        for at, table in tables(text):
            near = beside(text.splitlines(), at)
            if not is_of_results(table) or any(mark in near for mark in COMPARED) or \
                    any((page, word) in COMPUTED for word in table[0]):
                continue
            count += 1
            lacks = set(what_lacks(near, known)) - ({"a date"} if page in UNDATED else set())
            wrong += [f"{page}:{at + 1}: the table lacks {what}" for what in sorted(lacks)]
    assert not wrong, "\n".join(wrong)
    assert count >= 12, count


@case
def commands_print_such_a_line():
    line = heading.line("make bench-state", ())
    assert not what_lacks(line, targets()) and " CPUs (" in line and " Linux " in line, line
    assert what_lacks("On 1 May 2026 by `make bench-nothing`:", targets()) == \
        ["a command that exists"]
    assert what_lacks("By `make bench-state`:", targets()) == ["a date"]
    table = heading.table(["", "A"], ["b", "1"])
    assert table == "| | A |\n|---|---|\n| b | 1 |", table


if __name__ == "__main__":
    main()
