# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem itself, run and info: usage, output, exit status."""
import contextlib
import json
import os
import resource
import signal
import stat
import subprocess
import tempfile

from harness import (ACTMEM, ACTMEM_BENCH, BUILD, HOLDER, MEASURING, NO_CAPABILITIES, SUBCOMMANDS,
                     actmem, clean_environment, expect, forbidden_device, holder, module_files,
                     mounted, private_dev, public_copy, transparent_pages)
from tap import case, main

PRINTING = (["--help"], ["--version"], ["run", "--help"], ["list", "--help"], ["info", "--help"],
            ["bench", "--help"], ["replay", "--help"], ["waits", "--help"],
            ["plan", "--help"], ["probe", "--help"], ["doctor", "--help"],
            ["prune", "--help"],
            ["waits"], ["waits", "--json"], ["list"], ["list", "--json"], ["info"],
            ["info", "--json"])


def run(*arguments, **options):
    return actmem("run", "--allow", "any", *arguments, **options)


@case
def help_and_version_go_to_standard_output():
    for arguments in PRINTING[:12]:
        result = actmem(*arguments)
        expect(result, 0)
        assert result.stdout
    assert "--backend" in actmem("run", "--help").stdout
    assert "--json" in actmem("list", "--help").stdout
    with open(os.path.join(os.path.dirname(BUILD), "VERSION"), encoding="utf-8") as file:
        assert actmem("--version").stdout == f"actmem {file.read()}"


@case
def usage_errors_are_one_line_and_a_hint():
    expect(actmem(), 2, "", "no subcommand")
    expect(actmem("frob"), 2, "", "unknown subcommand 'frob'")
    expect(actmem("--frob"), 2, "", "--frob")
    for name in SUBCOMMANDS:
        expect(actmem(name, "--frob"), 2, "", "--frob")
    for name in ("list", "waits", "info", "doctor", "prune"):
        expect(actmem(name, "frob"), 2, "", "'frob'")
    expect(actmem("run"), 2, "", "no program")
    expect(actmem("run", "--"), 2, "", "no program")
    expect(actmem("run", "--nodes"), 2, "", "--nodes")


@case
def the_measuring_ones_are_a_program_of_their_own():
    told = actmem("--help", program=ACTMEM_BENCH)
    expect(told, 0)
    for name in MEASURING:
        line = f"  {name:6} "
        assert line in told.stdout and line in actmem("--help").stdout, told.stdout
        expect(actmem(name, "--frob", program=ACTMEM_BENCH), 2, "",
               [f"actmem-bench {name}: ", "--frob"])
        expect(actmem(name, "--frob"), 2, "", [f"actmem {name}: ", "--frob"])
        ours, theirs = actmem(name, "--help").stdout, actmem(name, "--help",
                                                             program=ACTMEM_BENCH).stdout
        assert ours == theirs.replace(f"actmem-bench {name}", f"actmem {name}") != theirs, theirs
    version = actmem("--version", program=ACTMEM_BENCH).stdout
    assert version == actmem("--version").stdout.replace("actmem", "actmem-bench"), version
    expect(actmem("run", program=ACTMEM_BENCH), 2, "", "unknown subcommand 'run'")
    expect(actmem(program=ACTMEM_BENCH), 2, "", "no subcommand")


@case
def that_program_is_beside_the_command_or_in_the_path():
    with public_copy() as program:
        for name in MEASURING:
            expect(actmem(name, "--help", program=program), 127, "",
                   [f"actmem {name}: ", "'actmem-bench'", "not found in PATH", "make install"])
        path = clean_environment()["PATH"] + ":" + os.path.dirname(ACTMEM_BENCH)
        expect(actmem("bench", "--help", program=program,
                      environment=clean_environment(PATH=path)), 0)
        beside = program + "-bench"
        with open(beside, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho beside \"$@\"\n")
        expect(actmem("bench", "x", program=program, environment=clean_environment(PATH=path)), 126,
               "", [beside, "Permission denied"])
        os.chmod(beside, 0o755)
        expect(actmem("--", "replay", "x", "-y", program=program,
                      environment=clean_environment(PATH=path)), 0, "beside replay x -y\n")


