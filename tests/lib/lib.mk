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
check-lib-memfd: $(LIB_TEST_PROGRAMS)
	@tests/lib/run $(LIB_TEST_PROGRAMS)
