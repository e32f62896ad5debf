# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Machines for the planner. A machine is a set of figures (named numbers) from machines.csv, a file
of that format, or the probe (`actmem probe`).

    one = machine.find("h200")              # or "here", or a file's name
    one.products("bfloat16", (4096, 8192, 8192))            # FLOP a second
    machine.of("mine", flops_bf16=1e14, ...)                # from given figures

If a required figure is missing, the error message names it. The planner multiplies the peak rate of
matrix products by `product_efficiency`, and the peak rate of memory by `memory_efficiency`, unless
the rate was measured. The basis of a figure says where its value comes from. In machines.csv, the
basis of both efficiencies is "assumed".
"""
from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from actmem import _wheel
from actmem.plan._files import read_text

if TYPE_CHECKING:
    from actmem.plan.work import Work

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "machines.csv")
COLUMNS = ("machine", "figure", "value", "basis", "source")

# All valid figures and their meanings.
FIGURES = {
    "devices": "devices of one host",
    "flops_bf16": "FLOP a second of one device in dense products of bfloat16",
    "flops_fp8": "FLOP a second of one device in dense products of fp8",
    "flops_f32": "FLOP a second of one device in dense products of float32",
    "hbm_bytes": "bytes of a device's memory",
    "hbm_bandwidth": "bytes a second that a device reads from and writes to its memory",
    "product_efficiency": "the share of flops_* that products reach",
    "memory_efficiency": "the share of hbm_bandwidth that programs reach",
    "link_out": "bytes a second from one device to the host, while the link is otherwise idle",
    "link_in": "bytes a second from the host to one device, while the link is otherwise idle",
    "link_out_both": "bytes a second from one device to the host, while it also receives",
    "link_in_both": "bytes a second from the host to one device, while it also sends",
    "link_out_all": "bytes a second from each device to the host, while all devices send",
    "link_in_all": "bytes a second from the host to each device, while all devices receive",
    "interconnect": "bytes a second that a device sends to other devices of its host",
    "transfer_share": "the share of a device's compute that is lost during a transfer",
    "transfers": "small values a second that go to the host or come from the host",
    "clock": "cycles a second of a device's cores: XLA for TPUs estimates times in cycles",
    "transcendentals": "elements a second of exp() and similar functions",
    "strided": "elements a second that are read in an order other than memory order",
    "host_nodes": "NUMA nodes of the host that have memory",
    "host_bytes": "bytes of the host's memory",
    "host_bandwidth": "bytes a second that are read from and written to one node's memory",
    "dram_efficiency": "the share of host_bandwidth that programs reach",
    "disk_bytes": "bytes of all disks of the host together",
    "disk_write": "bytes a second that are spilled to all files together",
    "disk_read": "bytes a second that are filled from all files together",
    "stock_waits": "1 if, with JAX's own offloading, XLA computes nothing during copies to the device",
    "error": "the possible relative error of each rate",
    "unsure": "the possible error of a step's time, in seconds, for each value that a layer saves",
}
BASES = ("published", "reckoned", "assumed", "measured", "given")
ERROR = 0.15                    # default of the figure "error"
UNSURE = 10e-6                  # default of the figure "unsure"
DTYPES = {"bfloat16": "bf16", "float16": "bf16", "float32": "f32", "float8_e4m3fn": "fp8",
          "float8_e5m2": "fp8"}


class MachineError(ValueError):
    """The machine is unknown or lacks a figure, or its file is invalid."""


@dataclasses.dataclass(frozen=True)
class Figure:
    value: float
    basis: str                      # one of BASES
    source: str


@dataclasses.dataclass(frozen=True)
class Product:
    """A measured matrix product (m × k) · (k × n), or `batch` such products at once. `flops` is the
    rate in FLOP a second."""
    m: int
    k: int
    n: int
    dtype: str
    flops: float
    batch: int = 1


@dataclasses.dataclass(frozen=True)
class Requests:
    """Rates of all files together, in bytes a second, with requests of `size` bytes."""
    size: int
    write: float
    read: float


@dataclasses.dataclass(frozen=True)
class Rates:
    """Transfer rates of one device, in bytes a second, while `devices` devices transfer data."""
    machine: Machine
    link_out: float
    link_in: float
    link_out_both: float            # while data also moves in the other direction
    link_in_both: float
    devices: int = 1
    factor: float = 1.0             # multiplies the rates of files

    @property
    def has_files(self) -> bool:
        return self.machine.has("disk_write") and self.machine.has("disk_read")

    @property
    def share(self) -> float:
        """The share of a device's compute that a transfer blocks; 1 if the processors that compute
        also copy the data."""
        return self.machine.need("transfer_share") if self.machine.has("transfer_share") else 0.0

    @property
    def call(self) -> float:
        """The fixed cost of a transfer: seconds in addition to the time for the bytes of the
        value."""
        return 1 / self.machine.need("transfers") if self.machine.has("transfers") else 0.0

    def disk_write(self, size: float) -> float:
        """Returns one device's rate of writing values of `size` bytes to files."""
        return self.machine.files("write", size) / self.devices * self.factor

    def disk_read(self, size: float) -> float:
        return self.machine.files("read", size) / self.devices * self.factor

    def scaled(self, link: float, files: float) -> Rates:
        """Returns a copy in which the link's rates are multiplied by `link`, and the rates of files
        by `files`."""
        return dataclasses.replace(
            self, link_out=self.link_out * link, link_in=self.link_in * link,
            link_out_both=self.link_out_both * link, link_in_both=self.link_in_both * link,
            factor=self.factor * files)