@case
def run_names_the_value_that_is_wrong():
    for option, variable, value in (("--backend", "ACTMEM_BACKEND", "disk"),
                                    ("--pages", "ACTMEM_PAGES", "3M"),
                                    ("--nodes", "ACTMEM_NODES", "0-"),
                                    ("--policy", "ACTMEM_POLICY", "best"),
                                    ("--allow", "ACTMEM_ALLOW", "thp,swap"),
                                    ("--heap-grow", "ACTMEM_HEAP_GROW", "64MB"),
                                    ("--heap-limit", "ACTMEM_HEAP_LIMIT", "16777216T"),
                                    ("--budget", "ACTMEM_BUDGET", "much"),
                                    ("--spill-limit", "ACTMEM_SPILL_LIMIT", "-4K"),
                                    ("--spill-allow", "ACTMEM_SPILL_ALLOW", "memory,disk"),
                                    ("--device-ring", "ACTMEM_DEVICE_RING", "65536"),
                                    ("--spill", "ACTMEM_SPILL", "/tmp::/var/tmp")):
        expect(actmem("run", option, value, "true"), 2, "", [value, f"{option} ({variable})"])
        environment = clean_environment(**{variable: value})
        expect(actmem("run", "true", environment=environment), 2, "",
               [value, f"{option} ({variable})"])


@case
def run_tells_what_it_cannot_do():
    for arguments, status, words in (
            (["-B", "8M", "-l", "8M"], 2, ["--budget", "--heap-limit", "omit one of them"]),
            (["-S", "/tmp"], 2, ["--spill", "no budget", "--budget"]),
            (["-B", "8M", "-L", "1G"], 2, ["--spill-limit", "no directory", "--spill"]),
            (["-B", "8M", "-A", "memory"], 2, ["--spill-allow needs a directory", "--spill"]),
            (["-B", "8M", "-S", "/tmp", "-L", "1K"], 2, ["'1K'", "--spill-limit", "from 2M on"]),
            (["-B", "8M", "-S", ":".join(["/tmp"] * 65)], 2, ["ACTMEM_SPILL", "1 to 64"]),
            *((["-B", "8M", f"--{name}", ""], 2, [f"--{name} is empty"])
              for name in ("spill", "budget", "nodes", "pages", "name")),
            (["--policy", "bind"], 2, ["policy bind needs nodes"]),
            (["--policy", "preferred", "--nodes", "0-1"], 2, ["needs one node"]),
            (["--heap-grow", "3M"], 2, ["3145728", "ACTMEM_HEAP_GROW"]),
            (["--nodes", "1023"], 1, ["node 1023", "ACTMEM_NODES", "--nodes"])):
        result = run(*arguments, "echo", "ran")
        expect(result, status, "", words)
        assert arguments[0] != "--policy" or "HEAP" not in result.stderr, result.stderr
    expect(run("--heap-grow", "4M", "--heap-limit", "8M", "echo", "ran"), 0, "ran\n")
    # A heap whose pages cannot all be checked one by one.
    expect(run("--heap-grow", "64T", "echo", "ran"), 0, "ran\n",
           ["regions of 67108864M", "--heap-grow", "this machine has only"])


