# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The formulas of docs/fleet.md, as they stand there, beside what a node does."""
import json

from fleet import FORMULAS, TEXT
from harness import actmem, expect, scratch
from tap import case, main

GIB = 1 << 30


def steps_of(folder, budget):
    result = actmem("replay", "--json", "--allow", "any", "--model", "llama-2-13b",
                    "--tokens", "4096", "--scale", "1/256", "--compute-ms-per-layer", "0.3",
                    "--steps", "4", "--budget", str(budget), "--spill", folder)
    expect(result, 0)
    seen = json.loads(result.stdout)
    return seen["step_bytes"], max(seen["tensor_bytes"]), seen["steps"][1:]


@case
def a_step_reads_and_writes_what_is_over_its_budget():
    with scratch() as folder:
        for budget in 4 << 20, 6 << 20, 12 << 20:
            saved, block, steps = steps_of(folder, budget)
            written, read = FORMULAS["spill_bytes"](saved, budget, block)
            assert 0 < read < written < saved, (read, written)
            for step in steps:
                assert step["filled_bytes"] == read, (budget, read, step)
                # How many are written ahead depends on the disk, too.
                assert abs(step["spilled_bytes"] - written) <= 2 * block, (budget, written, step)


@case
def with_room_for_everything_nothing_is_written():
    with scratch() as folder:
        saved, block, steps = steps_of(folder, 32 << 20)
        assert FORMULAS["spill_bytes"](saved, 32 << 20, block) == (0, 0), saved
        assert all(step["spilled_bytes"] == step["filled_bytes"] == 0 for step in steps), steps


@case
def the_table_is_what_the_formulas_say():
    saved = 4096 * 30720 * 40 * 8
    written, _ = FORMULAS["spill_bytes"](saved, 32 * GIB, 4096 * 10240 * 8)
    days = [FORMULAS["drive_days"](8, 3.84e12, writes, written, 8, 20) for writes in (1, 3)]
    for words in (f"with {saved / GIB:.1f} GiB\nnothing is written",
                  f"{100 * saved / (32 * GIB) - 100:.0f}\npercent more memory",
                  f"| {saved * 8 / 1e9:.0f} GB |", f"| {written * 8 / 1e9:.0f} GB, "
                  f"{written * 8 / 20 / 1e9:.1f} GB/s |",
                  f"| {written * 8 * 86400 / 20 / 1e12:.0f} TB |", f"| {days[0]:.0f} days |",
                  f"| {days[1] / 365:.0f} years |", f"| {8000 / days[1]:.0f} a day |",
                  f"| {8000 / days[0]:.0f} of the 8,000 drives go each day |",
                  f"| {FORMULAS['pool_seconds'](448 * GIB, 0.44) / 60:.1f} minutes |"):
        assert words in TEXT, words


@case
def the_table_of_what_prometheus_gets_is_what_the_formulas_say():
    samples = FORMULAS["scrape_samples"](8, 2, 1)
    answer = FORMULAS["scrape_bytes"](8, 2)
    a_second, bytes_a_second = FORMULAS["prometheus_load"](1000, samples, answer, 15)
    day = FORMULAS["prometheus_disk_bytes"](a_second, 1)
    for words in (f"| {samples} | {samples * 1000:,} |",
                  f"| {answer / 1e3:.0f} kB | {answer / 1e3:.0f} MB |",
                  f"| {a_second / 1000:.0f} | {a_second:,.0f} |",
                  f"| {bytes_a_second / 1e6:.1f} kB | {bytes_a_second / 1e6:.1f} MB |",
                  f"| {day / 1e9:.1f} MB | {day / 1e9:.1f} GB |"):
        assert words in TEXT, words


if __name__ == "__main__":
    main()
