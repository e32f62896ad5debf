# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The driver's tests: static programs, for the machines that tests/vm boots.
# The harness is the kernel's own, from its source package.

# Those that need the strict kernel.
STRICT_TESTS := $(addprefix $(B)/tests/driver/,faults faults_export faults_names)

# Those that need a machine of more than 6 GiB, one whose DMA all bounces, and one whose
# kernel preempts tasks in system calls and faults.
FAR_TESTS := $(addprefix $(B)/tests/driver/,far bounce gate stall)

# These need a kernel with the dmem controller, Linux 7.3 or later.
DMEM_TESTS := $(addprefix $(B)/tests/driver/,dmem dmem_reclaim)

# That runs for as long as it is told to.
FUZZ := $(B)/tests/driver/fuzz

DRIVER_TESTS := $(filter-out $(STRICT_TESTS) $(FAR_TESTS) $(DMEM_TESTS) $(FUZZ),$(patsubst tests/driver/%.c,$(B)/tests/driver/%,$(sort $(wildcard tests/driver/*.c))))

.PHONY: driver-tests
driver-tests: $(DRIVER_TESTS) $(STRICT_TESTS) $(FAR_TESTS) $(DMEM_TESTS) $(FUZZ)

# Included as a system's: the harness is not held to the warnings of this project.
# The functions that its macros make have no prototypes.
$(B)/tests/driver/%: tests/driver/%.c $(wildcard tests/driver/*.h) tests/vm/importer/importer.h uapi/actmem.h
	@mkdir -p $(@D)
	source=$$(tests/vm/kernel fetch source) && \
	$(CC) -std=gnu11 $(WARNINGS) -Wno-missing-prototypes -D_GNU_SOURCE -O2 -g -static -pthread -Iuapi \
		-isystem "$$source/tools/testing/selftests" $< -luring -o $@