@case
def run_hands_the_budget_on():
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        names = [os.path.join(folder, name) for name in ("one", "two", "three")]
        for name in names:
            os.mkdir(name)
        show = ("sh", "-c", "echo $ACTMEM_BUDGET $ACTMEM_SPILL $ACTMEM_SPILL_LIMIT")
        expect(run("--pages", "4K", "-B", "8M", "-S", names[0], "-L", "1G", *show), 0,
               f"8M {names[0]} 1G\n")
        for allow in ("memory", "buffered", "Buffered,MEMORY"):
            expect(run("--pages", "4K", "-B", "8M", "-S", names[0], "-A", allow, "sh", "-c",
                       "echo $ACTMEM_SPILL_ALLOW"), 0, f"{allow}\n")
        # Several, and in the folder that the command was called in.
        expect(run("--pages", "4K", "--budget", "8M", "--spill", "one:two", "--spill", "three",
                   *show, cwd=folder), 0, f"8M {':'.join(names)}\n")
        environment = clean_environment(ACTMEM_BUDGET="8M", ACTMEM_SPILL="two")
        expect(run("--pages", "4K", *show, environment=environment, cwd=folder), 0,
               f"8M {names[1]}\n")
        expect(run("--pages", "4K", "--spill", "three", *show, environment=environment,
                   cwd=folder), 0, f"8M {names[2]}\n")
        for budget in "1M", "8K":
            expect(run("--pages", "4K", "-B", budget, "-S", names[0], "echo", "ran"), 0, "ran\n")
        result = run("--pages", "4K", "-v", "-B", "8M", "-S", names[0], "true")
        assert result.returncode == 0 and f"spills to {names[0]}" in result.stderr, result
        assert [os.listdir(name) for name in names] == [[], [], []]


@case
def run_tells_the_limit_by_its_own_name():
    for knob, variable in (("--heap-limit", "ACTMEM_HEAP_LIMIT"), ("--budget", "ACTMEM_BUDGET")):
        result = run("--pages", "4K", knob, "2K", "true")
        expect(result, 2, "", f"{knob} ({variable}) of 2.0 KiB is too small: it must be at least one page of 4.0 KiB; raise it")
        assert "_bytes" not in result.stderr and "--pages" not in result.stderr, result
        # Pages as they are asked for, though smaller ones may take their place.
        expect(run("--pages", "2M", "--allow", "4k", knob, "1M", "true"), 2, "",
               ["one page of 2.0 MiB", "--pages (ACTMEM_PAGES)"])


@case
def run_tells_what_a_directory_lacks():
    with tempfile.TemporaryDirectory() as folder:
        def refused(directory, *words):
            expect(run("-B", "8M", "-S", directory, "echo", "ran"), 1, "", [directory, *words])
        refused(f"{folder}/none", "No such file or directory", "another directory with --spill (ACTMEM_SPILL)")
        with open(f"{folder}/file", "w", encoding="ascii"):
            pass
        refused(f"{folder}/file", "Not a directory")
        refused("/proc", "use a directory on another", "with --spill (ACTMEM_SPILL)")
        expect(run("-B", "4K", "-S", folder, "true"), 2, "",
               ["two pages of 2.0 MiB", "--budget (ACTMEM_BUDGET)"])
        expect(run("-l", "4K", "true"), 2, "", ["one page of 2.0 MiB", "--heap-limit (ACTMEM_HEAP_LIMIT)"])
        expect(run("-l", "2M", "true"), 0, "")


@case
def run_does_not_split_a_directorys_name():
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        parted = os.path.join(folder, "a:b")
        os.makedirs(os.path.join(parted, "x"))
        for arguments, environment in ((("-S", parted), {}), (("-S", "x"), {}),
                                       ((), {"ACTMEM_SPILL": "x"})):
            expect(run("-B", "8M", *arguments, "true", cwd=parted,
                       environment=clean_environment(**environment)), 2, "",
                   ["cannot spill to", parted, "--spill, ACTMEM_SPILL"])


@case
def run_tells_of_full_and_of_small_file_systems():
    private_dev()
    for kind, options, arguments, status, words in (
            ("ramfs", "mode=755", [], 1,
             ["no direct I/O", "--spill-allow buffered", "with --spill (ACTMEM_SPILL)"]),
            # It has no room that can be allocated ahead either, which is asked for next.
            ("ramfs", "mode=755", ["--spill-allow", "memory,buffered"], 1,
             ["cannot allocate 2.0 MiB"]),
            ("tmpfs", "size=1M", [], 1, ["no space for 2.0 MiB"]),
            ("tmpfs", "size=1M", ["--spill-allow", "memory"], 0,
             ["no space for 2.0 MiB", "blocks over --budget (ACTMEM_BUDGET) stay in memory"]),
            ("tmpfs", "size=16M", [], 0,
             ["tmpfs, which is memory itself", "with --spill (ACTMEM_SPILL)"]),
            ("tmpfs", "size=16M", ["--strict"], 1,
             ["tmpfs, which is memory itself", "--strict (ACTMEM_STRICT)",
              "--spill-allow memory (ACTMEM_SPILL_ALLOW)"]),
            ("tmpfs", "size=16M", ["--strict", "--spill-allow", "memory"], 0,
             ["tmpfs, which is memory itself"])):
        with mounted(options, kind) as folder:
            expect(run("-B", "8M", "-S", folder, *arguments, "true"), status, "",
                   [folder, *words])
            if not status:
                expect(run("-B", "8M", "-S", folder, *arguments, "--quiet", "true"), 0, "")


