# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The library's tests, in folders named like those of lib/. A file test_*.c there is a unit
# test (tests/common/unit.mk). Each other file is a program that uses the public calls,
# static, so that it runs in any kernel's initramfs as well as here.

TEST_FOLDERS := base config machine watch region heap queue store runtime update
FOLDER_TESTS := $(patsubst %.c,%,$(wildcard $(TEST_FOLDERS:%=tests/%/*.c)))
LIB_TEST_PROGRAMS := $(addprefix $(B)/,$(foreach test,$(FOLDER_TESTS), \
	$(if $(filter test_%,$(notdir $(test))),,$(test))))
TEST_COMMON := $(B)/obj/tests/common/tap.o $(B)/obj/tests/common/common.o

$(FOLDER_TESTS:%=$(B)/obj/%.o) $(TEST_COMMON): ALL_CFLAGS += -Itests/common

# These programs call functions that the archive hides.
LIB_INSIDE := $(B)/tests/queue/queue_notify $(B)/tests/store/store_reclaim

$(LIB_INSIDE): $(LIB_OBJECTS)
$(filter-out $(LIB_INSIDE),$(LIB_TEST_PROGRAMS)): $(LIB_STATIC)
$(LIB_TEST_PROGRAMS): $(B)/%: $(B)/obj/%.o $(TEST_COMMON)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -static $(filter %.o,$^) $(filter %.a,$^) $(LIB_NEEDS) -o $@

.PHONY: lib-tests check-lib-memfd
lib-tests: $(LIB_TEST_PROGRAMS)

CHECKS += lib-memfd
CHECK_NEEDS += $(LIB_TEST_PROGRAMS)
check-lib-memfd: $(LIB_TEST_PROGRAMS)
	@tests/common/run $(LIB_TEST_PROGRAMS)

# Regions, the heap and the store with many threads, where ThreadSanitizer sees every access
# of the library and the test. It does not know the fences of what reads other processes'
# records, which none of them uses.
LIB_THREADS := $(addprefix $(B)/threads/tests/,region/region_threads region/long_region \
	heap/heap heap/heap_threads heap/heap_random heap/heap_crowd store/store_threads \
	store/store_random queue/queue_notify queue/queue_eventfd queue/queue_random)
LIB_THREADS_OBJ := $(B)/obj/thread

$(LIB_THREADS_OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Itests/common -O1 -fsanitize=thread -Wno-tsan -MMD -MP -c $< -o $@

$(LIB_THREADS): $(B)/threads/%: $(LIB_THREADS_OBJ)/%.o \
		$(LIB_THREADS_OBJ)/tests/common/tap.o $(LIB_THREADS_OBJ)/tests/common/common.o \
		$(LIB_SOURCES:%.c=$(LIB_THREADS_OBJ)/%.o)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -fsanitize=thread -pthread $^ $(LIB_NEEDS) -o $@

# It wants addresses that are not randomized too far.
.PHONY: check-lib-threads
CHECKS += lib-threads
CHECK_NEEDS += $(LIB_THREADS)
check-lib-threads: $(LIB_THREADS)
	@fixed=$$(setarch -R true 2>/dev/null && echo setarch -R); \
	status=0; for test in $(LIB_THREADS); do \
		ACTMEM_BACKEND=memfd ACTMEM_PAGES=4K timeout 300 $$fixed $$test || \
			{ echo "not ok - $$test ended with status $$?"; status=1; }; \
	done; exit $$status
