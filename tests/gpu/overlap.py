# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What of a step's copies between host and device is hidden behind its kernels, by JAX's
profiler: the proof that they overlap, which no time of a whole step is."""
import glob
import gzip
import json
import os
import shutil
import tempfile

COPIES = {"hidden_out": "MemcpyD2H", "hidden_in": "MemcpyH2D"}


def _united(spans):
    """Without overlaps, in order."""
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
    common, i = 0, 0
    for start, end in ones:
        while i < len(others) and others[i][1] <= start:
            i += 1
        common += sum(max(0, min(end, b) - max(start, a)) for a, b in others[i:] if a < end)
    return common


def hidden(events):
    """Of copies out and in, the share of their time in which a kernel ran; of those there are.
    `events` are a trace's, as Chrome's viewer takes them."""
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


def of_step(step, path):
    """Of one call of `step`, whose profile goes to `path`; or why it is not known."""
    import jax
    try:
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(step())
            found = glob.glob(os.path.join(folder, "**", "*.trace.json.gz"), recursive=True)
            if not found:
                return {"overlap_missing": "JAX's profiler wrote no trace.json.gz"}
            shutil.copy(found[0], path)
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return hidden(json.load(file)["traceEvents"]) or \
                {"overlap_missing": "the profile has no copies of a GPU"}
    except Exception as error:      # of the profiler: the times stay
        return {"overlap_missing": f"{type(error).__name__}: {str(error)[:200]}"}
