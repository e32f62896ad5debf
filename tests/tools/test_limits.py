# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem pool and limit without the module: usage, refusals, and the file that keeps settings.
saved_guest has them on the driver, with udev and systemd."""
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile

from harness import (ACTMEM, actmem, expect, holder, module_files, mount, mounted,
                     public_copy, stranger, wait_for)
from tap import Skip, case, main

RULES = "/etc/udev/rules.d/80-actmem-settings.rules"
DEVICE = 'SUBSYSTEM=="misc", KERNEL=="actmem", ACTION=="add", '
LOADED = "# By the administrator.\n  actmem\n"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def files(**contents):
    """As a module newly loaded has them, of two nodes."""
    of_node = {"limit_bytes": "max", "pool_bytes": "0", "pool_free_bytes": "0",
               "pool_lent_bytes": "0", "region_bytes": "0"}
    told = {f"node{node}/{name}": value for node in (0, 1) for name, value in of_node.items()}
    return module_files(**({"user_limit_bytes": "max"} | told | contents))


@contextlib.contextmanager
def machine(unit=True, systemd=True):
    """An /etc/udev of its own, and a machine that systemd runs, with the unit."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mounted("mode=755", folder="/etc/udev"))
        stack.enter_context(mounted("mode=755", folder="/run"))
        stack.enter_context(mounted("mode=755", folder="/etc/systemd"))
        stack.enter_context(mounted("mode=755", folder="/etc/modules-load.d"))
        os.mkdir("/etc/udev/rules.d")
        with open("/etc/modules-load.d/a.conf", "w", encoding="ascii") as file:
            file.write(LOADED)
        if systemd:
            os.makedirs("/run/systemd/system")
        if unit:
            os.mkdir("/etc/systemd/system")
            shutil.copy(f"{ROOT}/packaging/actmem-pool@.service", "/etc/systemd/system")
        yield


def saved():
    """The lines of the file, but for comments and what all rules have."""
    with open(RULES, encoding="utf-8") as file:
        lines = file.read().splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert all(line.startswith(DEVICE) for line in rules), lines
    return [line[len(DEVICE):] for line in rules]


def write(text):
    with open(RULES, "w", encoding="utf-8") as file:
        file.write(text)


def pool_rule(node, size):
    return f'TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="actmem-pool@{node}:{size}.service"'


@case
def what_nothing_loads_at_boot_is_told():
    with files(), machine():
        expect(actmem("limit", "--user", "64G", "--save"), 0, "")
        with open("/etc/modules-load.d/a.conf", "w", encoding="ascii") as file:
            file.write("#actmem\nactmem_other\n")
        told = "echo actmem >/etc/modules-load.d/actmem.conf"
        expect(actmem("limit", "--user", "32G", "--save"), 0, "", told)
        assert saved() == ['ATTR{user_limit_bytes}="32G"']
        expect(actmem("limit", "--user", "max", "--save"), 0, "")


@case
def bad_usage_is_told():
    for arguments, words in ((["pool", "--nodes", "0,x", "64M"], "'0,x'"),
                             (["pool", "--nodes", "", "64M"], "''"),
                             (["pool", "--nodes", "5000", "64M"], "'5000'"),
                             (["pool", "64M"], "--nodes"),
                             (["pool", "--nodes", "0", "64M", "8M"], "'8M'"),
                             (["pool", "--nodes", "0", "max"], ["'max'", "2M"]),
                             (["pool", "--nodes", "0", "-2M"], "--"),
                             (["pool", "--nodes", "0", "1.5G"], "'1.5G'"),
                             (["pool", "--nodes", "0", "3M"], ["'3M'", "2M"]),
                             (["pool", "--nodes", "0", "16777216T"], "'16777216T'"),
                             (["limit", "--nodes", "1"], "--nodes"),
                             (["limit", "448G"], ["'448G'", "--nodes"]),
                             (["limit", "--nodes", "1", "Max"], ["'Max'", "or max"]),
                             (["limit", "--user", "1M"], ["'1M'", "or max"]),
                             (["limit", "--pid", "7x", "4M"], ["--pid", "'7x'"]),
                             (["limit", "--pid", "7", "0"], ["'0'", "2M, or max"]),
                             (["limit", "--mount", "/", "0"], ["'0'", "at least 2M"]),
                             (["limit", "--pid", "4294967297", "4M"], "'4294967297'"),
                             (["limit", "--user"], "--user")):
        result = actmem(*arguments)
        if words == "--":
            # An option that there is not.
            assert result.returncode == 2 and "invalid option" in result.stderr, result
        else:
            expect(result, 2, "", words)


