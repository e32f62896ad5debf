# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem exporter: its numbers, HTTP, the file, and what it may not see."""
import contextlib
import glob
import os
import signal
import socket
import stat
import tempfile
import threading
import urllib.error

from fleet import FORMULAS
from harness import (HOLDER, actmem, clean_environment, expect, forbidden_device, holder,
                     module_files, mounted, opens, NO_CAPABILITIES)
from metrics import exporter, fetch, loopback, parse, printed, value
from tap import case, main

MIB = 1 << 20


def held(samples, pid):
    return sum(number for name, labels, number in samples
               if name == "actmem_region_bytes" and labels["pid"] == str(pid))


@case
def regions_are_summed_by_process_and_gone_with_it():
    with holder("left", 4 * MIB, 2 * MIB) as one, holder("right", 2 * MIB) as other:
        samples = parse(printed())
        labels = {"pid": str(one.pid), "uid": str(os.getuid()), "command": "holder",
                  "kind": "anonymous", "state": "held"}
        assert value(samples, "actmem_regions", **labels) == 2
        assert value(samples, "actmem_region_bytes", **labels) == 6 * MIB
        assert value(samples, "actmem_region_allocated_bytes", **labels) == 6 * MIB
        assert value(samples, "actmem_process_regions_total", pid=str(one.pid)) == 2
        assert held(samples, other.pid) == 2 * MIB
        total = value(samples, "actmem_backend_region_bytes", backend="memfd")
    samples = parse(printed())
    assert held(samples, one.pid) == held(samples, other.pid) == 0, samples
    assert total - value(samples, "actmem_backend_region_bytes", backend="memfd") == 8 * MIB
    assert value(samples, "actmem_backend_regions", backend="driver") == 0


@case
def a_fallback_is_told_by_process_and_pages():
    """A region that is longer than all huge pages has small ones."""
    with open("/proc/sys/vm/nr_hugepages", encoding="ascii") as file:
        wanted = (int(file.read()) + 1) * 2 * MIB
    asked = clean_environment(ACTMEM_BACKEND="memfd", ACTMEM_PAGES="2M", ACTMEM_ALLOW="any")
    plain = clean_environment(ACTMEM_BACKEND="memfd", ACTMEM_PAGES="4K", ACTMEM_ALLOW="unlocked")
    with holder("less", wanted, environment=asked) as one, \
            holder("asked", 2 * MIB, environment=plain) as other:
        samples = parse(printed())
        assert value(samples, "actmem_process_fallbacks_total", pid=str(one.pid),
                     backend="memfd") >= 1
        assert value(samples, "actmem_region_bytes", pid=str(one.pid)) == wanted
        assert value(samples, "actmem_region_bytes", pid=str(other.pid), pages="4K") == 2 * MIB
        assert value(samples, "actmem_process_fallbacks_total", pid=str(other.pid)) == 0


@case
def two_hundred_regions_make_no_more_series():
    with holder("many", 2 * MIB, environment=clean_environment(
            ACTMEM_PAGES="4K", ACTMEM_ALLOW="any")) as one:
        few = parse(printed())
        with holder("many", *[4096] * 200, environment=clean_environment(
                ACTMEM_PAGES="4K", ACTMEM_ALLOW="any")) as process:
            samples = parse(printed())
            assert value(samples, "actmem_regions", pid=str(process.pid)) == 200
        mine = [s for s in samples if s[1].get("pid") == str(process.pid)]
        before = [s for s in few if s[1].get("pid") == str(one.pid)]
        assert sorted(s[0] for s in mine) == sorted(s[0] for s in before)


