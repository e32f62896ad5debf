# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The structs and numbers of the Python modules are those of the library's headers."""
import os
import subprocess

from actmem import _native
from actmem.jax import _handlers
from conftest import TREE

STRUCTS = {"actmem_nodes": _native.Nodes, "actmem_options": _native.Options,
           "actmem_region_info": _native.RegionInfo, "actmem_counters": _native.Counters,
           "actmem_store_stats": _native.StoreStats,
           "actmem_xla_options": _handlers.Options, "actmem_xla_stats": _handlers.Stats,
           "actmem_xla_device_stats": _handlers.DeviceStats,
           "actmem_xla_tensor_options": _handlers.TensorOptions,
           "actmem_xla_array_stats": _handlers.ArrayStats,
           "actmem_xla_transfer_stats": _handlers.TransferStats}

NUMBERS = {"ACTMEM_NODES_MAX": _native.NODES_MAX, "ACTMEM_NAME_MAX": _native.NAME_MAX}
NUMBERS |= {f"ACTMEM_BACKEND_{name.upper()}": i for i, name in enumerate(_native.BACKENDS)}
NUMBERS |= {f"ACTMEM_PLACE_{name.upper()}": i for i, name in enumerate(_native.POLICIES)}
NUMBERS |= {f"ACTMEM_PAGES_{name.upper()}": i for i, name in enumerate(_native.PAGES)}
NUMBERS |= {f"ACTMEM_ALLOW_{name.upper()}": bit for name, bit in _native.ALLOW.items()
            if name != "any"}
NUMBERS |= {f"ACTMEM_STORE_ALLOW_{name.upper()}": bit
            for name, bit in _native.SPILL_ALLOW.items()}
NUMBERS["ACTMEM_NAMES_PYTHON"] = _native.NAMES_PYTHON
NUMBERS["ACTMEM_XLA_SPILL_ALLOW_NOTHING"] = _native.SPILL_ALLOW_NOTHING


def told_by_c(expressions, folder):
    """What a C program that includes the headers makes of each."""
    source, program = folder / "told.c", folder / "told"
    source.write_text("".join([
        "#include <stdio.h>\n#include \"xla/actmem_xla.h\"\n",
        "int main(void)\n{\n",
        *(f'\tprintf("%llu\\n", (unsigned long long)({e}));\n' for e in expressions),
        "\treturn 0;\n}\n"]))
    subprocess.run([os.environ.get("CC", "cc"), "-I", os.path.join(TREE, "lib"),
                    "-I", os.path.join(TREE, "lib", "include"), source, "-o", program], check=True)
    told = subprocess.run([program], check=True, capture_output=True, text=True)
    return dict(zip(expressions, map(int, told.stdout.split())))


def test_structs(tmp_path):
    wanted = {}
    for name, struct in STRUCTS.items():
        wanted[f"sizeof(struct {name})"] = _native.ctypes.sizeof(struct)
        for field, _ in struct._fields_:
            place = getattr(struct, field)
            wanted[f"offsetof(struct {name}, {field})"] = place.offset
            wanted[f"sizeof(((struct {name} *)0)->{field})"] = place.size
    assert told_by_c(list(wanted), tmp_path) == wanted


def test_numbers(tmp_path):
    assert told_by_c(list(NUMBERS), tmp_path) == NUMBERS
    assert _native.ALLOW["any"] == sum(bit for name, bit in _native.ALLOW.items()
                                       if name != "any")
