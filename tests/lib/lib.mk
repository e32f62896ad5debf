# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The library's test programs: static, so that they run in any kernel's
# initramfs as well as here.

LIB_TESTS := $(patsubst tests/lib/%.c,%,$(filter-out tests/lib/tap.c \
	tests/lib/common.c,$(wildcard tests/lib/*.c)))
LIB_TEST_PROGRAMS := $(LIB_TESTS:%=$(B)/tests/lib/%)

$(LIB_TEST_PROGRAMS): $(B)/tests/lib/%: $(B)/obj/tests/lib/%.o \
		$(B)/obj/tests/lib/tap.o $(B)/obj/tests/lib/common.o $(LIB_STATIC)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -static $^ $(LIB_NEEDS) -o $@

.PHONY: lib-tests check-lib-memfd
lib-tests: $(LIB_TEST_PROGRAMS)

CHECKS += lib-memfd
CHECK_NEEDS += $(LIB_TEST_PROGRAMS)
check-lib-memfd: $(LIB_TEST_PROGRAMS)
	@tests/lib/run $(LIB_TEST_PROGRAMS)

# Regions, the heap and the store with many threads, where ThreadSanitizer sees every access
# of the library and the test. It does not know the fences of what reads other processes'
# records, which none of them uses.
LIB_THREADS := $(addprefix $(B)/tests/thread/,region_threads long_region heap heap_threads \
	heap_random heap_crowd store_threads store_random queue_notify queue_random)
LIB_THREADS_OBJ := $(B)/obj/thread

$(LIB_THREADS_OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -O1 -fsanitize=thread -Wno-tsan -MMD -MP -c $< -o $@

$(LIB_THREADS): $(B)/tests/thread/%: $(LIB_THREADS_OBJ)/tests/lib/%.o \
		$(LIB_THREADS_OBJ)/tests/lib/tap.o $(LIB_THREADS_OBJ)/tests/lib/common.o \
		$(LIB_SOURCES:%.c=$(LIB_THREADS_OBJ)/%.o)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -fsanitize=thread -pthread $^ $(LIB_NEEDS) -o $@

# It wants addresses that are not randomized too far.
.PHONY: check-lib-threads
CHECKS += lib-threads
CHECK_NEEDS += $(LIB_THREADS)
check-lib-threads: $(LIB_THREADS)
	@fixed=$$(setarch -R true 2>/dev/null && echo setarch -R); \
	for test in $(LIB_THREADS); do \
		ACTMEM_BACKEND=memfd ACTMEM_PAGES=4K timeout 300 $$fixed $$test || exit; \
	done