@case
def without_a_driver_the_module_is_named():
    for arguments in (["pool"], ["limit"], ["pool", "--json"], ["limit", "--json"],
                      ["pool", "--nodes", "0", "64M"], ["limit", "--user", "max"],
                      ["pool", "--save"], ["limit", "--save"]):
        expect(actmem(*arguments), 1, "", ["/sys/class/misc/actmem", "modprobe actmem"])


@case
def a_node_that_is_not_there_is_named():
    with files():
        for arguments in (["pool", "--nodes", "7", "64M"], ["limit", "--nodes", "0,7", "64M"],
                          ["pool", "--nodes", "7", "--save"]):
            expect(actmem(*arguments), 1, "", ["node 7", "nodes 0-1", "--nodes"])


@case
def who_is_not_root_is_told():
    with files(), public_copy() as program, machine():
        for arguments, file in ((["pool", "--nodes", "1", "64M"], "node1/pool_bytes"),
                                (["limit", "--nodes", "1", "64M"], "node1/limit_bytes"),
                                (["limit", "--user", "64M"], "user_limit_bytes"),
                                (["pool", "--save"], RULES), (["limit", "--save"], RULES)):
            expect(actmem(*arguments, prefix=stranger(), program=program), 1, "",
                   [file, "Permission denied", "root"])
        expect(actmem("limit", program=program, prefix=stranger()), 0, actmem("limit").stdout)


@case
def the_limits_are_shown():
    with files(user_limit_bytes=str(64 << 20), **{"node1/limit_bytes": str(2 << 30),
                                                  "node1/region_bytes": str(4 << 20)}):
        told = json.loads(actmem("limit", "--json").stdout)
        assert told["user_limit_bytes"] == 64 << 20 and told["cgroups"] is None, told
        assert told["nodes"] == [{"node": 0, "limit_bytes": None, "used_bytes": 0},
                                 {"node": 1, "limit_bytes": 2 << 30, "used_bytes": 4 << 20}], told
        rows = [line.split() for line in actmem("limit").stdout.splitlines()]
        assert ["each", "user", "64M", "-"] in [row[:4] for row in rows], rows
        assert ["node", "0", "max", "0B"] in [row[:4] for row in rows], rows
        assert ["node", "1", "2G", "4M"] in [row[:4] for row in rows], rows
        assert not any("RLIMIT_MEMLOCK" in word for row in rows for word in row), rows
    with files():
        result = actmem("limit", prefix=["prlimit", "--memlock=8388608:8388608"])
        (row,) = [line.split() for line in result.stdout.splitlines() if "RLIMIT_MEMLOCK" in line]
        assert row[5] == "8M", row


@case
def what_is_saved_stays_beside_what_is_saved_next():
    with files(), machine():
        expect(actmem("limit", "--user", "64M", "--save"), 0, "")
        expect(actmem("limit", "--node", "1", "3072M", "--save"), 0, "")
        expect(actmem("pool", "--nodes", "0-1", "8M", "--save"), 0, "")
        assert saved() == ['ATTR{user_limit_bytes}="64M"', 'ATTR{node1/limit_bytes}="3G"',
                           pool_rule(0, "8M"), pool_rule(1, "8M")], saved()
        assert os.stat(RULES).st_mode & 0o777 == 0o644
        assert os.listdir(os.path.dirname(RULES)) == [os.path.basename(RULES)]
        udev_takes_it()
        # Of one node, and what is as in a module newly loaded is not in the file.
        expect(actmem("pool", "--nodes", "1", "6M", "-s"), 0, "")
        expect(actmem("limit", "--user", "max", "--save"), 0, "")
        assert saved() == ['ATTR{node1/limit_bytes}="3G"', pool_rule(0, "8M"),
                           pool_rule(1, "6M")], saved()
        # What holds now, of all, and of one.
        for name, value in (("user_limit_bytes", 2 << 20), ("node0/limit_bytes", 4 << 20),
                            ("node0/pool_bytes", 10 << 20), ("node1/pool_bytes", 0)):
            with open(f"/sys/class/misc/actmem/{name}", "w", encoding="ascii") as file:
                print(value, file=file)
        expect(actmem("pool", "--nodes", "0", "--save"), 0, "")
        expect(actmem("limit", "--nodes", "0", "--save"), 0, "")
        assert saved() == ['ATTR{node0/limit_bytes}="4M"', 'ATTR{node1/limit_bytes}="3G"',
                           pool_rule(0, "10M"), pool_rule(1, "6M")], saved()
        expect(actmem("limit", "--save"), 0, "")
        expect(actmem("pool", "--save"), 0, "")
        assert saved() == ['ATTR{user_limit_bytes}="2M"', 'ATTR{node0/limit_bytes}="4M"',
                           'ATTR{node1/limit_bytes}="3G"', pool_rule(0, "10M")], saved()
    with files(), machine():
        expect(actmem("limit", "--user", "64M", "--save"), 0, "")
        expect(actmem("limit", "--user", "max", "--save"), 0, "")
        assert not os.listdir(os.path.dirname(RULES)), "an empty file is left"


