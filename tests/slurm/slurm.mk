# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Jobs of a cluster of Slurm's with the scripts of packaging/slurm: in namespaces, without the
# driver, and in a booted machine on it.

CHECKS += slurm
CHECKS_IN_VM += slurm-driver

SLURM_NEEDS := $(B)/bin/actmem $(PRELOAD_LIBRARY) $(B)/tests/tools/holder
SLURM_TEST := $(PYTHON3) tests/slurm/test_jobs.py $(B)

.PHONY: check-slurm check-slurm-driver
check-slurm: $(SLURM_NEEDS)
	@unshare --mount --net --uts --pid --fork --mount-proc $(SLURM_TEST)

check-slurm-driver: $(SLURM_NEEDS) $(B)/vm/init
	@tests/vm/run --kernel 6.12 --tap --host --memory 2G --timeout 900 \
		--env PYTHONDONTWRITEBYTECODE=1 -- $(SLURM_TEST)
