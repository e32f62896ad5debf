# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tests of the JAX binding: by pytest, with several versions of JAX, and of the
# handlers' table, which needs no JAX, under sanitizers. Files go beside the build:
# /tmp may be memory.

CHECKS += jax jax-newest jax-newest-remat3 jax-programs jax-threads

JAX_TESTS = -m pytest -p no:terminal -p no:cacheprovider --basetemp $(B)/tests/$(@:check-%=%) \
	--standin $(dir $(CUDA_STANDIN)) --tap tests/jax
JAX_TESTS_NEED := $(XLA_LIBRARY) $(CUDA_STANDIN) $(B)/bin/actmem $(PRELOAD_LIBRARY) | $(B)/tests

$(B)/tests:
	@mkdir -p $@

# `make check` runs all files with the newest JAX. With the older one it leaves out those that do not
# trace: they start programs, or call what does not depend on the version. `make check-jax
# VERSION=0.10.1` runs all.
OLDER_LEFT_OUT := $(patsubst %,--ignore=tests/jax/test_%.py,array_files array_processes budget \
	delayed docstrings module optax_devices optax_random optax_spilled params programs \
	report run_offload state_files)

# The environment may have a VERSION, of something else.
.PHONY: check-jax check-jax-newest check-jax-newest-remat3
ifeq ($(origin VERSION),command line)
check-jax: $(JAX_TESTS_NEED)
	@python=$$(scripts/setup jax '$(VERSION)') && $$python $(JAX_TESTS)
else
check-jax: $(VENV)/.ready $(JAX_TESTS_NEED)
	@$(VENV_PYTHON) $(JAX_TESTS) $(OLDER_LEFT_OUT)
endif

check-jax-newest: $(NEWEST)/.ready $(JAX_TESTS_NEED)
	@$(NEWEST_PYTHON) $(JAX_TESTS)

# With the jax.checkpoint that JAX will make its default: the files that differentiate. It expands
# recomputations late, so one test that reads a jaxpr cannot run.
REMAT3_TESTS := $(patsubst %,tests/jax/test_%.py,batches devices gradients lifetime memory patch refusals) \
	--deselect tests/jax/test_lifetime.py::test_whether_a_program_chooses
check-jax-newest-remat3: $(NEWEST)/.ready $(JAX_TESTS_NEED)
	@JAX_REMAT3=1 $(NEWEST_PYTHON) -c 'import jax; assert jax.config.jax_remat3'
	@JAX_REMAT3=1 $(NEWEST_PYTHON) $(JAX_TESTS:%/jax=) $(REMAT3_TESTS)

# Random programs, beside stock JAX: `make check-jax-programs SEED=1000 SECONDS=600`. Without
# SEED or SECONDS they are always the same ones.
PROGRAMS_COUNT := $(if $(SEED)$(SECONDS),0,58)
.PHONY: check-jax-programs
check-jax-programs: $(VENV)/.ready $(NEWEST)/.ready $(XLA_LIBRARY)
	@$(PYTHON3) tests/jax/programs.py $(or $(SEED),0) --seconds $(or $(SECONDS),120) \
		--count $(PROGRAMS_COUNT) --tap \
		--python $(VENV_PYTHON) --python $(NEWEST_PYTHON)

SAVED_SOURCES := tests/jax/saved_threads.c $(LIB_SOURCES) \
	$(addprefix lib/xla/,announce.c arrays.c attached.c block_name.c claim.c counts.c \
	forked.c grow.c knobs.c memory.c own_memory.c places.c saved.c \
	shares.c site.c stores.c table.c)
SAVED_TESTS := $(B)/tests/saved_threads-thread $(B)/tests/saved_threads-address

ARRAY_SOURCES := tests/jax/array_threads.c $(LIB_SOURCES) \
	$(addprefix lib/xla/,arrays.c attached.c counts.c forked.c grow.c knobs.c \
	memory.c own_memory.c places.c shares.c stores.c tensor.c)
ARRAY_TESTS := $(B)/tests/array_threads-thread $(B)/tests/array_threads-address

CHECK_NEEDS += $(SAVED_TESTS) $(ARRAY_TESTS)