def udev_takes_it():
    """`udevadm verify` is of systemd 254 and later; that of before knows rules when it tests."""
    if not shutil.which("udevadm"):
        raise Skip("udev is not installed")
    if subprocess.run(["udevadm", "verify", "--help"], capture_output=True,
                      check=False).returncode == 0:
        subprocess.run(["udevadm", "verify", "--resolve-names=never", RULES], check=True)
        return
    # Any device will do: all rules are read.
    told = subprocess.run(["udevadm", "test", "/sys/devices/virtual/mem/null"],
                          capture_output=True, text=True, check=False,
                          env=os.environ | {"SYSTEMD_IGNORE_CHROOT": "1"})
    lines = [line for line in told.stderr.splitlines() if os.path.basename(RULES) in line]
    assert lines == [f"Reading rules file: {RULES}"], told.stderr


@case
def what_an_administrator_wrote_is_read_and_kept():
    """As the example has it, and by a rule that writes the pool itself."""
    with files(), machine():
        shutil.copy(f"{ROOT}/packaging/actmem-settings.rules", RULES)
        with open(RULES, "a", encoding="utf-8") as file:
            file.write("\n  # mine\n\tKERNEL == \"actmem\",SUBSYSTEM==\"misc\" , ACTION==\"add\", "
                       "ATTR{node2/pool_bytes}=\"2097152\", ATTR{node2/limit_bytes} = \"max\"\n")
        with open(RULES, encoding="utf-8") as file:
            comments = [line for line in file if "#" in line]
        expect(actmem("pool", "--nodes", "1", "16M", "--save"), 0, "")
        with open(RULES, encoding="utf-8") as file:
            lines = file.readlines()
        assert lines[:len(comments)] == comments and "  # mine\n" in comments, lines
        assert [line[len(DEVICE):].strip() for line in lines[len(comments):]] == [
            'ATTR{user_limit_bytes}="64G"', pool_rule(0, "64G"), pool_rule(1, "16M"),
            pool_rule(2, "2M")], lines


@case
def a_file_with_other_lines_is_left_as_it_is():
    ours = DEVICE + 'ATTR{node1/limit_bytes}="3G"\n'
    for line in ('KERNEL=="actmem", GROUP="staff"',
                 DEVICE + 'ATTR{node1/limit_bytes}="3G", MODE="0666"',
                 DEVICE + 'ATTR{node1/limit_bytes}="three"',
                 DEVICE + 'ATTR{node0/pool_bytes}="max"',
                 DEVICE + 'ATTR{node5000/pool_bytes}="2M"',
                 DEVICE + 'ENV{SYSTEMD_WANTS}+="actmem-pool@0:2M.service"',
                 DEVICE + 'TAG+="systemd", ENV{SYSTEMD_WANTS}+="other.service"',
                 DEVICE + 'TAG+="systemd"', DEVICE,
                 DEVICE.replace("add", "change") + 'ATTR{user_limit_bytes}="2M"',
                 'SUBSYSTEM=="misc", KERNEL=="actmem", ATTR{user_limit_bytes}="2M"',
                 DEVICE + 'ATTR{user_limit_bytes}="2M" \\', "nonsense"):
        with files(), machine():
            text = "# mine\n" + ours + line + "\n"
            write(text)
            for arguments in (["limit", "--user", "64M"], ["pool", "--nodes", "0", "8M"]):
                expect(actmem(*arguments, "--save"), 1, "", [f"{RULES}:3", "nothing is saved"])
            with open(RULES, encoding="utf-8") as file:
                assert file.read() == text, line
            # Nor is anything set, which would not last.
            for name in ("user_limit_bytes", "node0/pool_bytes"):
                with open(f"/sys/class/misc/actmem/{name}", encoding="ascii") as file:
                    assert file.read() in ("max\n", "0\n"), name


