# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Which file of a folder calls which other one. calls.txt states an order for each folder: a
file calls only functions of files before it. Exceptions in calls.txt must occur, so their list
can only shrink. Calls through pointers and from headers do not count.

    python3 tests/calls.py [FOLDER]...   prints lines for calls.txt, for all folders by default
"""
import collections
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STATED = os.path.join(ROOT, "tests", "calls.txt")
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)", re.S)
CALL = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(")


def code_of(path):
    with open(path, encoding="utf-8") as file:
        return ATTRIBUTE.sub(" ", DIRECTIVE.sub("", NOT_CODE.sub(" ", file.read())))


def functions_of(code):
    """The names of functions in a file, those of static functions in a second set."""
    public, static, depth, begin = set(), set(), 0, 0
    for match in re.finditer(r"[{};]", code):
        if match[0] == "{":
            head = code[begin:match.start()].strip()
            name = re.match(r"[^(=]*?\b([A-Za-z_]\w*)\s*\(", head)
            if not depth and name and head.endswith(")"):
                (static if re.match(r"static\b", head) else public).add(name[1])
            depth += 1
        elif match[0] == "}":
            depth -= 1
        if not depth:
            begin = match.end()
    return public, static


def calls_in(folder):
    """{(caller, callee): names of functions} of the files in a folder."""
    paths = {os.path.basename(path): path for path in glob.glob(os.path.join(folder, "*.c"))}
    code = {name: code_of(path) for name, path in paths.items()}
    functions = {name: functions_of(text) for name, text in code.items()}
    homes = collections.defaultdict(set)
    for name, (public, _) in functions.items():
        for function in public:
            homes[function].add(name)
    calls = collections.defaultdict(set)
    for name, text in code.items():
        for function in set(CALL.findall(text)) - functions[name][1]:
            if homes[function] and name not in homes[function]:
                for home in homes[function]:
                    calls[name, home].add(function)
    return sorted(paths), calls


def stated(path=STATED):
    """{folder: (its order, {(caller, callee) that are exceptions})}"""
    orders = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words and words[0] == "except":
                orders[words[1]][1].add((words[2], words[3]))
            elif words and words[0].endswith(":"):
                folder = words[0][:-1]
                orders[folder] = (words[1:], set())
            elif words:
                orders[folder][0].extend(words)
    return orders


def problems(root, orders):
    found = []
    for folder, (order, exceptions) in orders.items():
        names, calls = calls_in(os.path.join(root, folder))
        place = {name: at for at, name in enumerate(order)}
        found += [f"{folder}/{name} is not in the order of calls.txt"
                  for name in names if name not in place]
        found += [f"{folder}/{name} is in calls.txt, but does not exist"
                  for name in order if name not in names]
        wrong = {pair: functions for pair, functions in calls.items()
                 if all(name in place for name in pair) and place[pair[0]] < place[pair[1]]}
        found += [f"{folder}/{caller} calls {', '.join(sorted(functions))} of {callee}, which "
                  "calls.txt has after it" for (caller, callee), functions in wrong.items()
                  if (caller, callee) not in exceptions]
        found += [f"{folder}: {caller} no longer calls {callee}: remove the exception"
                  for caller, callee in exceptions - set(wrong)]
    return found + [f"{folder} is not in calls.txt" for folder in folders(root)
                    if folder not in orders]


def folders(root):
    """All folders with two files of C or more, except those of tests."""
    counted = collections.Counter(os.path.relpath(os.path.dirname(path), root)
                                  for part in ("driver", "lib", "tools", "bench")
                                  for path in glob.glob(os.path.join(root, part, "**", "*.c"),
                                                        recursive=True))
    return sorted(folder for folder, count in counted.items() if count > 1)


def best_order(names, calls):
    """An order with few exceptions: the best move of one file, as long as that helps."""
    order = sorted(names, key=lambda name: sum(pair[0] == name for pair in calls))

    def cost(order):
        place = {name: at for at, name in enumerate(order)}
        return sum(place[caller] < place[callee] for caller, callee in calls)
    best, is_better = cost(order), True
    while is_better and best:
        is_better = False
        for name in names:
            rest = [other for other in order if other != name]
            moved = min(([*rest[:at], name, *rest[at:]] for at in range(len(order))), key=cost)
            if cost(moved) < best:
                order, best, is_better = moved, cost(moved), True
    return order


def write(root, wanted):
    for folder in wanted or folders(root):
        names, calls = calls_in(os.path.join(root, folder))
        order = best_order(names, calls)
        line = f"{folder}:"
        for name in order:
            if len(line) + len(name) > 98:
                print(line)
                line = "       "
            line += f" {name}"
        print(line)
        place = {name: at for at, name in enumerate(order)}
        for (caller, callee), functions in sorted(calls.items()):
            if place[caller] < place[callee]:
                print(f"except {folder} {caller} {callee}   # {', '.join(sorted(functions))}")


if __name__ == "__main__":
    write(ROOT, sys.argv[1:])