def giant_pages():
    """Pages of 1 GiB that this machine has free, if its processor knows such."""
    try:
        with open("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages",
                  encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return None


@case
def run_tells_what_pages_of_1_gib_lack():
    result = actmem("run", "--backend", "memfd", "--pages", "1G", "-v", "echo", "ran")
    free = giant_pages()
    if free:
        expect(result, 0, "ran\n", "1G pages on node")
    elif free is None:
        expect(result, 1, "", ["no 1 GiB hugetlb pages", "--allow 2m (ACTMEM_ALLOW)"])
    else:
        expect(result, 1, "", ["0 B free, but 1.0 GiB are needed", "hugepages-1048576kB",
                               "hugepagesz=1G hugepages=1", "--allow 2m (ACTMEM_ALLOW)"])


@case
def run_sets_the_environment():
    given = {"BACKEND": "memfd", "PAGES": "thp", "NODES": "0", "POLICY": "bind",
             "HEAP_GROW": "128M", "HEAP_LIMIT": "1g", "DEVICE_RING": "128k"}
    options = [word for name, value in given.items()
               for word in (f"--{name.lower().replace('_', '-')}", value)]
    environment = clean_environment(ACTMEM_PAGES="4K", PYTHONPATH="/elsewhere")
    result = run(*options, "--report", "env", environment=environment)
    expect(result, 0)
    seen = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    given |= {"ALLOW": "any", "JAX_REPORT": "1", "LIBDIR": os.path.join(BUILD, "lib")}
    assert {name: seen.get(f"ACTMEM_{name}") for name in given} == given, seen
    assert seen["PYTHONPATH"].split(":")[-1] == "/elsewhere"


@case
def run_has_python_wait_for_jax():
    folder = os.path.join(os.path.dirname(BUILD), "lib", "python")
    seen = "echo $PYTHONPATH ${ACTMEM_OFFLOAD-none}"
    path = f"{folder}/actmem/_start:{folder}"
    for options, variables, offload in (
            ([], {}, "none"), (["--offload"], {}, "1"), (["-o"], {"ACTMEM_OFFLOAD": ""}, "1"),
            (["--offload"], {"ACTMEM_OFFLOAD": "0"}, "0")):
        expect(run(*options, "sh", "-c", seen, environment=clean_environment(**variables)), 0,
               f"{path} {offload}\n")
    expect(actmem("run", "--malloc", "sh", "-c", seen), 0, f"{folder} none\n")
    for word, option in (("python3", "-I"), ("/usr/bin/python3", "-bE"), ("python3", "-S")):
        for more in ([], ["-X", "dev"], ["-Wi"], ["--check-hash-based-pycs", "never"]):
            expect(run("--offload", word, *more, option, "-c", "print()"), 1, "",
                   [f"'{word} -{option[-1]}'", "patch()"])
    for words in (["-c", "print()", "-I"], ["-mthis", "-I"], ["-X", "-I", "-c", ""],
                  ["-", "-I"], ["--", "/dev/null", "-I"]):
        assert run("--offload", "python3", *words).returncode == 0, words
    expect(run("--offload", "echo", "-I"), 0, "-I\n")


@case
def run_leaves_what_no_option_names():
    environment = clean_environment(ACTMEM_PAGES="4K", ACTMEM_ALLOW="unlocked")
    result = actmem("run", "env", environment=environment)
    expect(result, 0)
    lines = result.stdout.splitlines()
    assert "ACTMEM_PAGES=4K" in lines and "ACTMEM_ALLOW=unlocked" in lines
    assert not any(line.startswith("ACTMEM_BACKEND=") for line in lines)


@case
def import_actmem_works_under_run():
    script = "import actmem; print(actmem.__file__)"
    result = run("python3", "-c", script)
    expect(result, 0)
    root = os.path.dirname(BUILD)
    assert result.stdout.startswith(os.path.join(root, "lib", "python", "actmem")), result.stdout


@case
def the_status_is_the_programs():
    expect(run("sh", "-c", "exit 42"), 42, "")
    expect(run("sh", "-c", "kill -TERM $$"), -15, "")
    expect(run("sh", "-c", "kill -PIPE $$"), -13, "")


@case
def options_after_the_program_are_the_programs():
    expect(run("echo", "--nodes", "x"), 0, "--nodes x\n")
    expect(run("--", "echo", "--", "-v"), 0, "-- -v\n")


@case
def run_passes_no_descriptor_on():
    expect(run("ls", "/proc/self/fd"), 0, "0\n1\n2\n3\n")


@case
def run_says_what_it_cannot_start():
    expect(run("no-such-program"), 127, "", "'no-such-program': not found in PATH")
    expect(run("/no/such/program"), 127, "", "'/no/such/program': No such file")
    expect(run("/"), 126, "", "'/': Permission denied")
    expect(run(""), 127, "", "''")
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "script")
        with open(script, "w", encoding="ascii") as file:
            file.write("#!/no/such/interpreter\n")
        expect(run(script), 126, "", "Permission denied")
        os.chmod(script, stat.S_IRWXU)
        expect(run(script), 127, "", f"'{script}': its interpreter")


