# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of the JAX binding: by pytest, and of the handlers' table, which
# needs no JAX, under sanitizers.

CHECKS += jax jax-threads

.PHONY: check-jax
check-jax: $(VENV)/.ready $(XLA_LIBRARY)
	@$(VENV_PYTHON) -m pytest -p no:terminal -p no:cacheprovider --tap tests/jax

SAVED_SOURCES := tests/jax/saved_threads.c lib/xla/saved.c lib/xla/site.c \
	lib/xla/table.c
SAVED_TESTS := $(B)/tests/saved_threads-thread $(B)/tests/saved_threads-address

CHECK_NEEDS += $(SAVED_TESTS)

$(SAVED_TESTS): $(B)/tests/saved_threads-%: $(SAVED_SOURCES) \
		$(wildcard lib/xla/*.h) lib/actmem.h
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Ilib/xla -O1 -fsanitize=$* $(SAVED_SOURCES) -o $@

# ThreadSanitizer wants addresses that are not randomized too far; where that
# may not be turned off, they seldom are.
.PHONY: check-jax-threads
check-jax-threads: $(SAVED_TESTS)
	@fixed=$$(setarch -R true 2>/dev/null && echo setarch -R); \
	for test in $(SAVED_TESTS); do $$fixed $$test || exit; done

# The same on the driver, in a booted kernel that sees this machine's files.
# The processor is one with AVX, which jaxlib wants.
CHECKS_IN_VM += jax-driver

JAX_ON_DRIVER := $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem $(B)/vm/init

# $(call jax_on_driver,KERNEL,MEMORY)
jax_on_driver = tests/vm/run --kernel $(1) --tap --host --cpu max --numa 2 --memory $(2) \
	--timeout 900 --env PYTHONDONTWRITEBYTECODE=1 --env TMPDIR=/dev/shm \
	-- $(B)/bin/actmem run --backend driver --nodes 1 -- \
	$(VENV_PYTHON) tests/jax/on_driver.py

.PHONY: check-jax-driver
check-jax-driver: $(JAX_ON_DRIVER)
	@$(call jax_on_driver,6.12,3G)