@case
def what_cannot_be_written_is_told_before_anything_is_set():
    limit = ["limit", "--user", "64M", "--save"]
    with files():
        with machine():
            os.rmdir(os.path.dirname(RULES))
            expect(actmem(*limit), 1, "", [RULES, "No such file", "udev", "nothing is saved"])
            os.mkdir(os.path.dirname(RULES))
            os.symlink("/dev/null", RULES)
            expect(actmem(*limit), 1, "", [RULES, "symbolic link"])
            os.unlink(RULES)
            mount("-o", "remount,ro", "/etc/udev")
            expect(actmem(*limit), 1, "", [RULES, "Read-only", "nothing is saved"])
            mount("-o", "remount,rw,size=4k", "/etc/udev")
            with open("/etc/udev/full", "w", encoding="ascii") as file:
                file.write("x" * 4096)
            expect(actmem("limit", "--save", "--user", "8M"), 1, "", [RULES, "No space left"])
            assert not os.listdir(os.path.dirname(RULES)), "a part of a file is left"
        pool = ["pool", "--nodes", "0", "8M", "--save"]
        with machine(systemd=False):
            expect(actmem(*pool), 1, "", ["systemd", "/run/systemd/system", "actmem pool"])
        with machine(unit=False):
            if os.path.exists("/usr/lib/systemd/system/actmem-pool@.service"):
                raise Skip("this machine has the unit")
            expect(actmem(*pool), 1, "", ["actmem-pool@.service", "install"])
        with open("/sys/class/misc/actmem/node0/pool_bytes", encoding="ascii") as file:
            assert file.read() == "0\n"


@case
def what_a_limit_on_files_forbids_is_told():
    with holder("held", 2 << 20) as process:
        limit = ["limit", "--pid", str(process.pid), "64M"]
        # With 0, a write would end the command by SIGXFSZ.
        for most in 0, 28:
            expect(actmem(*limit, prefix=["prlimit", f"--fsize={most}"]), 1, "",
                   [f"process {process.pid}", "byte 32", f"RLIMIT_FSIZE of this command is {most};",
                    "ulimit -f"])
        expect(actmem(*limit, prefix=["prlimit", "--fsize=32"]), 0)
    with files(user_limit_bytes=str(64 << 20)), machine():
        limit = ["limit", "--save"]
        for most in 0, 100:
            expect(actmem(*limit, prefix=["prlimit", f"--fsize={most}"]), 1, "",
                   [RULES, f"RLIMIT_FSIZE of this command is {most};", "nothing is saved",
                    "ulimit -f"])
            assert not os.listdir(os.path.dirname(RULES)), "a part of a file is left"
        expect(actmem(*limit, prefix=["prlimit", "--fsize=4096"]), 0, "")


# The folder is opened first, so that it is descriptor 3.
FAIL_TO_SYNC = """
import ctypes, os, struct, sys
number = {"x86_64": 74, "aarch64": 82}[os.uname().machine]
code = ((0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 3),
        (0x06, 0, 0, 0x50000 | 5), (0x06, 0, 0, 0x7fff0000))
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, program, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@case
def a_file_that_is_written_and_not_synced_is_told():
    with files(), machine():
        expect(actmem("limit", "--user", "64M", "--save",
                      prefix=[sys.executable, "-c", FAIL_TO_SYNC]), 1, "",
               [RULES, "is written, but a crash may undo that", "Input/output error"])
        assert saved() == ['ATTR{user_limit_bytes}="64M"']


@case
def who_saves_waits_for_another_who_does():
    with files(), machine():
        folder = os.open(os.path.dirname(RULES), os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        with subprocess.Popen([ACTMEM, "limit", "--user", "64M", "--save"]) as process:
            def waits():
                assert process.poll() is None, "it does not wait"
                with open("/proc/locks", encoding="ascii") as file:
                    return any("->" in line and f" {process.pid} " in line for line in file)
            wait_for(waits)
            write(DEVICE + 'ATTR{node1/limit_bytes}="3G"\n')
            os.close(folder)
            assert process.wait() == 0
        assert saved() == ['ATTR{user_limit_bytes}="64M"', 'ATTR{node1/limit_bytes}="3G"'], saved()


@case
def systemd_takes_the_unit():
    if not shutil.which("systemd-analyze"):
        raise Skip("systemd-analyze is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "actmem-pool.service")
        with open(f"{ROOT}/packaging/actmem-pool@.service", encoding="utf-8") as file, \
                open(path, "w", encoding="utf-8") as unit:
            unit.write(file.read().replace("@BINDIR@", os.path.dirname(ACTMEM)))
        told = subprocess.run(["systemd-analyze", "verify", "--man=no", path],
                              capture_output=True, text=True, check=False)
        assert told.returncode == 0 and not told.stderr, told


if __name__ == "__main__":
    main()
