# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Checks the values in a demo.json, and prints TAP."""
import json
import math
import sys
from pathlib import Path

VARIANT_KEYS = {"name", "step_ms", "final_loss", "temp_bytes", "peak_rss_bytes",
                "offloaded_bytes_per_step", "max_grad_diff", "peak_bytes"}
REGION_KEYS = {"bytes", "page_bytes", "node"}
FLOAT32_EPSILON = 2.0 ** -23


class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def check(self, passed, words, seen):
        self.count += 1
        self.failed += not passed
        print(f"{'ok' if passed else 'not ok'} {self.count} - {words}")
        if not passed:
            print(f"# saw {seen}")


def check_keys(tap, demo):
    names = [v["name"] for v in demo["variants"]]
    tap.check(names == ["kept", "recomputed", "actmem", "spilled"],
              "the four variants exist", names)
    missing = [VARIANT_KEYS - v.keys() for v in demo["variants"]]
    tap.check(not any(missing), "each variant has all keys", missing)
    numbers = [v[k] for v in demo["variants"] for k in VARIANT_KEYS - {"name"}]
    tap.check(all(math.isfinite(n) and n >= 0 for n in numbers),
              "the values of all variants are finite numbers", numbers)
    for key in ("regions", "regions_spilled"):
        missing = [REGION_KEYS - region.keys() for region in demo[key]]
        tap.check(demo[key] and not any(missing),
                  f"{key}: there are regions, and each has all keys", missing)
    tap.check(demo["backend"] in ("driver", "memfd"), "the backend is named",
              demo["backend"])
    tap.check(demo["reason"].startswith(demo["backend"] + ":"),
              "the reason for the backend is given", demo["reason"])


def check_training(tap, demo):
    for v in demo["variants"]:
        tap.check(v["final_loss"] < 0.9 * v["first_loss"],
                  f"{v['name']}: the loss falls",
                  (v["first_loss"], v["final_loss"]))
    losses = [v["final_loss"] for v in demo["variants"]]
    tap.check(max(losses) - min(losses) < 1e-2 * max(losses),
              "the variants end at the same loss", losses)


def check_gradients(tap, demo):
    _, recomputed, actmem, spilled = demo["variants"]
    largest = demo["largest_gradient"]
    tap.check(largest > 0, "there are gradients", largest)
    rounding = 8 * FLOAT32_EPSILON * largest
    tap.check(actmem["max_grad_diff_same_policy"] <= rounding,
              "actmem's gradients equal those of the same policy without actmem",
              (actmem["max_grad_diff_same_policy"], rounding))
    tap.check(spilled["max_grad_diff_actmem"] == 0,
              "spilled's gradients equal actmem's bit by bit",
              spilled["max_grad_diff_actmem"])
    for v in (recomputed, actmem, spilled):
        tap.check(v["max_grad_diff"] <= 16 * rounding,
                  f"{v['name']}: the gradients agree with those of kept",
                  (v["max_grad_diff"], rounding))


def check_memory(tap, demo):
    shape = demo["shape"]
    kept, recomputed, actmem, _ = demo["variants"]
    one = 4 * shape["batch"] * shape["length"] * shape["width"]
    exact = 4 * shape["layers"] * one   # q, k, v and the input of each layer
    logits = 4 * shape["batch"] * shape["length"] * shape["vocabulary"]
    small = demo["parameter_bytes"] + logits
    tap.check(kept["temp_bytes"] > 10 * small and exact > 4 * small,
              "activations are much larger than weights and logits",
              (kept["temp_bytes"], exact, small))
    tap.check(actmem["temp_bytes"] < kept["temp_bytes"] / 4,
              "actmem's temp memory is well below kept's",
              (actmem["temp_bytes"], kept["temp_bytes"]))
    saved = demo["same_policy"]["temp_bytes"] - actmem["temp_bytes"]
    tap.check(saved > 0.9 * exact,
              "XLA's temp memory shrinks by the bytes that actmem stores", (saved, exact))
    tap.check(actmem["offloaded_bytes_per_step"] == exact,
              "a step puts q, k, v and the layers' inputs into actmem",
              (actmem["offloaded_bytes_per_step"], exact))
    others = [v["offloaded_bytes_per_step"] for v in (kept, recomputed)]
    tap.check(others == [0, 0], "kept and recomputed put nothing into actmem", others)


