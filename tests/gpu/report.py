# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the parts of tests/gpu/run printed, kept in a file and shown as tables.

A part's program prints TAP, or lines of JSON, or both:
    {"figure": what, "value": 3.1, "unit": "GB/s", "peer": what, "peer_value": 2, "ratio": 1.55}
    {"fact": question, "answer": text}
    {"case": name, ...}            one row of a table; columns are the keys
    {"predicted": case, ...}       what is expected of it, before it is run
Anything else that is JSON is kept as it is.
"""
import datetime
import json
import os
import re

NOTHING = re.compile(r"^1\.\.0\b *#\s*(skip.*)$", re.IGNORECASE)
RESULT = re.compile(r"^(not ok|ok)\b *\d* *-? *(.*)$")
SKIP = re.compile(r"#\s*skip\b:?\s*(.*)$", re.IGNORECASE)
TAIL_LINES = 15


def _now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


class Output:
    """What one program printed, line by line."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []
        self.figures, self.facts, self.cases, self.data = [], {}, [], []
        self.predictions = []
        self.prefix = ""        # of facts
        self._open = []
        self._last = []

    def take(self, line):
        self._last = [*self._last[-TAIL_LINES:], line.rstrip()]
        nothing = NOTHING.match(line)
        if nothing:
            self.skipped.append(nothing[1])
        result = RESULT.match(line)
        if result:
            skip = SKIP.search(result[2])
            if skip:
                self.skipped.append(result[2])
            elif result[1] == "ok":
                self.passed += 1
            else:
                self.failed.append(result[2])
        elif line[:1] in ("{", "[") or self._open:
            self._take_json(line)

    def _take_json(self, line):
        """One value may be spread over lines; one that is complete ends what is none."""
        if self._open and line[:2] == '{"':
            try:
                json.loads(line)
                self._open = []
            except ValueError:
                pass
        self._open.append(line)
        try:
            value = json.loads("".join(self._open))
        except ValueError:
            if line.rstrip() in ("}", "]"):
                self._open = []
            return
        self._open = []
        if not isinstance(value, dict):
            self.data.append(value)
        elif "figure" in value:
            self.figures.append(value)
        elif "fact" in value:
            self.facts[self.prefix + value["fact"]] = value.get("answer")
        elif "case" in value:
            self.cases.append(value)
        elif "predicted" in value:
            self.predictions.append({**value, "written": _now()})
        else:
            self.data.append(value)

    def tail(self):
        return self._last

    def as_dict(self):
        values = {"passed": self.passed, "failed": self.failed, "skipped": self.skipped,
                  "figures": self.figures, "facts": self.facts, "cases": self.cases,
                  "predictions": self.predictions, "data": self.data}
        return {name: value for name, value in values.items() if value or name == "passed"}


KEYS = {"cases": "case", "figures": "figure", "predictions": "predicted"}


def merged(before, result):
    """Of one part: the newer result, and rows and figures of other names that an older
    one has: a part may be run in pieces. Those keep their date."""
    if result["status"] == "left out" and before.get("status", "left out") != "left out":
        return before
    for kind, key in KEYS.items():
        new = {row[key] for row in result.get(kind, [])}
        old = [{"date": before["date"], **row} for row in before.get(kind, [])
               if row[key] not in new]
        if old:
            result = {**result, kind: old + result.get(kind, [])}
    return result


def _cards(content):
    """Cards of one kind are as good as one another: a second machine may have another."""
    return sorted(card["name"] for card in content.get("machine", {}).get("gpus") or ())


class Report:
    """The file of results. Of parts that were run before and are not now, it keeps what
    they gave; results of another card, and what is no such file, are put aside."""

    def __init__(self, path, description, versions, date):
        self.path = path
        self.content = {"date": date, "machine": description, "versions": versions, "parts": {}}
        self.told = None
        try:
            before = read(path)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._put_aside(f"it is none of results: {error}")
            return
        if _cards(before) and _cards(self.content) and _cards(before) != _cards(self.content):
            self._put_aside(f"it is of {_cards(before)[0]}")
        else:
            self.content["parts"] = before["parts"]

    def _put_aside(self, why):
        aside = f"{self.path}.{self.content['date'].replace(':', '')}"
        os.replace(self.path, aside)
        self.told = f"{self.path} is put aside as {aside}: {why}"

    def add(self, name, result):
        before = self.content["parts"].get(name, {})
        self.content["parts"][name] = merged(before, {"date": self.content["date"], **result})
        self.write()

    def write(self):
        """A full disk costs no measurement: it is said, and tried again with the next."""
        temporary = f"{self.path}.new"
        try:
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(self.content, file, indent=1)
                file.write("\n")
            os.replace(temporary, self.path)
        except OSError as error:
            print(f"  {self.path} could not be written: {error}", flush=True)


def read(path):
    """A file of results; ValueError if it is none."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if not isinstance(content, dict) or not isinstance(content.get("parts"), dict):
        raise ValueError(f"{path} has no results of tests/gpu/run")
    return content


def together(contents):
    """Of several machines or runs: the newest of each part, and of each case and figure."""
    contents = sorted(contents, key=lambda content: content["date"])
    parts = {}
    for content in contents:
        for name, part in content["parts"].items():
            if parts.get(name, {}).get("date", "") <= part["date"]:
                parts[name] = merged(parts.get(name, {}), part)
    return {**contents[-1], "parts": parts}


def _text(value):
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value))
    return "-" if value is None else str(value)


def table(rows, columns):
    """`rows` are dicts; columns that no row has are left out."""
    columns = [column for column in columns if any(row.get(column) is not None for row in rows)]
    lines = [[column.upper() for column in columns]]
    lines += [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in lines)


def summary(parts):
    rows = [{"part": name, "status": part["status"], "seconds": round(part["seconds"], 1),
             "passed": part.get("passed", 0), "failed": len(part.get("failed", [])),
             "skipped": len(part.get("skipped", [])), "why": part.get("why")}
            for name, part in parts.items()]
    return table(rows, ("part", "status", "seconds", "passed", "failed", "skipped", "why"))


def figures(parts):
    """Those of all parts with a peer in the same run."""
    rows = [{"part": name, **figure} for name, part in parts.items()
            for figure in part.get("figures", []) if figure.get("ratio") is not None]
    return table(rows, ("part", "figure", "value", "unit", "peer", "peer_value", "ratio")) \
        if rows else ""


def cases(parts):
    """Rows of each part that has a table of its own."""
    texts = []
    for name, part in parts.items():
        rows = part.get("cases", [])
        if not rows:
            continue
        columns = [key for key in dict.fromkeys(key for row in rows for key in row)
                   if not any(isinstance(row.get(key), (dict, list)) for row in rows)]
        texts.append(f"{name}:\n{table(rows, columns)}")
    return "\n\n".join(texts)