@dataclasses.dataclass(frozen=True)
class Machine:
    name: str
    figures: Mapping[str, Figure]
    measured: tuple[Product, ...] = ()
    requests: tuple[Requests, ...] = ()
    platform: str = ""              # "cpu", "gpu" or "tpu"; "" if no device was measured

    def has(self, name: str) -> bool:
        return name in self.figures

    def need(self, name: str) -> float:
        """Returns the value of the figure `name`. Raises MachineError if the machine lacks this
        figure."""
        if name not in FIGURES:
            raise MachineError(f"unknown figure {name!r}: valid figures are "
                               f"{', '.join(FIGURES)}")
        if name not in self.figures:
            raise MachineError(f"machine {self.name!r} has no figure '{name}' "
                               f"({FIGURES[name]}): {_advice(name)}")
        return self.figures[name].value

    def check(self, names: Iterable[str]) -> None:
        """Raises MachineError for the first of these figures that the machine lacks."""
        for name in names:
            self.need(name)

    def replace(self, **values: float) -> Machine:
        """Returns a copy of the machine in which the figures named in `values` have the given
        values."""
        changed = {name: Figure(_number(name, value, self.name), "given", "")
                   for name, value in values.items()}
        return dataclasses.replace(self, figures={**self.figures, **changed})

    def products(self, dtype: str, shape: tuple[int, int, int] | None = None,
                 batch: int = 1) -> float:
        """Returns the rate, in FLOP a second, at which the device computes `batch` products of
        shape (m, k, n) at the same time. The rate is that of the most similar measured product of
        `dtype`. If no product of `dtype` was measured, the rate is the peak rate times
        `product_efficiency`."""
        alike = [one for one in self.measured if one.dtype == dtype]
        if alike:
            if shape is None:
                return max(one.flops for one in alike)
            return min(alike, key=lambda one: sum(
                abs(math.log(size / max(1, wanted)))
                for size, wanted in zip((one.m, one.k, one.n, one.batch), (*shape, batch)))).flops
        kind = DTYPES.get(dtype)
        if kind is None:
            raise MachineError(f"machine {self.name!r} has no figure for products of {dtype}: "
                               f"supported types are {', '.join(DTYPES)}")
        if self.measured and not self.has(f"flops_{kind}"):
            raise MachineError(f"machine {self.name!r} has no measured products of {dtype}: "
                               f"measure some with {_wheel.command('probe')} --dtypes {dtype}")
        return self.effective(f"flops_{kind}", "product_efficiency")

    def memory(self) -> float:
        """Returns the rate at which elementwise work accesses device memory, in bytes a second."""
        return self.effective("hbm_bandwidth", "memory_efficiency")

    def effective(self, name: str, efficiency: str, default: float | None = None) -> float:
        """Returns the rate `name`. If the rate was not measured, multiplies it by the figure
        `efficiency`, or by `default` if the machine lacks `efficiency`."""
        value = self.need(name)
        if self.figures[name].basis == "measured":
            return value
        if default is not None and not self.has(efficiency):
            return value * default
        return value * self.need(efficiency)

    def files(self, direction: str, size: float) -> float:
        """Returns the rate of writing or reading files, in bytes a second, with requests of `size`
        bytes. The rate is that of the measured requests of the most similar size. If no requests
        were measured, the rate is the figure disk_write or disk_read."""
        known = self.need(f"disk_{direction}")
        if not self.requests or self.figures[f"disk_{direction}"].basis != "measured":
            return known
        alike = min(self.requests, key=lambda one: abs(math.log(one.size / max(1, size))))
        return alike.write if direction == "write" else alike.read

    def link(self, direction: str, *, both: bool = False, devices: int = 1) -> float:
        """Returns the rate at which each of `devices` devices transfers data to the host ("out") or
        from the host ("in"), in bytes a second. With `both`, both directions are busy. The rate is
        the smallest of the link's limits. With several devices, one device's share of the host's
        memory bandwidth is also a limit."""
        if direction not in ("out", "in"):
            raise ValueError(f"direction={direction!r} must be 'out' or 'in'")
        alone = self.need(f"link_{direction}")
        rates = [alone]
        share = 1.0
        if both:
            share = self.need(f"link_{direction}_both") / alone
            rates.append(alone * share)
        if devices > 1:
            rates.append(self.need(f"link_{direction}_all") * share)
            if self.has("host_nodes") and self.has("host_bandwidth"):
                # All devices and both directions share the host's memory.
                memory = self.need("host_nodes") * self.need("host_bandwidth")
                rates.append(memory / devices / (2 if both else 1))
        return min(rates)

    def rates(self, devices: int = 1) -> Rates:
        """Returns each device's transfer rates while `devices` devices of the host transfer
        data."""
        return Rates(self, self.link("out", devices=devices), self.link("in", devices=devices),
                     self.link("out", both=True, devices=devices),
                     self.link("in", both=True, devices=devices), devices)

    @property
    def error(self) -> float:
        """The relative error that is assumed for each rate."""
        return self.figures["error"].value if self.has("error") else ERROR

    @property
    def unsure(self) -> float:
        """The possible error of a step's time, in seconds per value that a layer saves."""
        return self.figures["unsure"].value if self.has("unsure") else UNSURE

    def seconds(self, work: Work) -> float:
        """Returns the time of an operation. The time is the longest of the times for products,
        memory traffic, transcendental functions and strided reads, plus the time for transfers
        between devices."""
        arithmetic = sum(flops / self.products(dtype, work.shape, work.batch)
                         for dtype, flops in work.flops.items())
        between = sum(work.collectives.values())
        return max(arithmetic, work.moved / self.memory(),
                   self._known(work.costly, "transcendentals"),
                   self._known(work.strided, "strided")) + (
            between / self.need("interconnect") if between else 0.0)

    def _known(self, count: float, name: str) -> float:
        """Returns the seconds that `count` elements take; 0 if the machine lacks the rate."""
        return count / self.figures[name].value if name in self.figures else 0.0

    def assumptions(self) -> list[str]:
        """Returns the names and values of the assumed figures. machines.csv gives the reasons."""
        return [f"{name} {figure.value:g}"
                for name, figure in self.figures.items() if figure.basis == "assumed"]


