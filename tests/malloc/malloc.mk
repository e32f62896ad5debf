# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of the preload's malloc mode: of its calls, of the allocator under sanitizers,
# and of programs that know nothing of it.

MALLOC_TESTS := $(addprefix $(B)/tests/malloc/,calls decay forks)
MALLOC_COMMON := $(B)/obj/tests/malloc/malloc_test.o $(B)/obj/tests/common/tap.o \
	$(B)/obj/lib/watch/published.o $(B)/obj/lib/machine/procfs.o $(B)/obj/lib/machine/sysfile.o

$(MALLOC_TESTS:$(B)/tests/%=$(B)/obj/tests/%.o): EXTRA_CFLAGS = -fno-builtin -Wno-use-after-free

$(MALLOC_TESTS): $(B)/tests/malloc/%: $(B)/obj/tests/malloc/%.o $(MALLOC_COMMON) \
		$(LIB_STATIC)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(EXTRA_LDFLAGS) $^ $(LIB_NEEDS) -o $@

$(B)/tests/malloc/libforks.so: tests/malloc/forks_library.c tests/malloc/forks_library.h
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fvisibility=default -shared -Wl,-soname,$(@F) $< -o $@

$(B)/tests/malloc/forks: $(B)/tests/malloc/libforks.so
$(B)/tests/malloc/forks: EXTRA_LDFLAGS = -Wl,-rpath,'$$ORIGIN'

# The allocator under its own names, as the sanitizers interpose malloc themselves.
LARGE_SOURCES := $(filter-out %/malloc.c %/next.c %/start.c %/symbols.c, \
	$(filter-out lib/preload/cuda/%,$(PRELOAD_SOURCES))) \
	lib/base/extents_find.c lib/base/size.c lib/config/knob.c lib/config/read.c \
	lib/machine/nodes.c lib/machine/sysfile.c lib/watch/publish.c
LARGE_TESTS := $(B)/tests/malloc/large-thread $(B)/tests/malloc/large-address

$(LARGE_TESTS): $(B)/tests/malloc/large-%: tests/malloc/large.c $(LARGE_SOURCES) \
		$(wildcard lib/base/*.h lib/config/*.h lib/machine/*.h lib/watch/*.h lib/preload/*.h lib/preload/malloc/*.h) \
		lib/base/extents.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -O1 -fsanitize=$* $(if $(filter address,$*),-fsanitize=undefined) \
		-DACTMEM_DEBUG tests/malloc/large.c $(LARGE_SOURCES) -o $@

# A program with a malloc of its own, one at a fixed address, one that is static, and
# libraries.
MALLOC_PROGRAMS := $(addprefix $(B)/tests/malloc/,own_malloc fixed static counting.so \
	resident)

$(B)/tests/malloc/own_malloc: tests/malloc/own_malloc.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fno-builtin -rdynamic $< -o $@

$(B)/tests/malloc/fixed: tests/malloc/fixed.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fno-builtin -fno-pic -no-pie $< -o $@

$(B)/tests/malloc/static: tests/malloc/static.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -static $< -o $@

$(B)/tests/malloc/resident: tests/malloc/resident.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $< -o $@

$(B)/tests/malloc/counting.so: tests/malloc/counting.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fvisibility=default -fno-builtin -shared $< -o $@

CHECKS += malloc
CHECK_NEEDS += $(MALLOC_TESTS) $(LARGE_TESTS) $(MALLOC_PROGRAMS)
.PHONY: check-malloc
check-malloc: all $(VENV)/.ready $(MALLOC_TESTS) $(LARGE_TESTS) $(MALLOC_PROGRAMS)
	@tests/malloc/run $(B)
