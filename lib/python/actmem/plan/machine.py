# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What a machine does: figures from machines.csv, from a file like it, or from the probe.

    one = machine.find("h200")              # or "here", or a file's name
    one.products("bfloat16", (4096, 8192, 8192))            # FLOP a second
    machine.of("mine", flops_bf16=1e14, ...)                # of figures that are at hand

A figure that is wanted and missing is an error that names it. Where it comes from the table,
products and memory are taken at a share of their peaks, `product_efficiency` and
`memory_efficiency`: assumptions, as is each figure whose basis is "assumed". What was
measured is taken as it is.
"""
from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actmem.plan.work import Work

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "machines.csv")
COLUMNS = ("machine", "figure", "value", "basis", "source")

# What each is, and so all that there can be.
FIGURES = {
    "devices": "devices of one host",
    "flops_bf16": "FLOP a second of dense products of bfloat16, of one device",
    "flops_fp8": "FLOP a second of dense products of fp8, of one device",
    "flops_f32": "FLOP a second of dense products of float32, of one device",
    "hbm_bytes": "bytes of a device's memory",
    "hbm_bandwidth": "bytes a second that a device reads and writes of its memory",
    "product_efficiency": "the share of flops_* that is reached",
    "memory_efficiency": "the share of hbm_bandwidth that is reached",
    "link_out": "bytes a second from one device to the host, while nothing else is moved",
    "link_in": "bytes a second from the host to one device, while nothing else is moved",
    "link_out_both": "bytes a second from one device to the host, while as much comes back",
    "link_in_both": "bytes a second from the host to one device, while as much goes out",
    "link_out_all": "bytes a second of each device to the host, while all do it",
    "link_in_all": "bytes a second of the host to each device, while all do it",
    "interconnect": "bytes a second that a device sends to others of its host",
    "transfer_share": "the share of a device's work that a transfer keeps it from meanwhile",
    "transfers": "values a second that go to the host or come from there, however small",
    "transcendentals": "elements a second of exp() and its like",
    "strided": "elements a second that are read in another order than they lie in",
    "host_nodes": "NUMA nodes of the host that have memory",
    "host_bytes": "bytes of the host's memory",
    "host_bandwidth": "bytes a second that are read and written of one node's memory",
    "disk_write": "bytes a second that are spilled to all files together",
    "disk_read": "bytes a second that are filled from all files together",
    "error": "the share by which each of the rates may be off",
}
ERROR = 0.15                    # unless a machine says otherwise
DTYPES = {"bfloat16": "bf16", "float16": "bf16", "float32": "f32", "float8_e4m3fn": "fp8",
          "float8_e5m2": "fp8"}


class MachineError(ValueError):
    """No such machine, a figure that it lacks, or a file that has no sense."""


@dataclasses.dataclass(frozen=True)
class Figure:
    value: float
    basis: str                      # "published", "reckoned", "assumed", "measured", "given"
    source: str


@dataclasses.dataclass(frozen=True)
class Product:
    """A product (m × k) · (k × n), or `batch` of them at once, that was measured: FLOP a
    second."""
    m: int
    k: int
    n: int
    dtype: str
    flops: float
    batch: int = 1


@dataclasses.dataclass(frozen=True)
class Requests:
    """Files' bytes a second, of all of them together, in requests of so many bytes."""
    size: int
    write: float
    read: float