@case
def run_without_the_module():
    private_dev()
    expect(run("--backend", "driver", "echo", "ran"), 1, "", "/dev/actmem")
    expect(run("echo", "ran"), 0, "ran\n")
    result = run("--verbose", "true")
    assert result.returncode == 0 and "memfd: " in result.stderr, result.stderr
    assert "/dev/actmem" in result.stderr and "node 0" in result.stderr, result.stderr


@case
def run_without_permission():
    """A device that is there is the administrator's to mend, not to be passed over."""
    with forbidden_device():
        expect(run("--backend", "driver", "echo", "ran", prefix=NO_CAPABILITIES), 1, "",
               ["/dev/actmem", "ermi"])
        expect(run("echo", "ran", prefix=NO_CAPABILITIES), 1, "",
               ["/dev/actmem", "ermi", "memfd instead of the driver, with --backend"])
        expect(actmem("run", "echo", "ran", prefix=NO_CAPABILITIES), 1, "", "/dev/actmem")
        expect(run("--backend", "memfd", "echo", "ran", prefix=NO_CAPABILITIES), 0, "ran\n")


@case
def run_takes_the_best_of_what_is_left_open():
    """And says in one line what that is, which the program does not repeat."""
    private_dev()
    limited = [*NO_CAPABILITIES, "prlimit", "--memlock=65536:65536"]
    seen = "echo ${ACTMEM_ALLOW:-none} ${ACTMEM_REPORTED-0}"
    said = ["actmem: memory is ", "of memfd, not locked", "actmem doctor", "ACTMEM_STRICT"]
    for options, environment in (
            ([], {}), (["--heap-grow", "4M"], {}), (["--backend", "memfd"], {}),
            (["--nodes", "0"], {}), (["--pages", "4K"], {}),
            ([], {"ACTMEM_STRICT": "0", "ACTMEM_ALLOW": ""})):
        environment = clean_environment(**environment)
        expect(actmem("run", *options, "sh", "-c", seen, prefix=limited, environment=environment),
               0, "none 1\n", said)
    quiet = clean_environment(ACTMEM_QUIET="1")
    expect(actmem("run", "--quiet", "sh", "-c", seen, prefix=limited), 0, "none 1\n")
    expect(actmem("run", "sh", "-c", seen, prefix=limited, environment=quiet), 0, "none 1\n")
    expect(actmem("run", HOLDER, "held", str(4 << 20), "--", "true", prefix=limited), 0, "", said)
    expect(actmem("held", str(4 << 20), "--", "true", program=HOLDER, prefix=limited), 0, "", said)
    # What the user allows is no surprise.
    expect(actmem("run", "--allow", "any", "sh", "-c", seen, prefix=limited), 0, "any 0\n")
    # What was asked for by name is that or an error, and so is the usual where it is strict.
    for options in (["--pages", "1G"], ["--pages", "2M", "--backend", "memfd"], ["--strict"],
                    ["--pages", "4K", "--strict"], ["--allow", "node"],
                    ["--policy", "preferred", "--strict"]):
        result = actmem("run", *options, "sh", "-c", seen, prefix=limited)
        if result.returncode == 0 and "4K" not in options:
            # Others may have reserved huge pages just now, which is as good as asked for.
            expect(result, 0, "none 0\n" if "--allow" not in options else "node 0\n")
            continue
        assert result.returncode == 1 and not result.stdout, result
        assert "RLIMIT_MEMLOCK" in result.stderr or "nr_hugepages" in result.stderr, result


