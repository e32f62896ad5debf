# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Starts the exporter, and reads what it tells."""
import contextlib
import re
import signal
import subprocess
import urllib.request

from harness import ACTMEM, ISOLATED, actmem, clean_environment, expect
from tap import Skip

SAMPLE = re.compile(r'([a-z_]+)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def parse(text):
    """[(name, {label: value}, number)]; what is neither a sample nor a comment fails."""
    samples = []
    for line in text.splitlines():
        if line.startswith(("# HELP ", "# TYPE ")):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, labels, number = match.groups()
        assert not LABEL.sub("", labels or ""), line
        samples.append((name, dict(LABEL.findall(labels or "")), float(number)))
    return samples


def value(samples, name, **labels):
    """That of the one sample with these labels among others."""
    found = [number for other, have, number in samples
             if other == name and labels.items() <= have.items()]
    assert len(found) == 1, (name, labels, found, samples)
    return found[0]


def printed(**options):
    result = actmem("exporter", "--textfile", "-", **options)
    expect(result, 0)
    return result.stdout


def loopback():
    """Up: it begins down in a network namespace of its own."""
    if not ISOLATED:
        raise Skip("needs a network namespace of its own")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@contextlib.contextmanager
def exporter(*arguments, prefix=(), program=ACTMEM):
    """The process and the URL that it prints."""
    loopback()
    with subprocess.Popen([*prefix, program, "exporter", *arguments], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=clean_environment()) as process:
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http://"), (url, process.stderr.read())
            yield process, url
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def fetch(url, method="GET"):
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()
