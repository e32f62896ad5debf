# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem probe: measures this machine once, and saves the results in $XDG_CACHE_HOME/actmem."""
from __future__ import annotations

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import actmem
import actmem.jax
from actmem import _wheel
from actmem._command import UsageError
from actmem.jax._calls import put_here, take_here, tie_here
from actmem.plan import machine

ROUNDS = 3                      # minimum number of runs of a measurement
IN_A_ROW = 8                    # number of matrix products that run one after the other in one
                                # program
COLD = 64 << 20                 # bytes of a copy: more than caches hold
USUAL = {"cpu": "256x1024x1024,1024x1024x1024,1024x1024x4096"}
USUAL_LARGE = "4096x4096x4096,4096x8192x8192,8192x8192x28672"
KEYS = {"figures": dict, "products": list, "nodes": list, "spill": list}


class ProbeError(RuntimeError):
    """A measurement is not possible here, or its results cannot be read or saved."""


def identity() -> dict[str, Any]:
    """Returns the properties that identify this machine. Saved results are valid only while all
    of these properties stay the same."""
    processor = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            processor = next((line.split(":", 1)[1].strip() for line in file
                              if line.startswith("model name")), processor)
    except OSError:
        pass
    devices = jax.local_devices()
    return {"host": platform.node(), "processor": processor,
            "processors": os.cpu_count() or 1, "jax": jax.__version__,
            "device": devices[0].device_kind, "platform": devices[0].platform,
            "devices": len(devices), "flags": os.environ.get("XLA_FLAGS", "")}