@case
def a_deleted_folder_is_named():
    for option, path in ("--spill", "files"), ("--name", "./job"):
        with tempfile.TemporaryDirectory() as folder:
            result = actmem("-c", f"rmdir {folder} && exec {ACTMEM} run --budget 8M {option} {path} -- true",
                            program="sh", cwd=folder)
            os.mkdir(folder)
        assert result.returncode == 1 and "was deleted" in result.stderr, result
        assert f"'{path}' is a relative path" in result.stderr, result


@case
def run_refuses_what_is_not_the_driver():
    with forbidden_device():
        os.chmod("/dev/actmem", 0o666)
        expect(run("--backend", "driver", "echo", "ran"), 1, "", "/dev/actmem")


@case
def run_without_sysfs():
    """As on a kernel without NUMA, the memory of the machine is that of the node."""
    private_dev()
    with mounted("mode=755", folder="/sys"):
        expect(run("--pages", "4K", "echo", "ran"), 0, "ran\n")
        expect(actmem("run", "--pages", "4K", "--allow", "unlocked", "echo", "ran"), 0, "ran\n")


@case
def output_errors_are_failures():
    """Of little and of more than a stream keeps."""
    with open("/dev/full", "w", encoding="ascii") as full, contextlib.ExitStack() as stack:
        for name in ("a", "b", "c", "d"):
            stack.enter_context(holder(name, *[2 << 20] * 8))
        expect(actmem("list", "--json", stdout=full), 1, None, "No space left")
    for arguments in PRINTING:
        with open("/dev/full", "w", encoding="ascii") as full:
            expect(actmem(*arguments, stdout=full), 1, None, "No space left")
        reader, writer = os.pipe()
        os.close(reader)
        closed = actmem(*arguments, stdout=writer)
        assert closed.returncode == 1 and not closed.stderr, closed
        os.close(writer)
        closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", ACTMEM, *arguments], check=False,
                                stderr=subprocess.PIPE, text=True, env=clean_environment())
        assert closed.returncode == 1 and "Bad file descriptor" in closed.stderr, closed


@case
def run_leaves_broken_pipes_to_the_program():
    """What is ignored stays so across an exec."""
    result = run("grep", "SigIgn", "/proc/self/status")
    expect(result, 0)
    ignored = int(result.stdout.split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1), result.stdout


def info():
    result = actmem("info", "--json")
    expect(result, 0)
    return json.loads(result.stdout)


