# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of what programs get from CUDA's calls for host memory, with the preload's files
# in them, for the sanitizers. Under the preload itself preload.mk runs them.

MEMORY_TESTS := $(patsubst tests/preload/%.c,%,$(filter-out %_test.c,$(wildcard \
	tests/preload/memory_*.c)))
MEMORY_PARTS := tests/preload/memory_test tests/common/tap tests/common/common \
	lib/preload/say lib/preload/settings \
	$(patsubst %.c,%,$(filter-out %/hooks.c %/linked.c,$(wildcard \
	lib/preload/cuda/*.c)))
MEMORY_PROGRAMS := $(MEMORY_TESTS:%=$(B)/tests/preload/%-address) \
	$(B)/tests/preload/memory_threads-thread
MEMORY_COMPILE = $(CC) $(ALL_CFLAGS) -Itests/common -isystem $(CUDA_INCLUDE) \
	-DLIB_SONAME='"$(LIB_SONAME)"' -DMEMORY_DIRECT -O1 -fno-omit-frame-pointer \
	-MMD -MP -c $< -o $@
MEMORY_LINK = $(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIB_NEEDS) -o $@

$(B)/obj/memory-address/%.o: %.c | $(CUDA_READY)
	@mkdir -p $(@D)
	$(MEMORY_COMPILE) $(CUDA_SANITIZE)

$(B)/obj/memory-thread/%.o: %.c | $(CUDA_READY)
	@mkdir -p $(@D)
	$(MEMORY_COMPILE) -fsanitize=thread

$(MEMORY_TESTS:%=$(B)/tests/preload/%-address): $(B)/tests/preload/%-address: \
		$(B)/obj/memory-address/tests/preload/%.o \
		$(MEMORY_PARTS:%=$(B)/obj/memory-address/%.o) $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(MEMORY_LINK) $(CUDA_SANITIZE)

$(B)/tests/preload/memory_threads-thread: $(B)/obj/memory-thread/tests/preload/memory_threads.o \
		$(MEMORY_PARTS:%=$(B)/obj/memory-thread/%.o) $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(MEMORY_LINK) -fsanitize=thread

# Under the preload on the driver, with two nodes, in a booted kernel that sees this
# machine's files. Names of that kind are of memfd, and failures are tested there.
MEMORY_ON_DRIVER := $(addprefix $(B)/tests/preload/memory_,alloc copy under contexts \
	threads)

CHECKS_IN_VM += memory-driver
CHECK_NEEDS += $(MEMORY_ON_DRIVER)
.PHONY: check-memory-driver
check-memory-driver: all $(MEMORY_ON_DRIVER) $(CUDA_STANDIN) $(B)/vm/init
	@tests/vm/run --kernel 6.12 --tap --host --numa 2 --memory 3G --timeout 600 \
		--env ACTMEM_BACKEND=driver --env ACTMEM_CUDA=1 \
		--env LD_LIBRARY_PATH=$(abspath $(dir $(CUDA_STANDIN))) \
		$(foreach test,$(MEMORY_ON_DRIVER),$(if $(filter %alloc,$(test)),--,--and) \
		$(B)/bin/actmem run -- $(abspath $(test)))

CHECKS += memory
CHECK_NEEDS += $(MEMORY_PROGRAMS)
.PHONY: check-memory
check-memory: all $(MEMORY_PROGRAMS) $(CUDA_STANDIN)
	@tests/cuda/run $(dir $(CUDA_STANDIN)):$(abspath $(B))/lib $(MEMORY_PROGRAMS)