@dataclasses.dataclass(frozen=True)
class Rates:
    """Of transfers of one device, in bytes a second, while so many devices make them."""
    machine: Machine
    link_out: float
    link_in: float
    link_out_both: float            # while the other direction is busy too
    link_in_both: float
    devices: int = 1
    factor: float = 1.0             # of files' rates

    @property
    def has_files(self) -> bool:
        return self.machine.has("disk_write") and self.machine.has("disk_read")

    @property
    def share(self) -> float:
        """Of a device's work that a transfer keeps it from: all where processors copy."""
        return self.machine.need("transfer_share") if self.machine.has("transfer_share") else 0.0

    @property
    def call(self) -> float:
        """Seconds that each value takes beside its bytes."""
        return 1 / self.machine.need("transfers") if self.machine.has("transfers") else 0.0

    def disk_write(self, size: float) -> float:
        """Of values of so many bytes."""
        return self.machine.files("write", size) / self.devices * self.factor

    def disk_read(self, size: float) -> float:
        return self.machine.files("read", size) / self.devices * self.factor

    def scaled(self, link: float, files: float) -> Rates:
        """The same, with the link and the files so many times as fast."""
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

    def has(self, name: str) -> bool:
        return name in self.figures

    def need(self, name: str) -> float:
        """The figure of that name."""
        if name not in FIGURES:
            raise MachineError(f"there is no figure {name!r}: a machine has "
                               f"{', '.join(FIGURES)}")
        if name not in self.figures:
            raise MachineError(f"machine {self.name!r} has no figure '{name}' "
                               f"({FIGURES[name]}): give it, or measure it with actmem probe")
        return self.figures[name].value

    def check(self, names: Iterable[str]) -> None:
        """Tells the first of these figures that is missing."""
        for name in names:
            self.need(name)

    def replace(self, **values: float) -> Machine:
        """The same machine with other figures."""
        changed = {name: Figure(_number(name, value, self.name), "given", "")
                   for name, value in values.items()}
        return dataclasses.replace(self, figures={**self.figures, **changed})

    def products(self, dtype: str, shape: tuple[int, int, int] | None = None,
                 batch: int = 1) -> float:
        """FLOP a second of products (m, k, n), `batch` at once: of the measured one that is
        most like it, or of the peak what `product_efficiency` says."""
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
                               f"known are {', '.join(DTYPES)}")
        return self._effective(f"flops_{kind}", "product_efficiency")

    def memory(self) -> float:
        """Bytes a second that elementwise work reads and writes of a device's memory."""
        return self._effective("hbm_bandwidth", "memory_efficiency")

    def _effective(self, name: str, efficiency: str) -> float:
        value = self.need(name)
        if self.figures[name].basis == "measured":
            return value
        return value * self.need(efficiency)

    def files(self, direction: str, size: float) -> float:
        """Bytes a second that are written to files or read, in requests of so many bytes: of
        the measured ones that are most like it, or else the figure."""
        known = self.need(f"disk_{direction}")
        if not self.requests or self.figures[f"disk_{direction}"].basis != "measured":
            return known
        alike = min(self.requests, key=lambda one: abs(math.log(one.size / max(1, size))))
        return alike.write if direction == "write" else alike.read

    def link(self, direction: str, *, both: bool = False, devices: int = 1) -> float:
        """Bytes a second of each of so many devices, "out" to the host or "in" from it, while
        both directions are busy or one; the least of what either leaves."""
        if direction not in ("out", "in"):
            raise ValueError(f"direction={direction!r} is neither 'out' nor 'in'")
        alone = self.need(f"link_{direction}")
        rates = [alone]
        share = 1.0
        if both:
            share = self.need(f"link_{direction}_both") / alone
            rates.append(alone * share)
        if devices > 1:
            rates.append(self.need(f"link_{direction}_all") * share)
        return min(rates)

    def rates(self, devices: int = 1) -> Rates:
        """Those of transfers, while so many devices of the host make them."""
        return Rates(self, self.link("out", devices=devices), self.link("in", devices=devices),
                     self.link("out", both=True, devices=devices),
                     self.link("in", both=True, devices=devices), devices)

    @property
    def error(self) -> float:
        """By which share each rate may be off."""
        return self.figures["error"].value if self.has("error") else ERROR

    def seconds(self, work: Work) -> float:
        """Of an operation: as long as its products or its traffic take, whichever is more,
        and then what devices send each other."""
        arithmetic = sum(flops / self.products(dtype, work.shape, work.batch)
                         for dtype, flops in work.flops.items())
        between = sum(work.collectives.values())
        return max(arithmetic, work.moved / self.memory(),
                   self._known(work.costly, "transcendentals"),
                   self._known(work.strided, "strided")) + (
            between / self.need("interconnect") if between else 0.0)

    def _known(self, count: float, name: str) -> float:
        """Seconds of so many at a rate that not every machine has; else it takes none."""
        return count / self.figures[name].value if name in self.figures else 0.0

    def assumptions(self) -> list[str]:
        """What of its figures is assumed, in words."""
        return [f"{name} {figure.value:g}: {figure.source}"
                for name, figure in self.figures.items() if figure.basis == "assumed"]


