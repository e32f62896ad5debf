# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Debian's Prometheus scrapes the exporter; its tools check metrics, alerts and the dashboard."""
import contextlib
import json
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from harness import ACTMEM_BENCH, BUILD, clean_environment, holder, scratch, wait_for
from metrics import exporter, fetch, parse, printed, value
from tap import Skip, case, main

MIB = 1 << 20
ROOT = os.path.dirname(BUILD)
RULES = os.path.join(ROOT, "packaging", "prometheus", "actmem.rules.yml")
DASHBOARD = os.path.join(ROOT, "packaging", "grafana", "actmem.json")
SERVICE = os.path.join(ROOT, "packaging", "actmem-exporter.service")
SERVER = "127.0.0.1:19476"
NAME = re.compile(r"\bactmem_[a-z_]+\b")


def tool(*arguments, **options):
    result = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=False, timeout=120, **options)
    assert result.returncode == 0, f"{arguments}: {result.returncode}\n{result.stdout}"
    return result.stdout


def source(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def defined():
    """All that the exporter may tell, the driver's on machines without it included."""
    return set(NAME.findall(source("tools", "metrics.c")))


@contextlib.contextmanager
def prometheus(target):
    """Scrapes every second, with the rules."""
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="ascii") as file:
            file.write(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n"
                       f"rule_files: ['{RULES}']\n"
                       f"scrape_configs: [{{job_name: actmem, static_configs: "
                       f"[{{targets: ['{target}']}}]}}]\n")
        tool("promtool", "check", "config", config)
        with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log, \
                subprocess.Popen(["prometheus", f"--config.file={config}",
                                  f"--storage.tsdb.path={folder}/data",
                                  f"--web.listen-address={SERVER}"],
                                 stdout=log, stderr=log) as process:
            try:
                wait_for(is_ready)
                yield
            finally:
                process.terminate()
                process.wait(60)


def ask(path, **query):
    url = f"http://{SERVER}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def is_ready():
    try:
        return "Ready" in ask("/-/ready")
    except (urllib.error.URLError, ConnectionError):
        return False


def query(expression):
    """[({label: value}, number)]"""
    found = json.loads(ask("/api/v1/query", query=expression))["data"]["result"]
    return [(row["metric"], float(row["value"][1])) for row in found]


def alerts():
    return {(a["labels"]["alertname"], a["labels"].get("pid"), a["state"])
            for a in json.loads(ask("/api/v1/alerts"))["data"]["alerts"]}


def replay(folder):
    """A step that spills, until it is killed."""
    return subprocess.Popen(
        [ACTMEM_BENCH, "replay", "--scale", "1/64", "--budget", "12M", "--spill", folder, "--steps", "1000000", "--allow", "any",
         "--compute-ms-per-layer", "1"], stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, env=clean_environment())


@case
def promtool_finds_nothing_wrong_with_the_metrics():
    with holder("one", 2 * MIB), scratch() as folder, replay(folder) as process:
        try:
            wait_for(lambda: "actmem_store_puts_total" in printed())
            text = printed()
        finally:
            process.kill()
    told = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    assert told.returncode == 0 and not told.stdout, told.stdout
    names = {name for name, _, _ in parse(text)}
    assert names <= defined() and len(names) > 20, names - defined()


@case
def the_alerts_fire_when_they_should():
    assert "SUCCESS" in tool("promtool", "check", "rules", RULES)
    tool("promtool", "test", "rules", RULES.replace(".yml", ".test.yml"))
    asked = set(NAME.findall(re.sub(r"^ *#.*", "", source(RULES), flags=re.MULTILINE)))
    assert asked and asked <= defined(), asked - defined()


@case
def a_prometheus_scrapes_it():
    """The right numbers while they are held, and none when their process has ended."""
    with exporter("--listen", "127.0.0.1:0") as (_, url), prometheus(url.split("/")[2]):
        with open("/proc/sys/vm/nr_hugepages", encoding="ascii") as file:
            wanted = (int(file.read()) + 1) * 2 * MIB
        asked = clean_environment(ACTMEM_BACKEND="memfd", ACTMEM_PAGES="2M", ACTMEM_ALLOW="any")
        with holder("less", wanted, 2 * MIB, environment=asked) as process:
            pid = f'{{pid="{process.pid}"}}'
            total = f"sum(actmem_region_bytes{pid})"
            wait_for(lambda: [n for _, n in query(total)] == [wanted + 2 * MIB])
            (row,) = query(f"actmem_process_fallbacks_total{pid}")
            assert row[1] >= 1 and row[0]["command"] == "holder" and row[0]["job"] == "actmem"
            assert query("up") and query("up")[0][1] == 1
            # All that is told is taken.
            assert query("scrape_samples_scraped")[0][1] == len(parse(fetch(url)[1]))
            wait_for(lambda: ("ActmemFallback", str(process.pid), "pending") in alerts())
        wait_for(lambda: not query(total))
        wait_for(lambda: [n for _, n in query(
            'actmem_backend_region_bytes{backend="memfd"}')] == [0])
        wait_for(lambda: ("ActmemFallback", str(process.pid), "pending") not in alerts())


@case
def what_a_store_spills_and_fills_is_counted():
    with scratch() as folder, replay(folder) as process:
        try:
            def told(samples, name):
                return value(samples, name, pid=str(process.pid))

            def has_filled():
                text = printed()
                return "actmem_store_filled_bytes_total{" in text and told(
                    parse(text), "actmem_store_filled_bytes_total") > 0
            wait_for(has_filled)
            first = parse(printed())
            wait_for(lambda: told(parse(printed()), "actmem_store_takes_total") >
                     told(first, "actmem_store_takes_total"))
            now = parse(printed())
        finally:
            process.kill()
    takes = sum(told(now, f"actmem_store_takes_{kind}_total")
                for kind in ("ahead", "late", "unforeseen"))
    # One that is under way has its kind already, or has it alone.
    assert abs(takes - told(now, "actmem_store_takes_total")) <= 1, now
    assert told(now, "actmem_store_puts_total") >= takes
    assert told(now, "actmem_store_spilled_bytes_total") >= told(
        first, "actmem_store_spilled_bytes_total") > 0
    assert told(now, "actmem_store_failed_spills_total") == 0


@case
def the_dashboard_asks_for_what_is_told():
    dashboard = json.loads(source(DASHBOARD))
    asked = set()
    with exporter("--listen", "127.0.0.1:0") as (_, url), prometheus(url.split("/")[2]):
        for panel in dashboard["panels"]:
            assert panel["title"] and panel["targets"], panel
            for target in panel["targets"]:
                names = set(NAME.findall(target["expr"]))
                assert names, target
                asked |= names
                query(target["expr"].replace("$__rate_interval", "1m")
                      .replace("$instance", ".*"))
    assert asked <= defined(), asked - defined()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard["panels"]}
    assert len(places) == len(dashboard["panels"])


@case
def systemd_takes_the_service():
    if not os.path.exists("/usr/bin/systemd-analyze"):
        raise Skip("systemd-analyze is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "actmem-exporter.service")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source(SERVICE).replace("@BINDIR@", os.path.join(BUILD, "bin")))
        assert tool("systemd-analyze", "verify", "--man=no", path) == ""
        tool("systemd-analyze", "security", "--offline=true", "--threshold=40", path)


if __name__ == "__main__":
    main()
