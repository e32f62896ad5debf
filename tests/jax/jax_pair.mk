# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Two processes of one job of JAX's on the driver, which share limits.

.PHONY: check-jax-pair-driver
CHECKS_IN_VM += jax-pair-driver
check-jax-pair-driver: $(JAX_ON_DRIVER)
	@tests/vm/run --kernel 6.12 --tap --host --cpu max --numa 2 --memory 3G --timeout 3600 \
		--env PYTHONDONTWRITEBYTECODE=1 --env TMPDIR=/dev/shm \
		-- $(VENV_PYTHON) tests/jax/pair_on_driver.py

# Four processes of one job with `actmem run --share`: here, and on the driver on a machine of
# two memory nodes, of which one has a PCI device that is said to be a GPU.
CHECKS += jax-share
CHECKS_IN_VM += jax-share-driver
JAX_SHARE := $(VENV_PYTHON) tests/jax/share.py

.PHONY: check-jax-share check-jax-share-driver
check-jax-share: $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem
	@TMPDIR=$(abspath $(B)) $(JAX_SHARE) --backend memfd --pages 4K --allow any

check-jax-share-driver: $(JAX_ON_DRIVER) $(CUDA_STANDIN)
	@tests/vm/run --kernel 6.12 --tap --host --cpu max --numa 2 --pci-node 1 --memory 3G \
		--timeout 3600 --env PYTHONDONTWRITEBYTECODE=1 --env TMPDIR=/dev/shm \
		--env LD_LIBRARY_PATH=$(abspath $(dir $(CUDA_STANDIN))) \
		-- $(JAX_SHARE) GPU=0000:80:00.0:1 --backend driver
