# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Two processes of one job of JAX's on the driver, which share limits.

.PHONY: check-jax-pair-driver
CHECKS_IN_VM += jax-pair-driver
check-jax-pair-driver: $(JAX_ON_DRIVER)
	@tests/vm/run --kernel 6.12 --tap --host --cpu max --numa 2 --memory 3G --timeout 3600 \
		--env PYTHONDONTWRITEBYTECODE=1 --env TMPDIR=/dev/shm \
		-- $(VENV_PYTHON) tests/jax/pair_on_driver.py