def check_spilled(tap, demo):
    _, _, actmem, spilled = demo["variants"]
    exact, budget = actmem["offloaded_bytes_per_step"], spilled["budget_bytes"]
    tap.check(spilled["offloaded_bytes_per_step"] == exact >= 3 * budget > 0,
              "the activations are several times the budget", (exact, budget))
    total = sum(region["bytes"] for region in demo["regions_spilled"])
    tap.check(total <= budget, "spilled's regions fit into the budget", (total, budget))
    tap.check(spilled["file_bytes_per_step"] >= exact - budget,
              "the bytes beyond the budget went through a file",
              (spilled["file_bytes_per_step"], exact - budget))
    grown = [v["peak_bytes"] - v["compiled_rss_bytes"] for v in (actmem, spilled)]
    tap.check(grown[0] - grown[1] > (exact - budget) / 2,
              "the bytes beyond the budget are not in spilled's memory", (grown, exact - budget))
    others = [actmem[key] for key in ("budget_bytes", "file_bytes_per_step")]
    tap.check(others == [0, 0], "without a budget nothing went to a file", others)


def check_regions(tap, demo):
    actmem = demo["variants"][2]
    total = sum(region["bytes"] for region in demo["regions"])
    tap.check(total >= actmem["offloaded_bytes_per_step"],
              "the regions are as large as a step's activations", total)
    for region in demo["regions"] + demo["regions_spilled"]:
        size, page = region["bytes"], region["page_bytes"]
        tap.check(size > 0 and page in (4 << 10, 2 << 20) and size % page == 0,
                  "a region consists of whole pages", (size, page))
        node = Path(f"/sys/devices/system/node/node{region['node']}")
        tap.check(node.exists() or region["node"] == 0,
                  "the region's node exists", region["node"])


def check_counters(tap, demo, key):
    counters, exact = demo[key], demo["variants"][2]["offloaded_bytes_per_step"]
    passes = demo["steps"] + 1      # the steps, then the gradients
    for name in ("put_bytes_total", "take_bytes_total"):
        tap.check(counters[name] == passes * exact,
                  f"{key}: {name} is the number of bytes of all steps",
                  (counters[name], passes))
    for name in ("live_blocks_before_reset", "live_blocks", "live_bytes",
                 "generations", "reclaimed_blocks_total", "reset_blocks_total",
                 "regions", "region_bytes", "blocks", "block_bytes",
                 "lost_blocks_total", "store_blocks", "store_resident_bytes",
                 "store_spilled_bytes", "store_memory_bytes", "store_file_bytes",
                 "store_failed_spills_total", "store_failed_fills_total",
                 "store_beyond_budget_bytes"):
        tap.check(counters[name] == 0, f"{key}: {name} is 0 at the end",
                  counters[name])


def main():
    path = Path(sys.argv[1])
    tap = Tap()
    tap.check(path.exists(), "the demo ran to its end", f"no {path}")
    if path.exists():
        demo = json.loads(path.read_text(encoding="utf-8"))
        check_keys(tap, demo)
        if not tap.failed:
            check_training(tap, demo)
            check_gradients(tap, demo)
            check_memory(tap, demo)
            check_spilled(tap, demo)
            check_regions(tap, demo)
            for key in ("counters", "counters_spilled"):
                check_counters(tap, demo, key)
    print(f"1..{tap.count}")
    sys.exit(tap.failed > 0)


if __name__ == "__main__":
    main()
