# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem doctor: conditions are made, and it finds them, each with its remedy."""
import json
import os
import tempfile

from harness import (BUILD, NO_CAPABILITIES, actmem, clean_environment, expect, forbidden_device,
                     module_files, mounted, on_terminal, opens, private_dev, transparent_pages)
from tap import case, main

ORDER = ["driver", "huge pages", "contiguous memory", "movable memory", "limit", "cgroup",
         "surplus", "pool", "IOMMU", "device", "spill", "io_uring", "NUMA balancing",
         "variables", "XLA", "PyTorch", "pod"]


def findings(*arguments, environment=None, prefix=()):
    """Those of each check, and whether the exit status says that there is something to mend."""
    result = actmem("doctor", "--json", *arguments, environment=environment, prefix=prefix)
    found = json.loads(result.stdout)
    assert found and result.stderr == "", result.stderr
    for each in found:
        assert list(each) == ["check", "state", "finding", "fix"] and each["finding"], each
        assert each["state"] in ("ok", "fix", "note"), each
        assert (each["fix"] is not None) == (each["state"] == "fix"), each
    assert result.returncode == any(each["state"] == "fix" for each in found), found
    places = [ORDER.index(each["check"]) for each in found]
    assert places == sorted(places) or "IOMMU" in {each["check"] for each in found}, found
    return found


def of(check, *arguments, **options):
    return [each for each in findings(*arguments, **options) if each["check"] == check]


# First, as others have a /dev without terminals.
@case
def sentences_are_broken_between_words_to_a_terminals_width():
    words = actmem("doctor").stdout.split()
    for columns in 50, 70:
        told = on_terminal("doctor", columns=columns, status=1)
        assert told.split() == words, (told, words)
        # A path that is longer stays whole, on a line of its own.
        assert all(len(line) <= columns or len(line.split()) == 1
                   for line in told.splitlines()), told
    assert max(map(len, actmem("doctor").stdout.splitlines())) > 70
    backend = actmem("info").stdout.splitlines()[0]
    narrow = on_terminal("info", columns=60)
    indent = " " * backend.index("memfd")
    assert len(backend) > 60, backend
    assert narrow.replace("\r\n" + indent, " ").startswith(backend + "\r\n"), narrow


@case
def the_driver_is_not_there():
    private_dev()
    (found,) = of("driver")
    assert found["state"] == "fix" and "modprobe actmem" in found["fix"], found
    assert "No such file" in found["finding"], found


@case
def the_driver_may_not_be_opened():
    with forbidden_device():
        (found,) = of("driver", prefix=NO_CAPABILITIES)
    assert found["state"] == "fix" and "usermod -aG actmem" in found["fix"], found


@case
def the_drivers_files_are_read_once():
    with module_files(user_limit_bytes=8 << 20):
        assert opens("/sys/class/misc/actmem/user_limit_bytes", findings) == 1


@case
def locked_memory_is_limited():
    (found,) = of("limit", prefix=["prlimit", "--memlock=1048576:1048576", *NO_CAPABILITIES])
    assert found["state"] == "fix" and "may lock 1M" in found["finding"], found
    limited = ["prlimit", "--memlock=1048576:1048576"]
    if os.geteuid() == 0:
        # Root may lock all there is, but not a container's.
        (found,) = of("limit", prefix=[*limited, "unshare", "--user", "--map-root-user"])
        assert found["state"] == "fix", found
        with open("/proc/self/uid_map", encoding="ascii") as file:
            is_first = file.read().split() == ["0", "0", "4294967295"]
        (found,) = of("limit", prefix=limited)
        assert (found["state"] == "ok") == is_first, found


@case
def shared_memory_may_have_transparent_pages():
    private_dev()
    with transparent_pages() as is_lent:
        (found,) = of("huge pages")
        if is_lent:
            assert found["state"] == "ok", found
        else:
            assert found["state"] == "fix" and "nr_hugepages" in found["fix"], found


@case
def folders_to_spill_to():
    with mounted("size=1M") as memory, tempfile.TemporaryDirectory(dir=BUILD) as disk:
        found = of("spill", "--spill", memory, "-s", disk, "--spill", f"{disk}/missing")
        assert [each["state"] == "fix" for each in found][::2] == [True, True], found
        assert f"{memory} is in memory" in found[0]["finding"], found
        assert disk in found[1]["finding"] and (
            found[1]["state"] == "ok" or "rotational" in found[1]["finding"] or
            "no direct I/O" in found[1]["finding"]), found
        assert "No such file" in found[2]["finding"], found
        # Nothing is left there, and without options it is those of the environment.
        assert os.listdir(disk) == [] == os.listdir(memory)
        environment = clean_environment(ACTMEM_SPILL=f"{disk}:{memory}")
        assert [each["finding"].split(":")[0].split(" is ")[0]
                for each in of("spill", environment=environment)] == [disk, memory]
    assert of("spill") == []


