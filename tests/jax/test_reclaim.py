# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A training returns memory while it runs. budget_on_driver.py has the same on the driver."""
import os
import subprocess

import reclaim_case

RUN = ("--backend", "memfd", "--pages", "4K", "--allow", "unlocked")


def test_a_limit_that_falls_and_rises(tmp_path):
    cases = reclaim_case.check_one(
        RUN, str(tmp_path), lambda job: ("--pid", str(job.pid), f"{reclaim_case.LESS}M"),
        lambda job: ("--pid", str(job.pid), "max"))
    assert [(name, seen) for good, name, seen in cases if not good] == []


def test_a_training_that_cannot_return_anything():
    """It keeps its memory and runs on, and the command says so."""
    job = reclaim_case.Training(RUN, None)
    full = job.step()["bytes"]
    code, out, err = reclaim_case.limit("--pid", str(job.pid), f"{reclaim_case.LESS}M")
    assert code == 0 and "no: none of its stores spills" in out, (code, out)
    assert "were not returned" in err, err
    assert job.step()["bytes"] == full
    doctor = subprocess.run([reclaim_case.ACTMEM, "doctor"], capture_output=True, text=True,
                            check=False).stdout
    assert f"process {job.pid} (python) has" in doctor and "none of its stores spills" in doctor
    scrape = subprocess.run([reclaim_case.ACTMEM, "exporter", "--textfile", "-"],
                            capture_output=True, text=True, check=True).stdout
    assert (f'actmem_process_surplus_bytes{{pid="{job.pid}",uid="{os.getuid()}",command="python",'
            'can_return="false"}') in scrape, scrape
    seen = job.end()
    assert seen == reclaim_case.losses(RUN, len(seen))
