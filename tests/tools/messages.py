# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Messages of the commands in their sources, and in DIAGNOSTICS of actmem(1)."""
import glob
import os
import re

from options import ROOT, manual, source

CALL = re.compile(r'\b(?:warnx?|errx?)\((?:STATUS_\w+,\s*)?((?:"(?:[^"\\]|\\.)*"|[^",;])*)')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
# What stands for something, as _file_.
PLACE = re.compile(r"(?<!\w)_[^_]+_(?!\w)")
CONVERSION = re.compile(r"%[-.*0-9]*(?:ll|l|z)?[a-zA-Z]")
# Told with --verbose, or with words of the library alone.
ASKED_FOR = ("malloc: pages come", "malloc: each block", "malloc: blocks of",
             "malloc: transparent", "cuda: the preload")


def joined(text):
    """C with one literal where several side by side, and macros, are one."""
    text = text.replace('DEVICE "', '"/dev/actmem').replace("LIBRARY", '"%s"')
    text = re.sub(r'"\s*PRI\w+\s*"', "lu", text)
    text = re.sub(r'"\s*(?:PROGRAM|PYTHON|HEADING|SHMEM_ENABLED|DRIVER_SYSFS|SAVED_FILE|FOLDER|UNIT)\s*"', "%s", text)
    return re.sub(r'"\s*"', "", text)


def told():
    """The formats of all messages that have words of their own."""
    paths = [path for folder in ("tools", "bench")
             for path in glob.glob(os.path.join(ROOT, folder, "*.c"))]
    literals = [literal for path in paths for call in CALL.findall(joined(source(path)))
                for literal in LITERAL.findall(call)]
    return [text for text in literals if not text.startswith(ASKED_FOR) and
            len(CONVERSION.sub("", text).strip(" :'")) > 9]


def manuals():
    """The terms of DIAGNOSTICS, each as its fixed parts: the library's, and the commands'."""
    library, _, commands = manual()["DIAGNOSTICS"].partition("\n## ")
    return terms_of(library), terms_of(commands)


def terms_of(text):
    heads = re.findall(r"^(?![\t#*])(\S.*)\n\t", text, re.MULTILINE)
    return [[part.strip(" ('") for part in PLACE.split(term.replace("\\-", "-")) if len(part) > 1]
            for head in heads for term in head.split("; ")]


def is_told(parts, message):
    """Whether all of them are there, in their order."""
    return parts[0] in message and re.search(".*?".join(map(re.escape, parts)), message)


def sources():
    """All that may tell something."""
    names = [path for kind in ("*.c", "*.h", "*.py") for folder in ("lib", "tools", "bench")
             for path in glob.glob(os.path.join(ROOT, folder, "**", kind), recursive=True)]
    return re.sub(r'"\s*f?"', "", joined("".join(source(name) for name in names)))
