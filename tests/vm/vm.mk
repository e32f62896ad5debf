# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests in booted kernels: of the harness itself; on each kernel those of
# tests/driver, of tests/vm/programs (for which the machine has devices) and of
# the library; and of the module's build.

VM_LABELS := 6.1 6.12 7.2
CHECKS += vm-harness module $(addprefix vm-,$(VM_LABELS))

VM_CC = $(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -g -static

$(B)/vm/init: tests/vm/init.c tests/vm/leaks.c tests/vm/init.h
	@mkdir -p $(@D)
	$(VM_CC) $(filter %.c,$^) -o $@

$(B)/vm/misbehave $(B)/vm/provoke: $(B)/vm/%: tests/vm/programs/%.c
	@mkdir -p $(@D)
	$(VM_CC) $< -o $@

# The kernel's own test harness is not held to the warnings of this project,
# and the functions that its macros make have no prototypes.
VM_PROGRAMS := $(addprefix $(B)/vm/,direct_io fixed_buffers iommu_device)

$(VM_PROGRAMS): $(B)/vm/%: tests/vm/programs/%.c \
		tests/vm/programs/device_test.h tests/driver/driver_test.h uapi/actmem.h
	@mkdir -p $(@D)
	source=$$(tests/vm/kernel fetch source) && \
	$(VM_CC) -Wno-missing-prototypes -pthread -Iuapi -Itests/driver \
		-isystem "$$source/tools/testing/selftests" \
		$< -luring -o $@

# One boot for each kernel, with all that any of the tests wants.
VM_MACHINE := --memory 1536M --numa 3 --nvme 64M --edu --timeout 300 --env ACTMEM_BACKEND=driver

# KASAN takes an eighth of the memory and most of the time.
STRICT_MACHINE := --memory 3G --numa 3 --nvme 64M --edu --timeout 900 --env ACTMEM_BACKEND=driver

VM_TESTS = $(DRIVER_TESTS) $(VM_PROGRAMS) $(LIB_TEST_PROGRAMS)

.PHONY: check-vm-harness check-strict check-module sparse $(addprefix check-vm-,$(VM_LABELS))
check-vm-harness: $(B)/vm/init $(B)/vm/misbehave
	@tests/vm/selftest

check-module:
	@tests/vm/module-check

sparse: check-module

$(addprefix check-vm-,$(VM_LABELS)): check-vm-%: $(B)/vm/init $(VM_TESTS)
	@mkdir -p $(B)/check
	@tests/vm/run --kernel $* --tap --log $(B)/check/vm-$*.kernel-log $(VM_MACHINE) \
		-- $(firstword $(VM_TESTS)) \
		$(addprefix --and ,$(wordlist 2,$(words $(VM_TESTS)),$(VM_TESTS)))

# On the strict kernel, with the proof that its detectors are alive. Not one of
# CHECKS: building that kernel takes about 20 minutes where it is not cached.
check-strict:
	@scripts/setup packages build check strict
	@$(MAKE) --no-print-directory -s strict-tests
	@mkdir -p $(B)/check
	@status=0; \
	tests/vm/selftest-strict --log $(B)/check/strict-selftest.kernel-log || status=1; \
	tests/vm/run --kernel strict --tap --log $(B)/check/strict.kernel-log $(STRICT_MACHINE) \
		-- $(firstword $(STRICT_TESTS)) $(addprefix --and ,$(VM_TESTS)) || status=1; \
	exit $$status

.PHONY: strict-tests
strict-tests: $(B)/vm/init $(B)/vm/provoke $(VM_TESTS) $(STRICT_TESTS)
