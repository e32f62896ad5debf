# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of the command: on the memfd backend and without the module; and on the
# driver, in a booted kernel.

CHECKS += tools
CHECKS_IN_VM += tools-driver

TOOLS_TESTS := $(B)/tests/tools

TOOLS_TEST_PROGRAMS := $(addprefix $(TOOLS_TESTS)/,holder waiter cgroup_test share_test)
CHECK_NEEDS += $(TOOLS_TEST_PROGRAMS)

$(TOOLS_TESTS)/holder $(TOOLS_TESTS)/waiter: $(TOOLS_TESTS)/%: \
		$(B)/obj/tests/tools/%.o $(B)/lib/libactmem.so.$(ABI)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../../lib'

$(B)/obj/tests/tools/holder.o: ALL_CFLAGS += -Itests/common
$(B)/obj/tests/tools/cgroup_test.o: ALL_CFLAGS += -Itests/common
$(B)/obj/tests/tools/waiter.o: ALL_CFLAGS += -Itests/cuda/standin
$(B)/obj/tests/tools/share_test.o: ALL_CFLAGS += -I.
$(TOOLS_TESTS)/cgroup_test: $(B)/obj/tests/tools/cgroup_test.o \
		$(B)/obj/tests/common/tap.o $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LIB_NEEDS)

$(TOOLS_TESTS)/share_test: $(B)/obj/tests/tools/share_test.o \
		$(addprefix $(B)/obj/tools/,ranks.o share.o share_nodes.o table.o wrap.o environment.o) $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(TOOLS_LIBS) $(LIB_NEEDS)

.PHONY: check-tools check-tools-driver
check-tools: all $(TOOLS_TEST_PROGRAMS) $(CUDA_STANDIN)
	@tests/tools/run $(B) $(TOOLS_TESTS)

TOOLS_ON_DRIVER := all $(TOOLS_TESTS)/holder $(B)/vm/init

check-tools-driver: $(TOOLS_ON_DRIVER)
	@$(PYTHON3) tests/tools/test_driver.py $(B)
	@label=$${ACTMEM_TEST_KERNEL:-6.12}; module=$$(tests/vm/kernel build-module $$label) && \
		tests/vm/run --kernel $$label --host --numa 2 --memory 768M --load overlay --tap \
			--timeout 300 --log $(B)/check/tools-saved.kernel-log -- tests/tools/saved_guest \
			$(abspath $(B))/bin/actmem packaging/actmem-pool@.service $$module
