# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of the preload in front of CUDA's calls, with the stand-in of tests/cuda, or, by
# tests/gpu/run, with the machine's own libcuda.so.1. Each source here is a program, but
# for preload_test.c and memory_test.c; what they load is in parts/.

PRELOAD_TEST := $(B)/tests/preload
PRELOAD_TESTS := $(patsubst tests/preload/%.c,%,$(filter-out %_test.c,$(wildcard \
	tests/preload/*.c)))
PRELOAD_SHARED := $(addprefix $(B)/obj/cuda/,tests/preload/preload_test.o \
	tests/preload/memory_test.o $(CUDA_SHARED:%=%.o)) $(LIB_OBJECTS)
PRELOAD_PROGRAMS := $(PRELOAD_TESTS:%=$(PRELOAD_TEST)/%)
PRELOAD_PARTS := $(patsubst tests/preload/parts/%.c,$(PRELOAD_TEST)/%.so, \
	$(wildcard tests/preload/parts/*.c))
PRELOAD_LINK = $(CUDA_LINK) -Wl,-rpath,'$$ORIGIN' $(EXTRA_LDFLAGS)

$(PRELOAD_PROGRAMS): $(PRELOAD_TEST)/%: $(B)/obj/cuda/tests/preload/%.o $(PRELOAD_SHARED)
	@mkdir -p $(@D)
	$(PRELOAD_LINK)

$(PRELOAD_PARTS): $(PRELOAD_TEST)/%.so: $(B)/obj/cuda/tests/preload/parts/%.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) $^ $(EXTRA_LDFLAGS) -o $@

.PHONY: check-preload
CHECKS += preload
CHECK_NEEDS += $(PRELOAD_PROGRAMS) $(PRELOAD_PARTS)
check-preload: all $(PRELOAD_PROGRAMS) $(PRELOAD_PARTS) $(CUDA_STANDIN)
	@tests/preload/run $(B) $(dir $(CUDA_STANDIN)) $(PRELOAD_PROGRAMS)