@case
def a_scrape_is_as_large_as_the_formulas_say():
    environment = clean_environment(ACTMEM_PAGES="4K", ACTMEM_ALLOW="any")
    for processes in 0, 1, 8:
        with contextlib.ExitStack() as stack:
            for _ in range(processes):
                stack.enter_context(holder("many", *[4096] * 25, environment=environment))
            text = printed()
        nodes = len(glob.glob("/sys/devices/system/node/node[0-9]*"))
        samples = parse(text)
        huge = sum(name == "actmem_node_huge_pages" for name, _, _ in samples)
        foreseen = FORMULAS["scrape_samples"](processes, nodes, 0, has_driver=False)
        assert len(samples) == foreseen - 2 * (2 * nodes - huge), (processes, samples)
        # Without a driver there is less of the machine.
        length = FORMULAS["scrape_bytes"](processes, nodes)
        assert 0.6 * length - 5000 < len(text) < length, (processes, len(text))


@case
def processes_beyond_those_with_series_are_summed():
    environment = clean_environment(ACTMEM_PAGES="4K", ACTMEM_ALLOW="any")
    with contextlib.ExitStack() as stack:
        for _ in range(140):
            stack.enter_context(holder("one", 4096, environment=environment))
        samples = parse(printed())
    own = {labels["pid"] for name, labels, _ in samples if name == "actmem_regions"} - {""}
    assert len(own) == 128, len(own)
    assert value(samples, "actmem_processes_left_out") == 12
    assert value(samples, "actmem_regions", pid="") == 12
    assert value(samples, "actmem_process_heap_bytes", pid="") == 0
    assert not [s for s in samples if s[0].endswith("_total") and s[1].get("pid") == ""]
    assert value(samples, "actmem_backend_regions", backend="memfd") == 140


@case
def a_command_cannot_write_a_sample():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(os.fsencode(folder), b'"} 1\\\xffx')
        os.symlink(HOLDER, program)
        with holder("evil", 2 * MIB, program=program) as process:
            samples = parse(printed())
        (command,) = {labels["command"] for name, labels, _ in samples
                      if name == "actmem_regions" and labels["pid"] == str(process.pid)}
        assert command == '\\"} 1\\\\?x', command


@case
def it_is_told_over_http():
    with holder("web", 2 * MIB) as process, exporter("--listen", "127.0.0.1:0") as (_, url):
        kind, text = fetch(url)
        assert kind == "text/plain; version=0.0.4; charset=utf-8", kind
        assert held(parse(text), process.pid) == 2 * MIB
        assert fetch(url, "HEAD")[1] == ""
        assert "/metrics" in fetch(url.replace("/metrics", "/"))[1]
        for method, path, status in (("GET", "/other", 404), ("POST", "/metrics", 405),
                                     ("DELETE", "/", 405)):
            try:
                fetch(url.replace("/metrics", path), method)
            except urllib.error.HTTPError as error:
                assert error.code == status, (method, path, error.code)
            else:
                raise AssertionError((method, path))


@case
def it_listens_on_loopback_by_default_and_on_ipv6():
    with exporter() as (_, url):
        assert url == "http://127.0.0.1:19475/metrics", url
        fetch(url)
    with exporter("--listen", "[::1]:0") as (_, url):
        assert url.startswith("http://[::1]:"), url
        fetch(url)


