# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Run programs for a limited time, end all that they started, and read what they print.

A program prints TAP, or lines of JSON, or both:
    {"figure": what, "value": 3.1, "unit": "GB/s"}
    {"fact": question, "answer": text}
    {"case": name, ...}            a row of the table
    {"predicted": case, ...}       printed before the case runs
Any other line of JSON is kept as data.
"""
import contextlib
import glob
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

NOTHING = re.compile(r"^1\.\.0\b *#\s*(skip.*)$", re.IGNORECASE)
RESULT = re.compile(r"^(not ok|ok)\b *\d* *-? *(.*)$")
SKIP = re.compile(r"#\s*skip\b", re.IGNORECASE)
TAIL_LINES = 15
WRITE_SECONDS = 2
_numbers = itertools.count()


def marked(mark):
    """Return the processes whose environment has the mark: a program and all its children."""
    found = set()
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if mark.encode() in file.read().split(b"\0"):
                found.add(int(path.split("/")[2]))
    return found - {os.getpid()}


def end(mark, seconds=3):
    """End all processes with the mark; return those that do not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + seconds
        while (pids := marked(mark)) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)
    return marked(mark)


def execute(argv, seconds, environment, take, errors, good=(0,)):
    """Run a program; call take() with each line of its output. Return why it failed."""
    mark = f"ACTMEM_GPU_RUN_{os.getpid()}_{next(_numbers)}=1"
    name, _, value = mark.partition("=")
    try:
        process = subprocess.Popen(
            argv, env={**os.environ, **environment, name: value}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace")
    except OSError as error:
        return str(error)

    def read():
        for line in process.stdout:
            take(line.rstrip())
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    status = still = None
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(max(seconds, 0.1))
    finally:
        still = end(mark)
    reader.join(5)
    if still:
        return f"process {min(still)} cannot be ended"
    if status is None or status < 0:
        return f"killed by signal {-status}" if status else f"not done in {seconds:.0f} s"
    return None if status in good else f"exit status {status}"


def run_json(argv, seconds, environment):
    """Return the JSON that a program prints as its last line, or None and the reason."""
    lines, found = [], None
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        why = execute(argv, seconds, environment, lines.append, errors)
        errors.seek(0)
        told = [line for line in errors.read().splitlines() if line.strip()]
    print("\n".join(line for line in lines if line.startswith("#")), flush=True)
    if not why:
        try:
            found = json.loads(lines[-1])
        except (ValueError, IndexError):
            why = "it printed no JSON"
    if why:
        print("\n".join(told[-40:]), file=sys.stderr, flush=True)
        telling = [line for line in told if "RESOURCE_EXHAUSTED" in line or "Error" in line or
                   "actmem" in line] or told or ["?"]
        why = f"{why}: {telling[-1][:300]}"
    return found, why


class Output:
    """What the programs of a part printed."""

    LISTS = {"figure": "figures", "case": "cases", "predicted": "predictions"}

    def __init__(self):
        self.found = {"passed": 0, "failed": [], "skipped": [], "figures": [], "facts": {},
                      "cases": [], "predictions": [], "data": []}
        self.last = []

    def take(self, line):
        self.last = [*self.last[1 - TAIL_LINES:], line]
        nothing, result = NOTHING.match(line), RESULT.match(line)
        if nothing:
            self.found["skipped"].append(nothing[1])
        elif result and SKIP.search(result[2]):
            self.found["skipped"].append(result[2])
        elif result and result[1] == "ok":
            self.found["passed"] += 1
        elif result:
            self.found["failed"].append(result[2])
        elif line[:1] == "{":
            with contextlib.suppress(ValueError):
                self.take_json(json.loads(line))

    def take_json(self, value):
        if "fact" in value:
            self.found["facts"][value["fact"]] = value["answer"]
        else:
            kind = next((self.LISTS[key] for key in self.LISTS if key in value), "data")
            self.found[kind].append(value)

    def result(self, reasons, seconds):
        bad = reasons + self.found["failed"]
        found = {name: value for name, value in self.found.items() if value or name == "passed"}
        return {"status": "failed" if bad else "ok", "seconds": round(seconds, 1), **found,
                **({"why": "; ".join(bad)[:300], "tail": self.last} if bad else {})}


def run_part(commands, seconds, log_path, write):
    """Run the commands of a part, each with (name, argv, environment, seconds, good). Call
    write() with what there is of the result, again and again, and return the result."""
    began = written = time.monotonic()
    output, reasons = Output(), []
    with open(log_path, "w", encoding="utf-8") as log:
        def take(line):
            nonlocal written
            log.write(f"{line}\n")
            log.flush()
            output.take(line)
            if line.startswith(('{"case"', "not ok")):
                print(f"  {line[:200]}", flush=True)
            if time.monotonic() - written > WRITE_SECONDS:
                written = time.monotonic()
                write({**output.result(reasons, written - began), "status": "unfinished"})

        for name, argv, environment, limit, good in commands:
            left = seconds - (time.monotonic() - began)
            log.write(f"$ {' '.join(map(str, argv))}\n")
            log.flush()
            why = execute(list(map(str, argv)), min(left, limit), environment, take, log, good) \
                if left > 1 else "no time left"
            if why:
                reasons.append(f"{name}: {why}")
                log.write(f"# {reasons[-1]}\n")
    return output.result(reasons, time.monotonic() - began)