@case
def info_tells_what_the_kernel_tells():
    seen = info()
    assert seen["backend"] in ("driver", "memfd")
    assert seen["reason"].startswith(seen["backend"]), seen["reason"]
    assert seen["kernel"] == os.uname().release
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = resource.RLIM_INFINITY
    assert seen["memlock"] == {"soft_bytes": None if soft == unlimited else soft,
                               "hard_bytes": None if hard == unlimited else hard}
    nodes = [f for f in os.listdir("/sys/devices/system/node") if f.startswith("node")] \
        if os.path.isdir("/sys/devices/system/node") else ["node0"]
    assert sorted(f"node{node['node']}" for node in seen["nodes"]) == sorted(nodes)
    for node in seen["nodes"]:
        assert node["total_bytes"] >= node["free_bytes"] >= 0
    pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    if os.path.exists(pool):
        with open(pool, encoding="ascii") as file:
            assert sum(n["huge_2M"]["total"] for n in seen["nodes"]) == int(file.read())
    assert set(seen["thp"]) == {"enabled", "shmem_enabled"}


@case
def info_tells_of_the_lock_limit_it_has():
    result = actmem("info", "--bytes", prefix=["prlimit", "--memlock=1048576:2097152"])
    expect(result, 0)
    assert "1048576 (ulimit -l), at most 2097152" in result.stdout, result.stdout


@case
def info_in_words_has_every_part():
    result = actmem("info")
    expect(result, 0)
    for part in ("Backend", "Library", "Kernel", "Driver", "io_uring", "Transparent huge pages",
                 "Memory ", "Locked memory", "Memory cgroup", "NODE"):
        assert any(line.lstrip().startswith(part) for line in result.stdout.splitlines()), part


@case
def info_tells_of_a_limit_only_where_there_may_be_one():
    label = "Driver's user limit"
    with module_files(regions=0, lingering_regions=0):
        assert "user_limit_bytes" not in info()["driver"]
        assert label not in actmem("info").stdout
    for line, limit, words in (("max", None, "RLIMIT_MEMLOCK applies"), ("4194304", 4194304, "    4M")):
        with module_files(regions=0, lingering_regions=0, user_limit_bytes=line):
            assert info()["driver"]["user_limit_bytes"] == limit
            told = [text for text in actmem("info").stdout.splitlines() if label in text]
            assert len(told) == 1 and told[0].endswith(words), told


@case
def info_without_the_backend_asked_for():
    private_dev()
    environment = clean_environment(ACTMEM_BACKEND="driver")
    result = actmem("info", "--json", environment=environment)
    seen = json.loads(result.stdout)
    assert result.returncode == 1 and seen["backend"] is None, result
    assert "/dev/actmem" in seen["reason"] and seen["nodes"], seen
    assert "No such file" in seen["driver"]["error"] and not seen["driver"]["version"], seen


@case
def info_without_permission():
    with forbidden_device():
        result = actmem("info", "--json", prefix=NO_CAPABILITIES)
        expect(result, 1)
        seen = json.loads(result.stdout)
        assert seen["backend"] is None and "use memfd instead of the driver" in seen["reason"], seen
        assert seen["driver"]["error"] == "Permission denied", seen


def told_of_the_limit(pages):
    """The trial's region is shorter than those of the Python module."""
    limited = ["prlimit", "--memlock=8388608:8388608", *NO_CAPABILITIES]
    chosen = ["run", "--backend", "memfd", "--pages", pages]
    for known in ([], ["--pages", pages]):
        expect(actmem("run", "--backend", "memfd", *known, "--", "true", prefix=limited), 0, "",
               ["memory is ", "not locked"])
    chosen.append("--strict")
    expect(actmem(*chosen, "--", "true", prefix=limited), 0, "",
           ["regions of 64M", "--heap-grow", "RLIMIT_MEMLOCK is 8.0 MiB",
            "raise the hard limit first"])
    for more in (["--allow", "unlocked"], ["--heap-grow", "4M"], ["--heap-limit", "6M"],
                 ["--budget", "4M"]):
        expect(actmem(*chosen, *more, "--", "true", prefix=limited), 0, "")


@case
def a_limit_that_the_program_will_meet_is_told_of():
    with transparent_pages() as has_them:
        told_of_the_limit("4K")
        if has_them:
            told_of_the_limit("thp")


if __name__ == "__main__":
    main()
