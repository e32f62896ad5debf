# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem replay: its figures, what it finds wrong, how it ends."""
import contextlib
import json
import os
import signal
import subprocess

from harness import (ACTMEM, actmem, clean_environment, damage, expect, mounted, scratch, spill_files, wait_for)
from tap import case, main

MIB = 1 << 20
LAYERS = 40
TENSOR = 4096 * 5120 * 2 // 256
STEP = LAYERS * 3 * TENSOR
BUDGET = 6 * MIB
SMALL = ("--allow", "any", "--model", "llama-2-13b", "--tokens", "4096", "--scale", "1/256",
         "--compute-ms-per-layer", "0.3")


def replay(*arguments, **options):
    return actmem("replay", *SMALL, *arguments, **options)


def told(*arguments, **options):
    result = replay("--json", *arguments, **options)
    expect(result, 0)
    return json.loads(result.stdout)


def spilling(folder, *arguments):
    return "--budget", str(BUDGET), "--spill", folder, *arguments


def started(*arguments):
    return subprocess.Popen([ACTMEM, "replay", *SMALL, *arguments], text=True,
                            env=clean_environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@case
def without_options_it_takes_the_best_memory():
    result = actmem("replay", *SMALL[2:], "--steps", "1", "--budget", "32M")
    expect(result, 0, None, ["memory is ", "actmem doctor", "ACTMEM_STRICT"])


@case
def without_a_budget_nothing_is_spilled():
    seen = told("--steps", "2")
    assert seen["model"] == "llama-2-13b" and seen["layers"] == LAYERS, seen
    assert seen["tensor_bytes"] == [TENSOR] * 3 and seen["step_bytes"] == STEP, seen
    assert seen["queue"] is None and seen["disks"] == [] and seen["interrupted"] is False, seen
    assert [step["step"] for step in seen["steps"]] == [0, 1] and seen["sum"]["step"] == "1-1"
    for step in seen["steps"]:
        assert step["hits"] == LAYERS * 3 and step["late"] == step["misses"] == 0, step
        assert step["spilled_bytes"] == step["filled_bytes"] == 0, step
        assert step["ms"] >= step["compute_ms"] >= 2 * LAYERS * 0.3 - 0.01, step
        assert step["bound_ms"] == step["compute_ms"] and step["io_ms"] == 0, step
    memory = seen["memory"]
    assert memory["block_bytes_peak"] == STEP and memory["budget_bytes"] is None, memory
    assert memory["overhead"] == memory["region_bytes_peak"] / STEP >= 1, memory


@case
def what_is_over_the_budget_goes_to_disk_and_comes_back():
    with scratch() as one, scratch() as other:
        seen = told(*spilling(one, "--spill", other, "--steps", "3", "--checksum"))
        assert not os.listdir(one) and not os.listdir(other)
    assert seen["wrong_blocks"] == seen["wrong_bytes"] == 0, seen
    assert seen["queue"]["direct"] is True and seen["queue"]["engine"], seen
    # The disks are measured beside the work of a step.
    assert seen["queue"]["worked_bytes"] > 0, seen
    assert [disk["path"] for disk in seen["disks"]] == [one, other], seen
    for step in seen["steps"]:
        # A block that is read ahead and given up is read twice, one handed over never.
        assert step["spilled_bytes"] >= STEP - BUDGET, step
        assert step["filled_bytes"] > 0, step
        assert step["hits"] + step["late"] + step["misses"] == LAYERS * 3, step
        io_ms = 1e3 * (step["spilled_bytes"] / step["device_spill_bandwidth"] +
                       step["filled_bytes"] / step["device_fill_bandwidth"])
        assert step["io_ms"] > 0 and abs(io_ms - step["io_ms"]) < 1e-3 * io_ms, step
        assert step["io_alone_ms"] > 0, step
        assert step["bound_ms"] == max(step["io_ms"], step["compute_ms"]), step
        assert step["bound_alone_ms"] == max(step["io_alone_ms"], step["compute_ms"]), step
        assert 0 < step["stall_ms"] < step["ms"], step
    total = seen["sum"]
    assert total["step"] == "1-2", total
    for key in ("ms", "io_ms", "spilled_bytes", "hits"):
        assert abs(total[key] - sum(s[key] for s in seen["steps"][1:])) < 1e-6, (key, total)
    memory = seen["memory"]
    assert memory["budget_bytes"] == BUDGET and memory["spilled_bytes_peak"] > 0, memory
    assert memory["overhead"] == memory["region_bytes_peak"] / BUDGET, memory


@case
def the_table_has_a_line_for_each_step_and_the_sum():
    with scratch() as folder:
        result = replay(*spilling(folder, "--steps", "3"))
    expect(result, 0)
    head, table = result.stdout.split("\n\n")
    assert "the bound is an estimate" in head, head
    assert head.startswith("memfd: ") and "llama-2-13b: 40 layers, 18.8M per step" in head, head
    headings, *lines = table.splitlines()
    for heading in ("I/O ALONE ms", "BOUND ms", "TIME/BOUND", "STALL"):
        assert heading in headings, headings
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "1-2"], table


