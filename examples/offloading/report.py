# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Parses the command line of the examples, and prints their output: a table of memory, and whether
each row's results equal those of the first row, which offloads nothing."""
import argparse
import atexit
import gc
import importlib.util
import json
import math
import os
import textwrap
from pathlib import Path

import jax

from offloading import memory
from offloading.compare import TOLERANCE, compare, digest, on_host

# Matrix products in TF32 on a GPU would be too inexact for the comparison.
jax.config.update("jax_default_matmul_precision", "highest")

WIDTH = 80
ON_CPU = """On a CPU, device and host have the same memory. JAX accepts requests for \
pinned_host but moves nothing, so no row has bytes on the host. Rows differ in the values \
that are recomputed, and in the values that reuse the memory of earlier values."""
PUT = "Offloaded values were really moved to actmem and back."
HELD = "Weights were in actmem all the time, and each layer took its own weights."
WRONG = """These results are wrong: {names}. Some versions of JAX, such as 0.11.0, compute \
wrong gradients if a program offloads values (docs/offloading.md). This is JAX \
{version}."""
WRONG_IN_ACTMEM = "The results of 'actmem' are wrong. This is a defect of actmem."
LEFT = "{blocks} blocks and {regions} regions of actmem are left, but none should be left."


def options(text):
    """Parses the command line. `text` is the program's description."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--with", dest="way", choices=("plain", "actmem"), default="plain",
                        help="actmem: add a row that uses actmem.jax")
    parser.add_argument("--small", action="store_true", help="small sizes, for tests")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="write the results to this file as JSON")
    arguments = parser.parse_args()
    if arguments.way == "actmem" and not importlib.util.find_spec("actmem"):
        parser.error("--with actmem: this Python cannot import actmem; run the program "
                     "under `actmem run --`")
    if arguments.json:
        try:
            arguments.json.unlink(missing_ok=True)  # from an earlier run
            _unfinished(arguments.json).touch()
            _unfinished(arguments.json).unlink()
        except OSError as error:
            parser.error(f"--json {arguments.json}: {error}")
    return arguments


def _unfinished(path):
    return path.with_name(path.name + ".part")


def _as_json(document):
    """Returns JSON, with null for infinity and NaN, which JSON lacks."""
    finite = [row | {name: None for name in ("difference", "relative")
                     if not math.isfinite(row[name])} for row in document["rows"]]
    return json.dumps(document | {"rows": finite}, indent=1, allow_nan=False)


def on_gpu():
    return jax.default_backend() == "gpu"


def total_put():
    """Returns how many bytes all calls together have put into actmem."""
    import actmem.jax
    return actmem.jax.stats()["put_bytes_total"]


class Report:
    """Collects rows by run() or add(). finish() prints them."""

    def __init__(self, program, arguments, sizes):
        self.arguments = arguments
        self.wanted = None
        self.document = {
            "program": program, "with": arguments.way, "jax": jax.__version__,
            "platform": jax.default_backend(),
            "device": jax.devices()[0].device_kind,
            "sizes": sizes._asdict(), "tolerance": TOLERANCE, "actmem": None, "rows": []}
        atexit.register(self._tell_unfinished)

    def run(self, name, function, *arguments, tutorial=None, in_actmem=False):
        """Compiles a jitted function, calls it, and adds a row with its memory and results."""
        compiled = function.lower(*arguments).compile()
        before = total_put() if in_actmem else None
        self.add(name, compiled, compiled(*arguments), tutorial, in_actmem, before)

    def add(self, name, compiled, results, tutorial=None, in_actmem=False, before=None):
        """Adds a row. On a GPU, the report prints the sizes in `tutorial` below the row. `before`
        is the result of total_put() before the call. If `before` is None, the row shows how many
        bytes the last run stored in actmem; runs that stored none do not count."""
        arrays = on_host(results)
        row = {"name": name} | memory.analysis(compiled)
        row |= self._in_actmem(before) if in_actmem else dict.fromkeys(
            ("actmem_put_bytes", "actmem_held_bytes", "actmem_bytes"), 0)
        row["tutorial"] = tutorial if on_gpu() and not self.arguments.small else None
        self.wanted = self.wanted or arrays
        compared = compare(arrays, self.wanted)
        self.document["rows"].append(row | compared._asdict() | {"digest": digest(arrays)})

    def _in_actmem(self, before):
        """Returns how many bytes the last call put into actmem, how many bytes stay in actmem, and
        the sum."""
        import actmem
        import actmem.jax
        self.document["actmem"] = {"backend": actmem.describe(),
                                   "regions": actmem.regions()}
        put = actmem.jax.stats()["last_run_put_bytes"] if before is None else total_put() - before
        held = actmem.counters()["block_bytes"]
        if not put + held:
            raise RuntimeError("nothing is in actmem")
        return {"actmem_put_bytes": put, "actmem_held_bytes": held,
                "actmem_bytes": put + held}

    def _release_actmem(self):
        """Frees the regions. Records how many blocks and regions are left. Returns true if none is
        left."""
        import actmem
        import actmem.jax
        gc.collect()    # JAX's lowered programs form reference cycles, which hold arguments
        actmem.jax.stats()      # frees stored values that Python has deleted
        blocks = actmem.counters()["blocks"]
        actmem.jax.reset()
        regions = actmem.counters()["regions"]
        self.document["actmem"] |= {"blocks_left": blocks, "regions_left": regions}
        return not blocks and not regions

    def finish(self):
        """Prints and writes the report, and returns the exit status."""
        atexit.unregister(self._tell_unfinished)
        released = not self.document["actmem"] or self._release_actmem()
        agree = all(row["agrees"] for row in self.document["rows"])
        self.document["ok"] = agree and released
        self._tell()
        return 0 if self.document["ok"] else 1

    def _tell(self):
        print(self._text())
        path = self.arguments.json
        if path:
            _unfinished(path).write_text(_as_json(self.document) + "\n")
            os.replace(_unfinished(path), path)

    def _tell_unfinished(self):
        """Prints the finished rows if the program fails in a later row."""
        if self.document["rows"]:
            self.document |= {"ok": False, "unfinished": True, "actmem": None}
            self._tell()

    def _text(self):
        document, (first, *others) = self.document, self.document["rows"]
        device = " ".join(dict.fromkeys((document["platform"], document["device"])))
        paragraphs = [textwrap.fill(paragraph, WIDTH) for paragraph in self._paragraphs()]
        return "\n\n".join([
            f"{document['program']} on {device}, JAX {document['jax']}",
            memory.table(document["rows"]),
            "\n".join(comparison(row, first) for row in others), *paragraphs])

    def _paragraphs(self):
        document, in_actmem = self.document, self.document["actmem"]
        if document["platform"] == "cpu":
            yield ON_CPU
        if in_actmem:
            length = sum(region["length"] for region in in_actmem["regions"])
            pages = sorted({region["pages"] for region in in_actmem["regions"]})
            said = [words for words, key in ((PUT, "actmem_put_bytes"),
                                             (HELD, "actmem_held_bytes"))
                    if any(row[key] for row in document["rows"])]
            yield (f"{' '.join(said)} The regions are {length / 2**20:.0f} MiB of "
                   f"{' and '.join(pages)} pages; {in_actmem['backend']}.")
        wrong = [row for row in document["rows"] if not row["agrees"]]
        stock = [repr(row["name"]) for row in wrong if not row["actmem_bytes"]]
        if stock:
            yield WRONG.format(names=", ".join(stock), version=document["jax"])
        elif wrong:
            yield WRONG_IN_ACTMEM
        if in_actmem and (in_actmem["blocks_left"] or in_actmem["regions_left"]):
            yield LEFT.format(blocks=in_actmem["blocks_left"],
                              regions=in_actmem["regions_left"])


def comparison(row, first):
    """Returns a line that compares a row's results with those of the first row."""
    if row["equal"]:
        return f"{row['name']}: the results of '{first['name']}', bit by bit"
    return (f"{row['name']}: {'agrees with' if row['agrees'] else 'NOT the results of'} "
            f"'{first['name']}', largest difference {row['difference']:.1e}, "
            f"{row['relative']:.1e} of the largest value")
