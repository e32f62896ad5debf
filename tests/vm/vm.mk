# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests in booted kernels: the harness itself, then the programs of
# tests/driver and tests/lib on each kernel.

CHECKS += vm-harness

VM_CC = $(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -static

$(B)/vm/init: tests/vm/init.c
	@mkdir -p $(@D)
	$(VM_CC) $< -o $@

$(B)/vm/misbehave: tests/vm/programs/misbehave.c
	@mkdir -p $(@D)
	$(VM_CC) $< -o $@

.PHONY: check-vm-harness
check-vm-harness: $(B)/vm/init $(B)/vm/misbehave
	@tests/vm/selftest
