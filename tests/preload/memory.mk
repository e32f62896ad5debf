# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of what programs get from CUDA's calls under the preload. Each is built twice: to
# be run under the preload, and with the preload's files in it, for the sanitizers.

MEMORY_TESTS := $(filter-out memory_test,$(patsubst tests/preload/%.c,%,$(wildcard \
	tests/preload/memory_*.c)))
MEMORY_SHARED := tests/preload/memory_test tests/lib/tap tests/lib/common
MEMORY_OURS := $(patsubst %.c,%,$(filter-out %/cuda_hooks.c %/cuda_linked.c,$(wildcard \
	lib/preload/cuda_*.c)))
MEMORY_PROGRAMS := $(MEMORY_TESTS:%=$(B)/tests/preload/%)
MEMORY_DIRECT := $(addprefix $(B)/tests/preload/,$(MEMORY_TESTS:%=%-address) \
	memory_threads-thread)
MEMORY_COMPILE = $(CC) $(ALL_CFLAGS) -Itests/lib -isystem $(CUDA_INCLUDE) \
	-DLIB_SONAME='"$(LIB_SONAME)"' -DMEMORY_DIRECT -O1 -fno-omit-frame-pointer \
	-MMD -MP -c $< -o $@

$(B)/obj/memory-address/%.o: %.c | $(CUDA_READY)
	@mkdir -p $(@D)
	$(MEMORY_COMPILE) -fsanitize=address,undefined -fno-sanitize-recover=all

$(B)/obj/memory-thread/%.o: %.c | $(CUDA_READY)
	@mkdir -p $(@D)
	$(MEMORY_COMPILE) -fsanitize=thread

$(MEMORY_PROGRAMS): $(B)/tests/preload/%: $(B)/obj/cuda/tests/preload/%.o \
		$(MEMORY_SHARED:%=$(B)/obj/cuda/%.o) $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIB_NEEDS) -o $@

$(B)/tests/preload/%-address: $(B)/obj/memory-address/tests/preload/%.o \
		$(MEMORY_SHARED:%=$(B)/obj/memory-address/%.o) \
		$(MEMORY_OURS:%=$(B)/obj/memory-address/%.o) $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -fsanitize=address,undefined $^ $(LIB_NEEDS) -o $@

$(B)/tests/preload/%-thread: $(B)/obj/memory-thread/tests/preload/%.o \
		$(MEMORY_SHARED:%=$(B)/obj/memory-thread/%.o) \
		$(MEMORY_OURS:%=$(B)/obj/memory-thread/%.o) $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -fsanitize=thread $^ $(LIB_NEEDS) -o $@

.SECONDARY: $(patsubst %.c,$(B)/obj/memory-address/%.o,$(wildcard tests/preload/memory_*.c))

CHECKS += memory
CHECK_NEEDS += $(MEMORY_PROGRAMS) $(MEMORY_DIRECT) $(CUDA_STANDIN) $(LIB_SHARED)
.PHONY: check-memory
check-memory: all $(MEMORY_PROGRAMS) $(MEMORY_DIRECT) $(CUDA_STANDIN)
	@tests/preload/run_memory $(B) $(dir $(CUDA_STANDIN)) $(MEMORY_DIRECT) $(MEMORY_PROGRAMS)