def cache_path() -> str:
    """Returns the path of the saved results for this machine."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    words = json.dumps(identity(), sort_keys=True).encode()
    return os.path.join(folder, "actmem", f"probe-{hashlib.sha256(words).hexdigest()[:16]}.json")


def kept() -> dict[str, Any] | None:
    """Returns the saved results for this machine, or None."""
    path = cache_path()
    try:
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ProbeError(f"cannot read the saved results {path}: {error}; remove the file, or "
                         "measure again with --again") from None
    if not isinstance(told, dict) or told.get("machine") != identity() or not all(
            isinstance(told.get(key), kind) for key, kind in KEYS.items()):
        raise ProbeError(f"{path} has the results of another machine or version: remove the file, "
                         "or measure again with --again")
    return told


def keep(told: dict[str, Any]) -> None:
    path = cache_path()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
        os.replace(file.name, path)
    except OSError as error:
        raise ProbeError(f"cannot save the results in {path}: {error}; set XDG_CACHE_HOME to "
                         "another folder") from None


def here() -> machine.Machine:
    """Returns a description of this machine, with the rates that the probe measured.

    Raises:
      machine.MachineError: The probe has not measured this machine.
    """
    try:
        told = kept()
    except ProbeError as error:
        raise machine.MachineError(str(error)) from None
    if told is None:
        raise machine.MachineError("this machine has not been measured: run "
                                   f"{_wheel.command('probe')}, or name a machine in the table")
    return machine.from_json(told, cache_path())


def _seconds(run: Callable[[], Any], limit: float) -> float:
    """Returns the median time of a run. Ignores the time of the first run."""
    run()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < ROUNDS or time.perf_counter() - begun < limit:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure_product(m: int, k: int, n: int, dtype: str, limit: float, batch: int = 1,
                    ) -> dict[str, Any]:
    """Measures the rate of a matrix product. The measured program computes several products, and
    each of them waits for the previous one."""
    several = (batch,) if batch > 1 else ()
    a = jnp.ones((*several, m, k), dtype)
    b = jnp.ones((*several, k, n), dtype)

    def body(a: Any, _: None) -> tuple[Any, None]:
        most = jnp.minimum(jnp.max(a @ b), 1)       # max() needs the whole product
        return a.at[(0,) * a.ndim].set(most.astype(a.dtype)), None
    products = jax.jit(lambda a: jax.lax.scan(body, a, None, length=IN_A_ROW)[0])
    seconds = _seconds(lambda: products(a).block_until_ready(), limit) / IN_A_ROW
    return {"m": m, "k": k, "n": n, "dtype": dtype, "batch": batch,
            "flops": 2 * batch * m * k * n / seconds}


def _measure_products(told: list[dict[str, Any]], wanted: Sequence[tuple[Any, ...]],
                      limit: float) -> None:
    """Measures those of the `wanted` products that are not in `told`. Each of several rounds
    measures every such product once. Appends the best result of each product to `told`, so that a
    short disturbance does not lower the result."""
    there = {(one["m"], one["k"], one["n"], one["dtype"], one.get("batch", 1)) for one in told}
    missing = [(*product, 1)[:5] for product in dict.fromkeys(wanted)]
    missing = [product for product in missing if product not in there]
    turns = [[measure_product(m, k, n, dtype, limit / ROUNDS, batch)
              for m, k, n, dtype, batch in missing]
             for _ in range(ROUNDS)]
    told += [max(of_one, key=lambda one: one["flops"]) for of_one in zip(*turns)]


def measure_memory(size: int, limit: float) -> float:
    """Returns the rate of reading plus writing device memory, in bytes a second."""
    x = jnp.ones(size // 4, jnp.float32)
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    values = [x]

    def run() -> None:
        values[0] = add(values[0]).block_until_ready()
    return 2 * x.nbytes / _seconds(run, limit)


def measure_elements(limit: float) -> dict[str, float]:
    """Returns two rates, in elements a second: that of exp(), and that of reads that do not follow
    memory order."""
    x = jnp.ones((4, 512, 512), jnp.float32)
    exp = jax.jit(jnp.exp)
    turned = jax.jit(lambda x: jnp.swapaxes(x, 1, 2) * 2)
    return {"transcendentals": x.size / _seconds(lambda: exp(x).block_until_ready(), limit),
            "strided": x.size / _seconds(lambda: turned(x).block_until_ready(), limit)}


def measure_transfers(limit: float, count: int = 64) -> float:
    """Returns how many small values actmem.jax can transfer to or from the host in a second."""
    x = jnp.ones(64, jnp.float32)

    def body(x: Any, _: None) -> tuple[Any, None]:
        token = put_here(x, "probe", bounded=True, many=False)
        token, = tie_here(token, x, numbers=(0,))
        return take_here(token, x.shape, x.dtype, "probe", ends=True), None
    moved = jax.jit(lambda x: jax.lax.scan(body, x, None, length=count)[0])
    return 2 * count / _seconds(lambda: moved(x).block_until_ready(), limit)


class _Copies:
    """Copies data between actmem's memory and ordinary memory, in which XLA's CPU backend computes.
    Each copy uses as many threads as there are processors, as XLA's thread pool does."""

    def __init__(self, size: int) -> None:
        self.threads = os.cpu_count() or 1
        self.pool = concurrent.futures.ThreadPoolExecutor(2 * self.threads)
        self.device = [np.ones(size, np.uint8) for _ in range(2)]
        self.host: list[Any] = [actmem.jax.empty((size,), np.uint8) for _ in range(2)]
        for array in self.host:
            array[:] = 1

    def start(self, target: Any, source: Any) -> list[concurrent.futures.Future[None]]:
        step = -(-target.size // self.threads)
        return [self.pool.submit(np.copyto, target[i:i + step], source[i:i + step])
                for i in range(0, target.size, step)]

    def run(self, *directions: str) -> None:
        waits = []
        for direction in directions:
            if direction == "out":
                waits += self.start(self.host[0], self.device[0])
            else:
                waits += self.start(self.device[1], self.host[1])
        for wait in waits:
            wait.result()


class _Transfers:
    """Copies data between devices and JAX's pinned_host memory."""

    def __init__(self, size: int, devices: Sequence[jax.Device]) -> None:
        kinds = [jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
                 for device in devices]
        self.there = kinds
        self.here = [jax.sharding.SingleDeviceSharding(device) for device in devices]
        self.device = [jax.device_put(jnp.ones(size, jnp.uint8), one) for one in self.here]
        self.host = [jax.device_put(x, one) for x, one in zip(self.device, kinds)]

    def run(self, *directions: str) -> None:
        moved: list[jax.Array] = []
        for direction in directions:
            sources, targets = ((self.device, self.there) if direction == "out" else
                                (self.host, self.here))
            moved += [jax.device_put(x, one) for x, one in zip(sources, targets)]
        jax.block_until_ready(moved)


def measure_link(size: int, limit: float) -> dict[str, float]:
    devices = jax.local_devices()
    one: _Copies | _Transfers
    every: _Copies | _Transfers
    if devices[0].platform == "cpu":
        one = every = _Copies(size)
    else:
        one = _Transfers(size, devices[:1])
        every = _Transfers(size, devices) if len(devices) > 1 else one
    figures = {}
    for direction in ("out", "in"):
        figures[f"link_{direction}"] = size / _seconds(
            functools.partial(one.run, direction), limit)
        figures[f"link_{direction}_all"] = size / _seconds(
            functools.partial(every.run, direction), limit)
    both = size / _seconds(functools.partial(one.run, "out", "in"), limit)
    return {**figures, "link_out_both": both, "link_in_both": both}


def measure_interconnect(size: int, limit: float) -> float:
    """Returns the rate at which each of several devices sends during an all-reduce, in bytes a
    second. In a ring all-reduce, each device sends nearly twice as many bytes as its array has."""
    devices = jax.local_devices()
    mesh = jax.sharding.Mesh(np.array(devices), ("all",))
    parts, whole = (jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
                    for axes in (("all",), ()))
    x = jax.device_put(jnp.ones((len(devices), size // 4), jnp.float32), parts)
    add = jax.jit(lambda x: jnp.sum(x, 0), out_shardings=whole)
    sent = 2 * (len(devices) - 1) / len(devices) * (size // 4 * 4)
    return sent / _seconds(lambda: add(x).block_until_ready(), limit)


def _bench(command: str, *arguments: str) -> dict[str, Any]:
    path = shutil.which(command)
    if path is None:
        raise ProbeError(f"cannot find the command {command!r}, which measures the host's "
                         "memory and files: pass its path with --command; docs/installing.md says "
                         "how to install it")
    result = subprocess.run([path, "bench", "--json", *arguments], capture_output=True,
                            text=True, check=False)
    if result.returncode:
        raise ProbeError(f"actmem bench {' '.join(arguments)}: "
                         f"{result.stderr.strip() or result.returncode}")
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def measure_nodes(command: str, size: int, limit: float) -> list[dict[str, Any]]:
    """Measures copies by one thread, for each pair of nodes and within each node. Returns rows of
    actmem bench."""
    rows: list[dict[str, Any]] = _bench(command, "--only", "copying", "--memory", str(size),
                                        "--seconds", str(limit), "--allow", "any")["copying"]
    return rows


def measure_spill(command: str, folders: Sequence[str], size: int, limit: float,
                  buffered: bool) -> list[dict[str, Any]]:
    """Measures each folder alone, and then all folders together. Returns rows of actmem bench."""
    options = [word for folder in folders for word in ("--spill", folder)]
    if buffered:
        options.append("--allow-buffered")
    rows: list[dict[str, Any]] = _bench(
        command, "--only", "spilling", "--allow", "any", "--file-bytes", str(size),
        "--seconds", str(limit), *options)["spilling"]
    return rows


def _host_figures(nodes: Sequence[dict[str, Any]], size: int, limit: float,
                  ) -> dict[str, float]:
    """Returns figures of the host. The bandwidth of a node is the larger of two rates. The first is
    the rate at which one thread copies within the slowest node. The second is one node's share of
    the rate at which all threads copy. A copy both reads and writes, so each byte counts twice."""
    own = [float(row["bandwidth"]) for row in nodes
           if row["from"] == row["to"] and row["bandwidth"]]
    number = len({row["from"] for row in nodes}) or 1
    together = size / _seconds(functools.partial(_Copies(size).run, "out"), limit) / number
    return {"host_nodes": float(number),
            "host_bandwidth": 2 * max(min(own, default=0.0), together),
            "host_bytes": float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))}


def _spill_figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns the rates at which all folders together are written and read. Each rate is that of
    the fastest request size."""
    most = max(len(row["disks"]) for row in rows)
    together = [row for row in rows if len(row["disks"]) == most and row["spill_bandwidth"]]
    return {"disk_write": max(float(row["spill_bandwidth"]) for row in together),
            "disk_read": max(float(row["fill_bandwidth"]) for row in together)}


def measure(told: dict[str, Any] | None, options: argparse.Namespace) -> dict[str, Any]:
    """Makes the requested measurements that `told` does not contain yet, and adds the results to
    `told`."""
    told = told or {"name": "here", "machine": identity(), "figures": {}, "products": [],
                    "nodes": [], "spill": [], "measured": time.strftime("%Y-%m-%d")}
    figures = told["figures"]
    _measure_products(told["products"], options.products, options.seconds)
    if "hbm_bandwidth" not in figures:
        figures["devices"] = float(told["machine"]["devices"])
        figures["hbm_bandwidth"] = measure_memory(options.memory, options.seconds)
        stats = jax.local_devices()[0].memory_stats() or {}
        if "bytes_limit" in stats:
            figures["hbm_bytes"] = float(stats["bytes_limit"])
    if "link_out" not in figures:
        figures.update(measure_elements(options.seconds))
        figures.update(measure_link(max(options.memory, COLD), options.seconds))
        figures["transfers"] = measure_transfers(options.seconds)
        if told["machine"]["platform"] == "cpu":
            figures["transfer_share"] = 1.0     # processors cannot compute while they copy
    if "interconnect" not in figures and told["machine"]["devices"] > 1:
        figures["interconnect"] = measure_interconnect(options.memory, options.seconds)
    if not told["nodes"]:
        told["nodes"] = measure_nodes(options.command, options.memory, options.seconds)
        figures.update(_host_figures(told["nodes"], options.memory, options.seconds))
    folders = [os.path.abspath(folder) for folder in options.spill]
    if folders and folders != told.get("spill_folders"):
        told["spill"] = measure_spill(options.command, folders, options.file_bytes,
                                      options.seconds, options.allow_buffered)
        told["spill_folders"] = folders
        figures.update(_spill_figures(told["spill"]))
    return told


def _lines(told: dict[str, Any]) -> Iterator[str]:
    one = told["machine"]
    yield (f"{one['devices']} x {one['device']} ({one['platform']}), {one['processors']} "
           f"processors, {one['processor']}, JAX {one['jax']}, measured {told['measured']}")
    yield ""
    yield f"{'PRODUCT':>22} {'DTYPE':10} {'GFLOP/s':>12}"
    for product in told["products"]:
        shape = f"{product['m']}x{product['k']}x{product['n']}"
        yield f"{shape:>22} {product['dtype']:10} {product['flops'] / 1e9:12.1f}"
    yield ""
    yield f"{'FIGURE':16} {'VALUE':>12}  MEANING"
    for name, value in told["figures"].items():
        rate = "bytes a second" in machine.FIGURES[name]
        size = name.endswith("_bytes")
        shown = (f"{value / 1e9:.2f} GB/s" if rate else f"{value / 1e9:.1f} GB" if size
                 else f"{value:g}")
        yield f"{name:16} {shown:>12}  {machine.FIGURES[name]}"


def _products(words: str, dtypes: Sequence[str]) -> list[tuple[int, int, int, str]]:
    found = []
    for word in words.split(","):
        parts = word.split("x")
        if len(parts) != 3 or not all(part.isdecimal() and 0 < int(part) <= 1 << 20
                                      for part in parts):
            raise UsageError(f"argument --products: '{word}' is not a product such as "
                             "4096x8192x8192")
        m, k, n = map(int, parts)
        found += [(m, k, n, dtype) for dtype in dtypes]
    return found


def _dtypes(word: str) -> list[str]:
    for dtype in word.split(","):
        if dtype not in machine.DTYPES:
            raise UsageError(f"argument --dtypes: '{dtype}' must be one of "
                             f"{', '.join(machine.DTYPES)}")
    return word.split(",")


def run(options: argparse.Namespace) -> int:
    """Runs actmem probe with the options of _command.probe_parser()."""
    dtypes = _dtypes(options.dtypes)
    usual = USUAL.get(jax.local_devices()[0].platform, USUAL_LARGE)
    options.products = _products(options.products or usual, dtypes)
    try:
        told = measure(None if options.again else kept(), options)
        keep(told)
    except (ProbeError, actmem.Error, OSError, ValueError) as error:
        print(f"{_wheel.command('probe')}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        print("\n".join(_lines(told)))
    return 0