@case
def wrong_variables_are_all_seen():
    with tempfile.TemporaryDirectory(dir=BUILD) as disk:
        values = {"ACTMEM_SPILL": f"{disk}::/", "ACTMEM_BUDGET": "x", "ACTMEM_NODES": "y",
                  "ACTMEM_QUIET": "5", "ACTMEM_HEAP_GROW": "4M"}
        found = findings(environment=clean_environment(**values))
        told = {each["finding"].partition(" is ")[0]: each for each in found
                if each["check"] == "variables"}
        assert set(told) == set(values) - {"ACTMEM_HEAP_GROW"}, told
        assert all(each["state"] == "fix" for each in told.values()), told
        assert "must be 1 to 64 directories" in told["ACTMEM_SPILL"]["finding"], told
        # Which folders are meant is not known.
        assert not [each for each in found if each["check"] == "spill"], found
    for folders, is_wrong in ((":".join(["/"] * 64), False), (":".join(["/"] * 65), True),
                              ("/:", True), (":/", True), ("", False)):
        found = of("variables", environment=clean_environment(ACTMEM_SPILL=folders))
        assert bool(found) == is_wrong, (folders, found)


@case
def variables_of_runtimes_are_seen():
    environment = clean_environment()
    for name in [name for name in environment
                 if name.startswith(("XLA_", "JAX_", "PYTORCH_", "KUBERNETES_"))]:
        del environment[name]
    for check in ("XLA", "PyTorch", "pod"):
        assert of(check, environment=environment) == []
    (found,) = of("variables", environment=environment | {"ACTMEM_JAX_GENERATIONS": "q"})
    assert found["state"] == "fix" and "'q', but must be" in found["finding"], found
    (found,) = of("variables", environment=environment | {"ACTMEM_NODES": "xx"})
    assert found["state"] == "fix" and "'xx', but must be a list" in found["finding"], found
    (found,) = of("variables", environment=environment | {"ACTMEM_BUGDET": "1G"})
    assert found["state"] == "note" and found["finding"].startswith("ACTMEM_BUGDET is no"), found
    assert not of("variables", environment=environment | {"ACTMEM_BUDGET": "1G"})
    (found,) = of("XLA", environment=environment | {"XLA_FLAGS": "--x"})
    assert found["state"] == "fix" and "64 GiB" in found["finding"], found
    (found,) = of("XLA", environment=environment | {
        "XLA_FLAGS": "--x", "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB": "256"})
    assert found["state"] == "ok" and "256 GB" in found["finding"], found
    flag = "--xla_gpu_enable_pipelined_host_offloading"
    for flags, is_wrong in ((f"--x {flag}=true", True), (flag, True), (f"{flag}=false", False),
                            (f"{flag}=true {flag}=0", False)):
        told = of("XLA", environment=environment | {"XLA_FLAGS": flags})
        assert any("wrong gradients" in found["finding"] for found in told) == is_wrong, told
    (found,) = of("PyTorch", environment=environment | {"PYTORCH_CUDA_ALLOC_CONF": "a:b"})
    assert found["state"] == "fix" and "pinned_max_round_threshold_mb" in found["fix"], found
    (found,) = of("PyTorch", environment=environment | {"PYTORCH_CUDA_ALLOC_CONF": "a:b",
                                                        "PYTORCH_ALLOC_CONF": ""})
    assert found["state"] == "fix", found
    assert of("PyTorch", environment=environment | {
        "PYTORCH_ALLOC_CONF": "pinned_max_round_threshold_mb:1"}) == []
    (found,) = of("pod", environment=environment | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert found["state"] == "note" and "user_limit_bytes" in found["finding"], found


@case
def words_for_people():
    """A line for each finding, and its remedy below; what is well with --all."""
    found = findings()
    told = actmem("doctor", "--all")
    lines = told.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        f"{each['state']:4}  {each['check']}: {each['finding']}" for each in found]
    assert [line.strip() for line in lines if line.startswith(" ")] == [
        each["fix"] for each in found if each["fix"]]
    told = actmem("doctor")
    assert not any(line.startswith("ok") for line in told.stdout.splitlines())
    expect(actmem("doctor", "/tmp"), 2, "", "unexpected argument '/tmp'")


main()