@case
def silent_and_many_clients_keep_nobody_out():
    with exporter("--listen", "127.0.0.1:0") as (_, url):
        port = int(url.split(":")[2].split("/")[0])
        with contextlib.ExitStack() as stack:
            for _ in range(32):     # as many as it has
                silent = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                silent.sendall(b"GET /met")
            told = []
            threads = [threading.Thread(target=lambda: told.append(fetch(url)[1]))
                       for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(told) == 8
            for text in told:
                value(parse(text), "actmem_all_users_visible")


@case
def sigterm_ends_it_and_a_busy_port_is_an_error():
    with exporter("--listen", "127.0.0.1:0") as (process, url):
        address = url.split("/")[2]
        expect(actmem("exporter", "--listen", address), 1, "",
               [f"cannot listen at {address}", "Address already in use"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    with exporter("--listen", address):
        pass


@case
def what_is_no_address_is_named():
    loopback()
    for address in ("", "19475", ":19475", "127.0.0.1:", "127.0.0.1", "[]:1",
                    "127.0.0.1:none", "127.0.0.1:65536", "127.0.0.1:99999", "[::1]:+1"):
        expect(actmem("exporter", "--listen", address), 2, "", "--listen")
    expect(actmem("exporter", "--listen", "name.invalid:1"), 2, "", "cannot resolve")
    expect(actmem("exporter", "-l", "127.0.0.1:0", "-t", "x"), 2, "", "cannot be used together")
    expect(actmem("exporter", "x"), 2, "", "unexpected argument 'x'")


@case
def the_file_takes_the_place_of_the_one_before():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "actmem.prom")
        with open(path, "w", encoding="ascii") as file:
            file.write("old")
        before = os.stat(path).st_ino
        with holder("file", 2 * MIB) as process:
            expect(actmem("exporter", "--textfile", path), 0, "")
            with open(path, encoding="utf-8") as file:
                assert held(parse(file.read()), process.pid) == 2 * MIB
        assert os.stat(path).st_ino != before
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
        assert os.listdir(folder) == ["actmem.prom"]
        expect(actmem("exporter", "-t", "here.prom", cwd=folder), 0, "")
        assert sorted(os.listdir(folder)) == ["actmem.prom", "here.prom"]
        expect(actmem("exporter", "-t", os.path.join(folder, "no", "file")), 1, "",
               ["cannot write", "No such file"])
        os.symlink(path, os.path.join(folder, "link"))
        os.mknod(os.path.join(folder, "null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mkfifo(os.path.join(folder, "pipe"))
        before = os.listdir(folder)
        for name in ("link", "null", "pipe", "."):
            kind = stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode)
            expect(actmem("exporter", "-t", os.path.join(folder, name)), 1, "",
                   [f"cannot write {folder}/{name}", "not a regular file"])
            assert stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) == kind
        assert sorted(os.listdir(folder)) == sorted(before)
        expect(actmem("exporter", "-t", "/sys/file"), 1, "",
               ["cannot write /sys/file", "has no O_TMPFILE"])


@case
def a_file_is_whole_or_the_one_before_when_it_is_killed():
    """At whichever moment: nothing else has a name in the folder either, but for a whole one."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "actmem.prom")
        expect(actmem("exporter", "-t", path), 0, "")
        for delay in range(40):
            prefix = ["timeout", "-s", "KILL", f"0.{delay:03}"]
            actmem("exporter", "-t", path, prefix=prefix)
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    value(parse(file.read()), "actmem_scrape_duration_seconds")


@case
def a_full_disk_leaves_the_one_before():
    with mounted("size=4k") as folder:
        path = os.path.join(folder, "actmem.prom")
        with open(path, "w", encoding="ascii") as file:
            file.write("old")
        expect(actmem("exporter", "-t", path), 1, "", ["cannot write", "No space"])
        with open(path, encoding="ascii") as file:
            assert file.read() == "old"
        assert os.listdir(folder) == ["actmem.prom"]


@case
def a_forbidden_driver_is_told():
    assert value(parse(printed()), "actmem_driver_regions_visible") == 1
    with forbidden_device():
        samples = parse(printed(prefix=NO_CAPABILITIES))
    assert value(samples, "actmem_driver_regions_visible") == 0
    # As in a container that began before the module was loaded.
    with module_files(regions=3):
        assert value(parse(printed()), "actmem_driver_regions_visible") == 0


@case
def the_drivers_files_are_read_once():
    with module_files(regions=3, lingering_regions=0):
        path = "/sys/class/misc/actmem/regions"
        assert opens(path, lambda: value(parse(printed()), "actmem_driver_regions")) == 1


@case
def what_cannot_be_read_is_an_error_and_no_half():
    with holder("hidden", 2 * MIB), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "actmem.prom")
        result = actmem("exporter", "-t", path, prefix=["prlimit", "--nofile=5"])
        expect(result, 1, "", ["Too many open files"])
        assert not os.listdir(folder)


if __name__ == "__main__":
    main()