def _advice(name: str) -> str:
    """Returns how to obtain a figure."""
    probe = _wheel.command("probe")
    if name.startswith("disk"):
        return f"set the figure, or measure it with {probe} --spill DIR"
    if name.startswith(("flops", "interconnect")) or name.endswith("efficiency"):
        why = (f"{probe} measures it only with several devices"
               if name == "interconnect" else f"{probe} does not measure it")
        return (f"{why}; add it to the machine's file, and pass the file with --machine. For this "
                f"machine, first save the output of {probe} --json to a file")
    return f"set the figure, or measure it with {probe}"


def _positive(what: str, value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise MachineError(f"{where}: {what} is {value!r}, but must be a number above 0")
    return number


def _number(name: str, value: Any, where: str) -> float:
    if name not in FIGURES:
        raise MachineError(f"{where}: unknown figure {name!r}: valid figures are "
                           f"{', '.join(FIGURES)}")
    return _positive(f"figure '{name}'", value, where)


def _read(path: str) -> dict[str, Machine]:
    machines: dict[str, dict[str, Figure]] = {}
    try:
        lines = [(number, line) for number, line in enumerate(read_text(path).splitlines(), 1)
                 if line.strip() and not line.startswith("#")]
        rows = list(csv.reader([line for _, line in lines]))
    except (OSError, ValueError, csv.Error) as error:
        raise MachineError(f"cannot read the machines of {path}: {error}") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        raise MachineError(f"{path}: expected the names of the columns, {','.join(COLUMNS)}")
    for (number, _), row in zip(lines[1:], rows[1:]):
        where = f"{path}:{number}"
        if len(row) != len(COLUMNS):
            raise MachineError(f"{where}: found {len(row)} columns, but expected {len(COLUMNS)}: "
                               f"{','.join(COLUMNS)}")
        name, figure, value, basis, source = row
        figures = machines.setdefault(name, {})
        if figure in figures:
            raise MachineError(f"{where}: figure '{figure}' of {name} is given twice")
        number_of = _number(figure, value, where)
        if basis not in BASES:
            raise MachineError(f"{where}: the basis of figure '{figure}' is {basis!r}, but must be "
                               f"one of {', '.join(BASES)}")
        figures[figure] = Figure(number_of, basis, source)
    return {name: Machine(name, figures) for name, figures in machines.items()}


def from_json(told: Any, where: str) -> Machine:
    """Makes a machine from the object that `actmem probe --json` prints."""
    if not isinstance(told, dict) or not isinstance(told.get("figures"), dict):
        raise MachineError(f"{where}: 'figures' is missing: expected the output of "
                           f"{_wheel.command('probe')} --json")
    figures = {name: Figure(_number(name, value, where), "measured", where)
               for name, value in told["figures"].items()}
    measured = tuple(_product(row, f"{where}: 'products'") for row in _objects(
        told, "products", where))
    requests = [found for row in _objects(told, "spill", where)
                if (found := _requests(row, f"{where}: 'spill'"))]
    most = max((disks for disks, _ in requests), default=0)
    device = told.get("machine")
    platform = device.get("platform") if isinstance(device, dict) else None
    if platform is not None and not isinstance(platform, str):
        raise MachineError(f"{where}: 'machine': 'platform' is {platform!r}, but must be a string")
    return Machine(str(told.get("name", where)), figures, measured,
                   # Keep only the requests that used all disks at once.
                   tuple(one for disks, one in requests if disks == most), platform or "")


def _objects(told: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    rows = told.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise MachineError(f"{where}: '{name}' is not a list of objects")
    return rows


def _product(row: dict[str, Any], where: str) -> Product:
    known = [field.name for field in dataclasses.fields(Product)]
    for name in known:
        if name not in row and name != "batch":
            raise MachineError(f"{where}: an entry has no '{name}'")
    for name, value in row.items():
        if name not in known:
            raise MachineError(f"{where}: an entry has the unknown field '{name}'; valid fields "
                               f"are {', '.join(known)}")
        if name == "dtype" and not isinstance(value, str):
            raise MachineError(f"{where}: 'dtype' is {value!r}, but must be a string")
        if name != "dtype" and _positive(f"'{name}'", value, where) < 1:
            raise MachineError(f"{where}: '{name}' is {value!r}, but must be at least 1")
    m, k, n, batch = (int(float(row.get(name, 1))) for name in ("m", "k", "n", "batch"))
    return Product(m, k, n, row["dtype"], float(row["flops"]), batch)


def _requests(row: dict[str, Any], where: str) -> tuple[int, Requests] | None:
    """Returns the number of disks and the rates of a row, or None if a rate is null or 0."""
    for name in ("disks", "request_bytes", "spill_bandwidth", "fill_bandwidth"):
        if name not in row:
            raise MachineError(f"{where}: an entry has no '{name}'")
    if not isinstance(row["disks"], list):
        raise MachineError(f"{where}: 'disks' is {row['disks']!r}, but must be a list")
    if not row["spill_bandwidth"] or not row["fill_bandwidth"]:
        return None
    size, write, read = (_positive(f"'{name}'", row[name], where) for name in (
        "request_bytes", "spill_bandwidth", "fill_bandwidth"))
    return len(row["disks"]), Requests(int(size), write, read)


def of(name: str, **figures: float) -> Machine:
    """Makes a machine that has these figures."""
    return Machine(name, {}).replace(**figures)


def names() -> list[str]:
    """Returns the names of the machines in machines.csv."""
    return list(_read(TABLE))


def find(name: str | Machine) -> Machine:
    """Returns a machine. `name` is a machine in machines.csv, a file's name, or "here" for this
    machine as the probe measured it. A .json file contains the output of `actmem probe --json`. A
    .csv file contains one machine, in the format of machines.csv.

    Raises:
      MachineError: The machine is unknown, or the file is invalid.
    """
    if isinstance(name, Machine):
        return name
    if name == "here":
        from actmem.plan import probe
        return probe.here()
    if name.endswith(".json"):
        try:
            return from_json(json.loads(read_text(name)), name)
        except (OSError, ValueError) as error:
            if isinstance(error, MachineError):
                raise
            raise MachineError(f"cannot read the machine of {name}: {error}") from None
    if name.endswith(".csv"):
        machines = list(_read(name).values())
        if len(machines) != 1:
            raise MachineError(f"{name} has {len(machines)} machines, but must have one")
        return machines[0]
    machines_of_table = _read(TABLE)
    if name not in machines_of_table:
        raise MachineError(f"unknown machine {name!r}: use one of {', '.join(machines_of_table)}, "
                           f"'here', or the name of a .json ({_wheel.command('probe')} --json) or "
                           ".csv file")
    return machines_of_table[name]
