# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Measure which share of a step's copies is hidden behind its kernels, by JAX's profiler.
The time of a whole step does not prove that they overlap."""
import glob
import gzip
import json
import os
import tempfile

COPIES = {"hidden_out": "MemcpyD2H", "hidden_in": "MemcpyH2D"}


def _united(spans):
    """Merge overlapping spans, in order."""
    united = []
    for start, end in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1][1] = max(end, united[-1][1])
        else:
            united.append([start, end])
    return united


def _length(spans):
    return sum(end - start for start, end in spans)


def _common(ones, others):
    """Return the length of what both have, each of which is united."""
    return _length(ones) + _length(others) - _length(_united([*ones, *others]))


def hidden(events):
    """Return the share of the time of copies out, and of copies in, in which a kernel ran.
    `events` are those of a trace for Chrome's viewer."""
    devices = {event["pid"] for event in events if event.get("name") == "process_name" and
               "/device:GPU" in event["args"]["name"]}
    streams = {(event["pid"], event["tid"]) for event in events
               if event.get("name") == "thread_name" and event["pid"] in devices and
               event["args"]["name"].startswith("Stream")}
    spans = {}
    for event in events:
        if event.get("ph") == "X" and (event["pid"], event["tid"]) in streams:
            name = event["name"]
            kind = next((kind for kind, copy in COPIES.items() if copy in name),
                        None if name.startswith(("Memcpy", "Memset")) else "kernels")
            spans.setdefault(kind, []).append((event["ts"], event["ts"] + event["dur"]))
    spans = {kind: _united(each) for kind, each in spans.items()}
    return {kind: _common(spans[kind], spans.get("kernels", [])) / _length(spans[kind])
            for kind in COPIES if kind in spans and _length(spans[kind])}


def of_step(step):
    """Return that of one call of `step`, or why it is not known."""
    import jax
    try:
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(step())
            found = glob.glob(os.path.join(folder, "**", "*.trace.json.gz"), recursive=True)
            with gzip.open(found[0], "rt", encoding="utf-8") as file:
                return hidden(json.load(file)["traceEvents"])
    except Exception as error:      # of the profiler: the times stay
        return {"overlap_missing": f"{type(error).__name__}: {str(error)[:200]}"}