# What ThreadSanitizer watches is compiled as tests/common/lib.mk does.
$(B)/obj/address/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -O1 -fsanitize=address -MMD -MP -c $< -o $@

$(B)/tests/saved_threads-thread: $(SAVED_SOURCES:%.c=$(B)/obj/thread/%.o)
$(B)/tests/saved_threads-address: $(SAVED_SOURCES:%.c=$(B)/obj/address/%.o)
$(B)/tests/array_threads-thread: $(ARRAY_SOURCES:%.c=$(B)/obj/thread/%.o)
$(B)/tests/array_threads-address: $(ARRAY_SOURCES:%.c=$(B)/obj/address/%.o)
$(SAVED_TESTS) $(ARRAY_TESTS):
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -fsanitize=$(lastword $(subst -, ,$@)) -pthread $^ $(LIB_NEEDS) -o $@

# ThreadSanitizer wants addresses that are not randomized too far; where that
# may not be turned off, they seldom are. A budget that is less than is live,
# so that most go through files.
SAVED_MEMORY := ACTMEM_BACKEND=memfd ACTMEM_PAGES=4K ACTMEM_ALLOW=unlocked
SAVED_SPILL := ACTMEM_BUDGET=4M ACTMEM_SPILL=$(B)/tests

.PHONY: check-jax-threads
check-jax-threads: $(SAVED_TESTS) $(ARRAY_TESTS)
	@fixed=$$(setarch -R true 2>/dev/null && echo setarch -R); \
	for test in $(SAVED_TESTS); do \
		env $(SAVED_MEMORY) timeout 300 $$fixed $$test && \
		env $(SAVED_MEMORY) $(SAVED_SPILL) timeout 300 $$fixed $$test || exit; \
	done; \
	for test in $(ARRAY_TESTS); do \
		env $(SAVED_MEMORY) ACTMEM_HEAP_GROW=2M timeout 300 $$fixed $$test || exit; \
	done

# The same on the driver, in a booted kernel that sees this machine's files: of one process,
# of a budget, of two processes, and of `actmem run --share`. All in one machine of two memory
# nodes with a disk to spill to, and a PCI device of node 1 that is said to be a GPU. Its
# processor is one with AVX, which jaxlib wants.
CHECKS_IN_VM += jax-driver

JAX_ON_DRIVER := $(VENV)/.ready $(XLA_LIBRARY) $(B)/bin/actmem $(PRELOAD_LIBRARY) $(B)/vm/init

# Without what an emulator copies by, a byte at a time.
JAX_CPU := max,-erms,-fsrm

JAX_PARTS := jax-one-driver jax-budget-driver jax-pair-driver jax-share-driver
jax-one-driver := $(B)/bin/actmem run --backend driver --nodes 1 -- $(VENV_PYTHON) tests/jax/on_driver.py
jax-budget-driver := $(VENV_PYTHON) tests/jax/budget_on_driver.py
jax-pair-driver := $(VENV_PYTHON) tests/jax/pair_on_driver.py
jax-share-driver = env LD_LIBRARY_PATH=$(abspath $(dir $(CUDA_STANDIN))) \
	$(JAX_SHARE) GPU=0000:80:00.0:1 --backend driver

# $(call jax_on_driver,KERNEL,MEMORY,PARTS)
jax_on_driver = tests/vm/run --kernel $(1) --tap --host --cpu $(JAX_CPU) --numa 2 --pci-node 1 \
	--memory $(2) --nvme 1G --load ext4 --load crc32c_generic --timeout 3600 \
	--env PYTHONDONTWRITEBYTECODE=1 --env TMPDIR=/dev/shm \
	-- $($(firstword $(3))) $(foreach part,$(wordlist 2,9,$(3)),--and $($(part)))

.PHONY: check-jax-driver $(addprefix check-,$(JAX_PARTS))
check-jax-driver: $(JAX_ON_DRIVER) $(CUDA_STANDIN)
	@$(call jax_on_driver,6.12,3G,$(JAX_PARTS))

# Each part alone, by name.
$(addprefix check-,$(JAX_PARTS)): check-%: $(JAX_ON_DRIVER) $(CUDA_STANDIN)
	@$(call jax_on_driver,6.12,3G,$*)
