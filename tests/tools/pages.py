# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The pages of the top folder and of docs/, the fenced blocks in them, and what pages can name."""
import functools
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
         for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))}
LANGUAGES = {"c", "python", "sh", "console", "text"}


def lines_by_language(text):
    """Each line with the language of its block: None outside of blocks, "fence" for a
    fence."""
    language, before = None, ""
    for line in text.splitlines():
        assert language or before or not line.startswith("    "), \
            f"an indented block, which has no language: {line}"
        before = line
        fence = re.fullmatch(r"```(.*)", line)
        if fence:
            assert (language is None) != (fence[1] == ""), f"a fence without a language: {line}"
            assert language or fence[1] in LANGUAGES, f"{line} is none of {sorted(LANGUAGES)}"
            language = fence[1] or None
        yield "fence" if fence else language, line


def program(page, wanted="python"):
    """Returns the page's program in this language, with each line where it is in the page. Returns
    "" if there is none."""
    lines = [line if language == wanted else ""
             for language, line in lines_by_language(TEXTS[page])]
    return "\n".join(lines) + "\n" if any(lines) else ""


@functools.cache
def targets():
    """Returns the targets of make."""
    rules = subprocess.run(["make", "-pRrq", ":"], cwd=ROOT, text=True, check=False,
                           env={"PATH": os.environ["PATH"]},
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return set(re.findall(r"^([\w./-]+):(?!=)", rules, re.MULTILINE))