def _number(name: str, value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if name not in FIGURES:
        raise MachineError(f"{where}: there is no figure {name!r}: a machine has "
                           f"{', '.join(FIGURES)}")
    if not 0 < number < math.inf:
        raise MachineError(f"{where}: figure '{name}' is {value!r}, not a number above 0")
    return number


def _read(path: str) -> dict[str, Machine]:
    machines: dict[str, dict[str, Figure]] = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = [(number, line) for number, line in enumerate(file, 1)
                     if line.strip() and not line.startswith("#")]
    except OSError as error:
        raise MachineError(f"cannot read the machines of {path}: {error}") from None
    rows = list(csv.reader([line for _, line in lines]))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise MachineError(f"{path}: expected the names of the columns, {','.join(COLUMNS)}")
    for (number, _), row in zip(lines[1:], rows[1:]):
        where = f"{path}:{number}"
        if len(row) != len(COLUMNS):
            raise MachineError(f"{where}: expected {len(COLUMNS)} words, as "
                               f"{','.join(COLUMNS)}, not {len(row)}")
        name, figure, value, basis, source = row
        figures = machines.setdefault(name, {})
        if figure in figures:
            raise MachineError(f"{where}: figure '{figure}' of {name} is there twice")
        figures[figure] = Figure(_number(figure, value, where), basis, source)
    return {name: Machine(name, figures) for name, figures in machines.items()}


def from_json(told: Any, where: str) -> Machine:
    """The machine of an object as `actmem probe --json` prints it."""
    if not isinstance(told, dict) or not isinstance(told.get("figures"), dict):
        raise MachineError(f"{where}: no 'figures': expected what actmem probe --json prints")
    figures = {name: Figure(_number(name, value, where), "measured", where)
               for name, value in told["figures"].items()}
    try:
        measured = tuple(Product(**product) for product in told.get("products", ()))
    except TypeError as error:
        raise MachineError(f"{where}: 'products': {error}") from None
    return Machine(str(told.get("name", where)), figures, measured, _requests(told))


def _requests(told: dict[str, Any]) -> tuple[Requests, ...]:
    """Those to all disks together."""
    rows = [row for row in told.get("spill", ())
            if row["spill_bandwidth"] and row["fill_bandwidth"]]
    most = max((len(row["disks"]) for row in rows), default=0)
    return tuple(Requests(row["request_bytes"], row["spill_bandwidth"], row["fill_bandwidth"])
                 for row in rows if len(row["disks"]) == most)


def of(name: str, **figures: float) -> Machine:
    """The machine of these figures."""
    return Machine(name, {}).replace(**figures)


def names() -> list[str]:
    """The machines of the table."""
    return list(_read(TABLE))


def find(name: str | Machine) -> Machine:
    """The machine of that name in the table; "here", as it was measured; or that of a file:
    what `actmem probe --json` printed, or one machine in the form of machines.csv.

    Raises:
      MachineError: There is none, or the file has no sense.
    """
    if isinstance(name, Machine):
        return name
    if name == "here":
        from actmem.plan import probe
        return probe.here()
    if name.endswith(".json"):
        try:
            with open(name, encoding="utf-8") as file:
                return from_json(json.load(file), name)
        except (OSError, ValueError) as error:
            if isinstance(error, MachineError):
                raise
            raise MachineError(f"cannot read the machine of {name}: {error}") from None
    if name.endswith(".csv"):
        machines = list(_read(name).values())
        if len(machines) != 1:
            raise MachineError(f"{name} has {len(machines)} machines, not one")
        return machines[0]
    machines_of_table = _read(TABLE)
    if name not in machines_of_table:
        raise MachineError(f"no machine {name!r}: there are {', '.join(machines_of_table)}, "
                           "'here', and files .json (actmem probe --json) or .csv")
    return machines_of_table[name]
