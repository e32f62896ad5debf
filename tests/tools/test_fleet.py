# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The formulas of docs/fleet.md, as they stand there, beside what a node does."""
import json

from fleet import FORMULAS
from harness import actmem, expect, scratch
from tap import case, main


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


if __name__ == "__main__":
    main()
