# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of the preload in front of CUDA's calls, with the stand-in of tests/cuda, or, by
# tests/gpu/run, with the machine's own libcuda.so.1. Each source here is a program, but
# for those named *_test.c; what they load is in parts/.

PRELOAD_TEST := $(B)/tests/preload
PRELOAD_TESTS := $(patsubst tests/preload/%.c,%,$(filter-out %_test.c, \
	$(wildcard tests/preload/*.c)))
PRELOAD_SHARED := $(addprefix $(B)/obj/cuda/,tests/preload/preload_test.o \
	tests/preload/memory_test.o $(CUDA_SHARED:%=%.o)) $(LIB_OBJECTS)
PRELOAD_PROGRAMS := $(PRELOAD_TESTS:%=$(PRELOAD_TEST)/%)
PRELOAD_PARTS := $(patsubst tests/preload/parts/%.c,$(PRELOAD_TEST)/%.so, \
	$(filter-out %/behind.c %/outer.c,$(wildcard tests/preload/parts/*.c))) \
	$(PRELOAD_TEST)/behind/behind.so \
	$(addprefix $(PRELOAD_TEST)/,another/libcuda.so.1 outer/libcuda.so.1 \
	versioned/libcuda.so.1)
PRELOAD_LINK = $(CUDA_LINK) -Wl,-rpath,'$$ORIGIN' $(EXTRA_LDFLAGS)

$(PRELOAD_PROGRAMS): $(PRELOAD_TEST)/%: $(B)/obj/cuda/tests/preload/%.o $(PRELOAD_SHARED)
	@mkdir -p $(@D)
	$(PRELOAD_LINK)

# Without any of what tests share.
PRELOAD_PLAIN := $(addprefix $(PRELOAD_TEST)/programs/,plain secure sanitized-thread \
	sanitized-address musl)

$(PRELOAD_TEST)/programs/sanitized-%: tests/preload/programs/sanitized.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -fsanitize=$* $(if $(filter address,$*),-static-libasan) \
		$< -o $@

# With its C library's own specs, which know no others' options.
$(PRELOAD_TEST)/programs/musl: tests/preload/programs/musl.c
	@mkdir -p $(@D)
	musl-gcc -std=gnu11 -O2 -Wall -Werror -fno-builtin -rdynamic $< -o $@

$(PRELOAD_TEST)/programs/%: tests/preload/programs/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< -o $@

# No more than these: libactmem must not find its own functions in a program.
$(PRELOAD_TEST)/own_dlsym: EXTRA_LDFLAGS = -Wl,--export-dynamic-symbol=dlsym
$(PRELOAD_TEST)/loading: EXTRA_LDFLAGS = -Wl,--export-dynamic-symbol=in_constructor

# With whichever libcuda.so.1 it is when they run.
$(PRELOAD_TEST)/linked $(PRELOAD_TEST)/linked_plugin.so: $(CUDA_STANDIN)

# The package of headers has cudart beside them; so has a toolkit, beside what its include
# is a link to.
CUDART_FOLDERS = $(realpath $(wildcard $(CUDA_INCLUDE)/../lib $(CUDA_INCLUDE)/../lib64))
$(PRELOAD_TEST)/cudart: EXTRA_LDFLAGS = \
	$(foreach folder,$(CUDART_FOLDERS),-L$(folder) -Wl,-rpath,$(folder)) -l:libcudart.so.13

# In them, the call of dlsym() is not the last thing that a function does: the C library
# would take the one that called it for the one that asks.
$(B)/obj/cuda/tests/preload/parts/%.o: private ALL_CFLAGS += -fno-optimize-sibling-calls

$(PRELOAD_TEST)/%.so: $(B)/obj/cuda/tests/preload/parts/%.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) $(EXTRA_LDFLAGS) $^ -o $@

# Where only the RUNPATH of what is linked with it leads.
$(PRELOAD_TEST)/behind/behind.so: $(B)/obj/cuda/tests/preload/parts/behind.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) $^ -o $@

$(PRELOAD_TEST)/plugin.so: $(PRELOAD_TEST)/behind/behind.so
$(PRELOAD_TEST)/plugin.so: EXTRA_LDFLAGS = -Wl,--no-as-needed,--enable-new-dtags \
	-Wl,-rpath,'$$ORIGIN/behind'

$(PRELOAD_TEST)/outer/libcuda.so.1: $(B)/obj/cuda/tests/preload/parts/outer.o
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-Bsymbolic $^ -o $@

$(PRELOAD_TEST)/another/libcuda.so.1: $(CUDA_STANDIN)
	@mkdir -p $(@D)
	cp $< $@

$(PRELOAD_TEST)/versioned/libcuda.so.1: tests/preload/parts/versioned.map $(CUDA_STANDIN_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,defs,-Bsymbolic \
		-Wl,--version-script=$< $(CUDA_STANDIN_OBJECTS) -o $@

.PHONY: check-preload
CHECKS += preload
PRELOAD_NEEDS := $(PRELOAD_PROGRAMS) $(PRELOAD_PARTS)
CHECK_NEEDS += $(PRELOAD_NEEDS) $(PRELOAD_PLAIN)
check-preload: all $(PRELOAD_NEEDS) $(PRELOAD_PLAIN) $(B)/tests/malloc/static $(CUDA_STANDIN)
	@status=0; \
	tests/preload/run $(B) $(dir $(CUDA_STANDIN)) $(PRELOAD_PROGRAMS) || status=1; \
	PYTHONPATH=tests/tools $(PYTHON3) tests/preload/test_start.py $(B) || status=1; \
	exit $$status

# With the machine's own libcuda.so.1, and without the command; no part of `make check`.
.PHONY: check-gpu-preload
check-gpu-preload: $(PRELOAD_LIBRARY) $(LIB_SHARED) $(PRELOAD_NEEDS)
	@tests/preload/run $(B) '' $(PRELOAD_PROGRAMS)
