# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Four processes of one job with `actmem run --share`. Two on the driver are part of jax-driver.

.PHONY: check-jax-share
CHECKS += jax-share
JAX_SHARE := $(VENV_PYTHON) tests/jax/share.py

check-jax-share: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem
	@TMPDIR=$(abspath $(B)) $(JAX_SHARE) --backend memfd --pages 4K --allow any
