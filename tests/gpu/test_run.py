# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""tests/gpu/run on a machine without a GPU: with the stand-in for libcuda.so.1, JAX on
the CPU and small sizes, and where our Debian packages are hidden."""
import json
import os
import subprocess
import sys

import report
from tap import Skip, case, main

BUILD = sys.argv.pop(1)
ON_GPU = "build/on-gpu"
# What a machine with a GPU need not have.
HIDDEN = ("include/liburing.h", "include/liburing", "include/jansson.h", "include/libsmartcols",
          "bin/pkg-config", "bin/x86_64-linux-gnu-pkg-config", "bin/pkgconf", "bin/scdoc",
          "lib/x86_64-linux-gnu/liburing.so", "lib/x86_64-linux-gnu/liburing.a",
          "lib/x86_64-linux-gnu/libjansson.so", "lib/x86_64-linux-gnu/libjansson.a",
          "lib/x86_64-linux-gnu/libsmartcols.so")
HIDE = """
    set -e
    mount -t tmpfs none /mnt && mkdir /mnt/changed /mnt/work
    mount -t overlay none -o lowerdir=/usr,upperdir=/mnt/changed,workdir=/mnt/work /usr
    cd /usr && rm -rf %s && cd "$OLDPWD"
    exec "$@"
""" % " ".join(HIDDEN)


def run(*arguments, status=0, prefix=(), standin=f"{ON_GPU}/tests/cuda/standin"):
    """Its output, and what it left in a file."""
    output = f"{BUILD}/check/gpu-run.json"
    result = subprocess.run(
        [*prefix, sys.executable, "tests/gpu/run", "--output", output,
         *(["--standin", standin] if standin else []), *arguments],
        capture_output=True, text=True, check=False, timeout=600)
    told = f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    assert result.returncode == status, told
    if not os.path.exists(output):
        return told, {}
    with open(output, encoding="utf-8") as file:
        return told, json.load(file)


def start_anew():
    if os.path.exists(f"{BUILD}/check/gpu-run.json"):
        os.unlink(f"{BUILD}/check/gpu-run.json")


@case
def what_is_packed_suffices_to_build():
    isolate = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    hide = [*isolate, "sh", "-c", HIDE, "sh"]
    if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode:
        raise Skip("no overlay over /usr can be had")
    subprocess.run(["tests/gpu/pack"], check=True, capture_output=True)
    start_anew()
    told, results = run("--only", "build", prefix=hide)
    assert results["parts"]["build"]["status"] == "ok", told
    for name in ("lib/libactmem.so.0", "lib/libactmem_preload.so", "lib/libactmem_xla.so",
                 "bin/actmem", "tests/gpu-probe", "tests/cuda/standin/libcuda.so.1"):
        assert os.path.exists(f"{ON_GPU}/{name}"), name
    linked = subprocess.run(["ldd", f"{ON_GPU}/lib/libactmem.so.0"], capture_output=True,
                            text=True, check=True).stdout
    assert "liburing" not in linked, linked
    subprocess.run([*hide, f"{ON_GPU}/bin/actmem", "list"], check=True, capture_output=True)


@case
def without_a_gpu_it_says_so():
    if os.path.exists("/dev/nvidia0"):
        raise Skip("this machine has a GPU")
    told, _ = run("--only", "probe", status=1, standin=None)
    assert "no /dev/nvidia0" in told and "--standin" in told, told


@case
def the_driver_is_asked_and_its_tests_run():
    start_anew()
    told, results = run("--no-build", "--only", "sanity,probe,cuda")
    parts = results["parts"]
    assert {name: part["status"] for name, part in parts.items()} == \
        {"sanity": "ok", "probe": "ok", "cuda": "ok"}, told
    facts = parts["probe"]["facts"]
    assert facts["cuMemHostGetFlags of memory registered with 0x1"] == "0x1", facts
    assert facts["cuMemHostUnregister a second time"] == \
        "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", facts
    assert not any(fact.startswith("group ") for fact in facts), facts
    peers = {figure.get("peer") for figure in parts["probe"]["figures"]}
    assert "cuMemHostAlloc" in peers and "register touched, memfd 4K" in told, told
    assert parts["cuda"]["passed"] > 100 and not parts["cuda"].get("failed"), parts["cuda"]
    assert results["versions"]["jax"] and results["machine"]["cores"] >= 1, results


@case
def layers_are_predicted_run_and_compared():
    told, results = run("--no-build", "--only", "layers")
    layers = results["parts"]["layers"]
    names = [row["case"] for row in layers["cases"]]
    assert names[:4] == ["small scanned remat", "small scanned stock",
                         "small scanned stock lhs+pipelined", names[3]], names
    assert names[3].startswith("small scanned stock, actmem run") and \
        "small scanned actmem" in names, names
    for row in layers["cases"]:
        assert row.get("valid"), row
        assert row["steps"] >= 3 and row["predicted_step_s"] > 0 and row["step_s"] > 0, row
    ours = next(row for row in layers["cases"] if row["case"] == "small scanned actmem")
    assert ours["found"]["grown"]["actmem"] > 0, ours
    assert ours["found"]["actmem"]["live_bytes"] == 0, ours
    assert any(figure["figure"].startswith("small scanned actmem: step_s") and figure["peer"]
               for figure in layers["figures"]), layers["figures"]
    assert "CASE" in told and "PREDICTED_STEP_S" in told, told


@case
def a_part_that_fails_stops_no_other():
    start_anew()
    told, results = run("--build", f"{BUILD}/nowhere", "--only", "probe,sanity,cuda", status=1)
    parts = results["parts"]
    assert parts["probe"]["status"] == "left out" and "was not built" in parts["probe"]["why"], told
    assert parts["sanity"]["status"] == "ok", told


@case
def a_part_that_is_too_slow_is_ended():
    start_anew()
    told, results = run("--no-build", "--only", "sanity", "--minutes", "0.02", status=1)
    sanity = results["parts"]["sanity"]
    assert sanity["status"] == "left out" or "not done in" in sanity["why"], told


@case
def a_part_may_be_run_in_pieces():
    start_anew()
    path = f"{BUILD}/check/gpu-run.json"
    card, ok = {"gpus": [{"name": "one"}]}, {"status": "ok", "seconds": 1}
    first = report.Report(path, card, {}, "first")
    first.add("layers", {**ok, "cases": [{"case": "a", "step_s": 1}, {"case": "b", "step_s": 2}]})
    second = report.Report(path, card, {}, "second")
    second.add("layers", {**ok, "cases": [{"case": "b", "step_s": 3}]})
    rows = report.Report(path, card, {}, "third").content["parts"]["layers"]["cases"]
    assert rows == [{"date": "first", "case": "a", "step_s": 1}, {"case": "b", "step_s": 3}], rows
    other = report.Report(path, {"gpus": [{"name": "another"}]}, {}, "third")
    assert not other.content["parts"], "figures of another card were kept"


@case
def wrong_options_are_told():
    told, _ = run("--only", "nothing", status=1)
    assert "no part is named nothing" in told and "probe" in told, told


if __name__ == "__main__":
    main()