@case
def a_model_that_is_not_known_is_named():
    expect(replay("--model", "gpt"), 2, "", ["--model is 'gpt'", "llama-2-13b, gemma-2-27b"])
    expect(replay("--model", "llama-3.3-70b", "--tokens", str(1 << 30), "--scale", "1"), 2, "",
           ["bytes, but must have", "--tokens or --scale"])


PLAN = {"format": 1, "model": "tiny", "step_s": 0.02, "host_bytes": 2 << 20, "disk_bytes": 1 << 20,
        "devices": 2, "layers": [[0.001, 0.002, 1 << 20], [0.001, 0.003, 1 << 20],
                                 [0.001, 0.002, 1 << 20], [0.002, 0.001, 0]]}


@case
def a_plan_says_what_each_layer_sends():
    with scratch() as folder:
        path = os.path.join(folder, "plan.json")

        def using(plan, *arguments):
            with open(path, "w", encoding="ascii") as file:
                json.dump(plan, file)
            return actmem("replay", "--allow", "any", "--plan", path, "--steps", "2", *arguments)
        result = using(PLAN, "--spill", folder, "--json")
        expect(result, 0)
        seen = json.loads(result.stdout)
        assert seen["model"] == "tiny" and seen["layers"] == 4, seen
        assert seen["tensor_bytes"] == [MIB] * 2 and seen["step_bytes"] == 6 * MIB, seen
        assert seen["foreseen_ms"] == 20 and seen["compute_ms_per_layer"] is None, seen
        assert seen["memory"]["budget_bytes"] == 4 * MIB and seen["wrong_blocks"] == 0, seen
        for step in seen["steps"]:
            assert step["compute_ms"] >= 12.99 and step["spilled_bytes"] >= 2 * MIB, step
            assert step["hits"] + step["late"] + step["misses"] == 6, step
        # Options say otherwise.
        result = using(PLAN | {"disk_bytes": 0}, "--scale", "1/4", "--json",
                       "--compute-ms-per-layer", "0.1")
        expect(result, 0)
        seen = json.loads(result.stdout)
        assert seen["step_bytes"] == 6 * MIB // 4 and seen["compute_ms_per_layer"] == 0.1, seen
        assert seen["memory"]["budget_bytes"] is None, seen
        result = using(PLAN, "--budget", "64M")
        expect(result, 0)
        assert "the plan predicts 20.0 ms per step" in result.stdout, result.stdout
        for change, words in (({"format": 0}, "not a plan of this version"),
                              ({"step_s": "1"}, "a figure is missing or has a wrong type"),
                              ({"devices": 65}, "more than 64 devices"), ({"layers": []}, "not a plan"),
                              ({"layers": [[1, 2]]}, "a layer has no seconds or bytes"),
                              ({"layers": [[1, -1, 4096]]}, "a layer has no seconds or bytes"),
                              ({"host_bytes": 0}, "offloads nothing"),
                              ({"host_bytes": 5, "layers": [[1, 2, 0]]}, "offloads nothing")):
            expect(using(PLAN | change), 1, "", [path, words])
        for option, value in (("--model", "llama-2-13b"), ("--tokens", "4096")):
            expect(using(PLAN, option, value), 2, "", [f"{option} cannot be used with --plan"])
        expect(using(PLAN, "--scale", "1/10000000"), 2, "", ["a layer of tiny has 0 bytes"])
        with open(path, "w", encoding="ascii") as file:
            file.write("{")
        expect(actmem("replay", "--plan", path), 1, "", ["cannot read the plan", path])


@case
def values_that_are_wrong_are_named():
    for option, value in (("--tokens", "0"), ("--tokens", "4k"), ("--tokens", "-1"),
                          ("--scale", "0"), ("--scale", "1/0"), ("--scale", "2"),
                          ("--scale", "1/"), ("--scale", "1/2/3"), ("--scale", "inf"),
                          ("--scale", "1e-3"), ("--scale", "0x1"), ("--scale", "."),
                          ("--compute-ms-per-layer", "-1"), ("--compute-ms-per-layer", "x"),
                          ("--budget", "0"), ("--budget", "1X"), ("--budget", "2000T"),
                          ("--steps", "0"), ("--steps", "1000001")):
        expect(actmem("replay", option, value), 2, "", [option, "must be"])
    expect(replay("--scale", "0.00000001"), 2, "", ["--tokens", "--scale"])
    many = [word for _ in range(65) for word in ("--spill", "/tmp")]
    expect(actmem("replay", *many), 2, "", "more than 64")


