# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests in booted kernels: of the harness itself; on each kernel those of
# tests/driver, of tests/vm/programs (for which the machine has devices), of the
# library, and of tests/vm/disks (for which its disk fails); of limits by cgroup, on a
# kernel of our own; and of the module's build.

VM_LABELS := 6.1 6.12 7.2
# Those of Ubuntu 24.04, by name alone: make check-vm-ubuntu-6.8
VM_UBUNTU := $(addprefix ubuntu-,6.8 6.11 6.14 6.17 7.0)
CHECKS_IN_VM += vm-harness $(addprefix vm-,$(VM_LABELS)) vm-dmem module

VM_CC = $(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -g -static

$(B)/vm/init: tests/vm/init.c tests/vm/leaks.c tests/vm/init.h
	@mkdir -p $(@D)
	$(VM_CC) $(filter %.c,$^) -o $@

$(B)/vm/misbehave: tests/vm/programs/misbehave.c
	@mkdir -p $(@D)
	$(VM_CC) $< -o $@

# The kernel's own test harness is not held to the warnings of this project,
# and the functions that its macros make have no prototypes.
VM_PROGRAMS := $(addprefix $(B)/vm/,edu_import fixed_buffers full_buffer iommu_device)

$(VM_PROGRAMS): $(B)/vm/%: tests/vm/programs/%.c \
		tests/vm/programs/device_test.h $(wildcard tests/driver/*.h) \
		tests/vm/importer/importer.h uapi/actmem.h
	@mkdir -p $(@D)
	source=$$(tests/vm/kernel fetch source) && \
	$(VM_CC) -Wno-missing-prototypes -pthread -Iuapi -Itests/driver \
		-isystem "$$source/tools/testing/selftests" \
		$< -luring -o $@

# The library on disks that fail.
DISK_MACHINE := --load ext4 --load crc32c_generic --load dm-flakey --load dm-delay \
	--file /sbin/mke2fs:/sbin/mke2fs
DISK_PROGRAMS := $(addprefix $(B)/tests/vm/disks/,queue_faults store_faults)

$(DISK_PROGRAMS): $(B)/tests/vm/disks/%: $(B)/obj/tests/vm/disks/%.o \
		$(B)/obj/tests/vm/disks/disk.o $(B)/obj/tests/common/tap.o $(B)/obj/tests/common/common.o \
		$(LIB_STATIC)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -static $^ $(LIB_NEEDS) -o $@

$(B)/obj/tests/vm/disks/%.o: ALL_CFLAGS += -Itests/common

# One boot for each kernel, with all that any of the tests wants: disk, memory for a
# registered buffer of 1 GiB, and the kernel's own ways to have memory fail.
VM_MACHINE := --memory 2304M --numa 3 --parameter cma=32M --nvme 1G --edu --timeout 1000 \
	--load vgem --load hwpoison-inject --load mce-inject --env ACTMEM_BACKEND=driver \
	--env ACTMEM_TEST_DISK=/dev/nvme0n1 $(DISK_MACHINE)

# Half of it, on the kernels beside the newest.
VM_PARAMETERS_6.1 := --env ACTMEM_STRESS_ROUNDS=400
VM_PARAMETERS_6.12 := $(VM_PARAMETERS_6.1)

# Ubuntu's 7.0 keeps 970 MiB of that machine for kexec handover, where no region's page lies.
VM_PARAMETERS_ubuntu-7.0 := --parameter kho=off

# The tests load a module: tests/vm/importer imports dma-bufs.
module_of = $$(tests/vm/kernel build-module $(1) tests/vm/$(2))

# Memory that is not used costs next to nothing. It is the machine, too, that has all
# DMA bounce, which matters to no other test there, and pages of 1 GiB.
FAR_PROGRAMS := $(FAR_TESTS) $(B)/tests/region/pages_1g
FAR_CPU := Nehalem,+pdpe1gb
FAR_MACHINE := --memory 7G --numa 2 --cpu $(FAR_CPU) --parameter swiotlb=force \
	--parameter preempt=full --timeout 1000

# Charges come and go in these as well.
CHARGING_TESTS := $(addprefix $(B)/tests/driver/,limits lingering lazy pool_settings trace)
DMEM_PROGRAMS := $(B)/tests/vm/dmem/refusal

$(DMEM_PROGRAMS): $(B)/tests/vm/dmem/%: $(B)/obj/tests/vm/dmem/%.o \
		$(B)/obj/tests/common/tap.o $(LIB_STATIC)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -static $^ $(LIB_NEEDS) -o $@

$(B)/obj/tests/vm/dmem/%.o: ALL_CFLAGS += -Itests/common

# KASAN takes an eighth of the memory and most of the time.
STRICT_MACHINE := --memory 3G --numa 3 --nvme 1G --edu --timeout 2400 \
	--env ACTMEM_BACKEND=driver --env ACTMEM_TEST_DISK=/dev/nvme0n1

# The newest kernel runs all programs of the library, the older ones of `make check` only those
# whose result depends on the kernel. All run the driver's, and those with devices and disks.
VM_OLDER := 6.1 6.12
LIB_BY_KERNEL := $(addprefix $(B)/tests/,region/region region/lazy region/names region/fork \
	region/limits region/placement region/pages_1g region/late_pages queue/queue \
	queue/queue_refused queue/queue_eventfd queue/queue_killed runtime/runtime store/store)

# $(call lib_tests,KERNEL)
lib_tests = $(if $(filter $(VM_OLDER),$(1)),$(LIB_BY_KERNEL),$(LIB_TEST_PROGRAMS))
vm_tests = $(DRIVER_TESTS) $(VM_PROGRAMS) $(call lib_tests,$(1)) $(DISK_PROGRAMS)

# `make check` runs the fuzzer on the newest kernel alone. `make fuzz` runs it for as long as
# SECONDS says, on the kernel KERNEL, with the seed SEED.
KERNEL ?= 7.2
SECONDS ?= 3600
SEED ?=
FUZZ_7.2 := --and $(FUZZ) --seconds 120

CHECK_NEEDS += $(B)/vm/init $(B)/vm/misbehave $(VM_PROGRAMS) $(DRIVER_TESTS) $(FAR_TESTS) $(BENCH_PROGRAMS) \
	$(DMEM_TESTS) $(DMEM_PROGRAMS) $(FUZZ)

.PHONY: check-vm-harness check-vm-dmem check-module sparse \
	$(addprefix check-vm-,$(VM_LABELS) $(VM_UBUNTU))
check-vm-harness: $(B)/vm/init $(B)/vm/misbehave
	@tests/vm/selftest

check-module:
	@tests/vm/module-check

sparse: check-module

$(addprefix check-vm-,$(VM_LABELS) $(VM_UBUNTU)): check-vm-%: $(B)/vm/init $(call vm_tests,all) $(FUZZ) $(FAR_PROGRAMS) $(BENCH_PROGRAMS)
	@mkdir -p $(B)/check
	@status=0; \
	importer=$(call module_of,$*,importer) && \
	tests/vm/run --kernel $* --tap --log $(B)/check/vm-$*.kernel-log $(VM_MACHINE) \
		$(VM_PARAMETERS_$*) \
		--file "$$importer:/vm/modules/importer.ko" \
		-- $(firstword $(DRIVER_TESTS)) \
		$(addprefix --and ,$(filter-out $(firstword $(DRIVER_TESTS)),$(call vm_tests,$*))) \
		$(FUZZ_$*) $(BENCH_SMOKE) || \
		status=$$?; \
	tests/vm/run --kernel $* --tap --log $(B)/check/vm-$*-far.kernel-log $(FAR_MACHINE) \
		$(VM_PARAMETERS_$*) \
		--file "$$importer:/vm/modules/importer.ko" \
		-- $(firstword $(FAR_PROGRAMS)) \
		$(addprefix --and ,$(wordlist 2,$(words $(FAR_PROGRAMS)),$(FAR_PROGRAMS))) || status=$$?; \
	exit $$status

.PHONY: fuzz
fuzz: $(B)/vm/init $(FUZZ)
	@mkdir -p $(B)/check
	@importer=$(call module_of,$(KERNEL),importer) && \
	tests/vm/run --kernel $(KERNEL) --tap --log $(B)/check/fuzz-$(KERNEL).kernel-log \
		--memory 2304M --numa 3 --nvme 1G \
		--timeout $$(($(SECONDS) + 300)) --file "$$importer:/vm/modules/importer.ko" \
		-- $(FUZZ) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

check-vm-dmem: all $(B)/vm/init $(DMEM_TESTS) $(DMEM_PROGRAMS) $(CHARGING_TESTS) \
		$(B)/tests/store/store_reclaim
	@mkdir -p $(B)/check
	@tests/vm/run --kernel dmem --tap --log $(B)/check/vm-dmem.kernel-log --memory 1536M --numa 3 \
		--file $(abspath $(B))/bin/actmem --file $(abspath $(B))/lib/libactmem.so.$(ABI) \
		--file /bin/sh:/bin/sh --env LD_LIBRARY_PATH=$(abspath $(B))/lib \
		--timeout 600 -- $(firstword $(DMEM_TESTS)) \
		$(addprefix --and ,$(filter-out $(firstword $(DMEM_TESTS)),$(DMEM_TESTS)) $(CHARGING_TESTS)) \
		--and $(DMEM_PROGRAMS) $(abspath $(B))/bin/actmem \
		--and $(B)/tests/store/store_reclaim dmem

# On the strict kernel. It takes 20 minutes, and `make check` leaves it out.
# Two machines at a time, the slowest first; each part can be run on its own.
STRICT_PARTS := driver jax far devices tools
STRICT_RUN = tests/vm/run --kernel strict --tap $(STRICT_MACHINE)

.PHONY: check-strict $(addprefix check-strict-,$(STRICT_PARTS))
check-strict:
	@scripts/setup packages build check
	@tests/vm/kernel fetch strict >/dev/null
	@$(MAKE) --no-print-directory -s $(VENV)/.ready
	@$(MAKE) --no-print-directory -s -k -j2 --output-sync=target \
		$(addprefix check-strict-,$(STRICT_PARTS))

check-strict-driver: $(B)/vm/init $(STRICT_TESTS) $(DRIVER_TESTS) $(FUZZ)
	@mkdir -p $(B)/check
	@importer=$(call module_of,strict,importer) && \
	$(STRICT_RUN) --log $(B)/check/strict-driver.kernel-log \
		--file "$$importer:/vm/modules/importer.ko" \
		-- $(firstword $(STRICT_TESTS)) \
		$(addprefix --and ,$(wordlist 2,9,$(STRICT_TESTS)) $(DRIVER_TESTS)) \
		--and $(FUZZ) --seconds 120

# Without what reserves a page of 1 GiB: Linux 6.12 walks beyond page_ext's
# sections when it makes one while page_owner or page_table_check is on, and dies. Without stall:
# it compares times, which the checks change.
STRICT_FAR := $(filter-out %/pages_1g %/stall,$(FAR_PROGRAMS))

# What KASAN takes comes on top, or the regions would be refused as too large.
check-strict-far: $(B)/vm/init $(STRICT_FAR)
	@mkdir -p $(B)/check
	@importer=$(call module_of,strict,importer) && \
	tests/vm/run --kernel strict --tap --memory 8G --numa 2 --cpu $(FAR_CPU) --parameter swiotlb=force \
		--timeout 2400 --log $(B)/check/strict-far.kernel-log \
		--file "$$importer:/vm/modules/importer.ko" \
		-- $(firstword $(STRICT_FAR)) \
		$(addprefix --and ,$(wordlist 2,$(words $(STRICT_FAR)),$(STRICT_FAR)))

STRICT_DEVICES = $(VM_PROGRAMS) $(LIB_TEST_PROGRAMS)

check-strict-devices: $(B)/vm/init $(STRICT_DEVICES)
	@mkdir -p $(B)/check
	@importer=$(call module_of,strict,importer) && \
	$(STRICT_RUN) --log $(B)/check/strict-devices.kernel-log \
		--file "$$importer:/vm/modules/importer.ko" \
		-- $(firstword $(STRICT_DEVICES)) \
		$(addprefix --and ,$(wordlist 2,$(words $(STRICT_DEVICES)),$(STRICT_DEVICES)))

check-strict-tools: $(TOOLS_ON_DRIVER)
	@ACTMEM_TEST_KERNEL=strict $(PYTHON3) tests/tools/test_driver.py $(B)

check-strict-jax: $(JAX_ON_DRIVER)
	@$(call jax_on_driver,strict,4G,jax-one-driver)

# On the kernel that finds data races.
.PHONY: check-kcsan
check-kcsan: $(B)/vm/init $(DRIVER_TESTS) $(FUZZ)
	@mkdir -p $(B)/check
	@importer=$(call module_of,kcsan,importer) && \
	tests/vm/run --kernel kcsan --tap $(STRICT_MACHINE) --log $(B)/check/kcsan.kernel-log \
		--file "$$importer:/vm/modules/importer.ko" \
		-- $(firstword $(DRIVER_TESTS)) \
		$(addprefix --and ,$(wordlist 2,$(words $(DRIVER_TESTS)),$(DRIVER_TESTS))) \
		--and $(FUZZ) --seconds 120