@case
def a_switch_that_is_wrong_is_an_error():
    for command in ("replay", "bench"):
        for variable in ("ACTMEM_STRICT", "ACTMEM_QUIET"):
            environment = clean_environment(**{variable: "yes"})
            expect(actmem(command, environment=environment), 2, "",
                   [f"{variable} is 'yes', but must be 1 or 0"])


@case
def a_store_that_cannot_be_is_told():
    with scratch() as folder:
        missing = os.path.join(folder, "none")
        expect(replay(*spilling(missing)), 2, "", [missing, "No such file"])
        expect(replay("--spill", folder), 2, "", "--spill needs --budget")
        expect(replay("--budget", "1K"), 2, "", "--budget of 1.0 KiB is too small: it must be at least one page")


@case
def without_a_place_to_spill_the_budget_holds():
    result = replay("--budget", str(BUDGET), "--json")
    expect(result, 1, None, ["step 0, layer ", "--budget of ", "raise it or set --spill"])
    seen = json.loads(result.stdout)
    assert seen["steps"] == [] and seen["sum"] is None, seen


@case
def too_little_room_is_told_or_blocks_stay_in_memory():
    quiet = clean_environment(ACTMEM_QUIET="1")
    with mounted("size=4M") as folder:
        expect(replay(*spilling(folder, "--allow-buffered"), environment=quiet), 1, None,
               [folder, "4.0 MiB free"])
        result = replay(*spilling(folder, "--allow-buffered", "--allow-memory", "--json",
                                  "--steps", "2"), environment=quiet)
        expect(result, 0, None, ["disks are not measured", "no space"])
        seen = json.loads(result.stdout)
        assert len(seen["steps"]) == 2 and seen["wrong_blocks"] == 0, seen
        assert seen["memory"]["region_bytes_peak"] > BUDGET, seen
        assert not os.listdir(folder)


@case
def a_folder_in_memory_is_told_or_an_error():
    with mounted("size=64M") as folder:
        words = [folder, "tmpfs, which is memory itself", "with --spill"]
        expect(replay(*spilling(folder, "--allow-buffered", "--steps", "1")), 0, None, words)
        strict = clean_environment(ACTMEM_STRICT="1")
        expect(replay(*spilling(folder, "--allow-buffered"), environment=strict), 1, "",
               [*words, "--allow-memory", "ACTMEM_STRICT=1"])


def stores_file(process, folder):
    """Its descriptor: the one that is opened after that by which the disk is measured."""
    wait_for(lambda: len(spill_files(process.pid, folder)) == 2 or process.poll() is not None)
    return max(spill_files(process.pid, folder), key=lambda p: int(os.path.basename(p)), default="")


@case
def an_interrupt_ends_it_in_order():
    for number in (signal.SIGINT, signal.SIGTERM):
        with scratch() as folder:
            with started(*spilling(folder, "--steps", "100000", "--json")) as process:
                stores_file(process, folder)
                process.send_signal(number)
                output, errors = process.communicate(timeout=60)
            assert process.returncode == -number and errors == "", (process.returncode, errors)
            seen = json.loads(output)
            assert seen["interrupted"] is True and len(seen["steps"]) < 100000, seen
            assert not os.listdir(folder)


@case
def killed_it_leaves_no_file():
    with scratch() as folder:
        with started(*spilling(folder, "--steps", "100000")) as process:
            stores_file(process, folder)
            process.kill()
            process.communicate(timeout=60)
            assert process.returncode == -signal.SIGKILL
        assert not os.listdir(folder)


def damaged(*arguments):
    """Overwrite spilled blocks of a run. If the run ends without an error, it may have ended before
    a block was overwritten: repeat it more slowly."""
    for ms in "5", "20", "80":
        with scratch() as folder:
            with started(*spilling(folder, "--steps", "1", "--compute-ms-per-layer", ms, "--json",
                                   *arguments)) as process:
                with contextlib.suppress(FileNotFoundError):
                    damage(process, stores_file(process, folder))
                output, errors = process.communicate(timeout=60)
        if process.returncode:
            break
    return process.returncode, output, errors


@case
def a_damaged_byte_is_found():
    for arguments, words in (((), "bytes are wrong"), (("--checksum",), "layer")):
        status, output, errors = damaged(*arguments)
        assert status == 1 and words in errors, (status, errors)
        seen = json.loads(output)
        if arguments:
            assert seen["steps"] == [] and "step 0, layer " in errors, (seen, errors)
        else:
            assert seen["wrong_bytes"] >= seen["wrong_blocks"] > 0, seen
            assert f"{seen['wrong_blocks']} blocks came back wrong" in errors, errors


if __name__ == "__main__":
    main()
