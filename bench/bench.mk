# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The command actmem-bench. Files of tools/ are compiled into both commands.

include tools/needs.mk

BENCH_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard bench/*.c))
BENCH_TOOLS_OBJECTS := $(patsubst %,$(B)/obj/tools/%.o,command environment memory_options options own_folder table wrap)
BENCH_LIB_OBJECTS := $(patsubst %,$(B)/obj/lib/%.o,base/size config/knob config/read \
	machine/sysfile)

ifneq ($(TOOLS_FOUND),)
INSTALLED_BENCH := $(B)/bin/actmem-bench
ALL += $(INSTALLED_BENCH)
endif

$(BENCH_OBJECTS): EXTRA_CFLAGS += $(TOOLS_CFLAGS)

$(B)/bin/actmem-bench: $(BENCH_OBJECTS) $(BENCH_TOOLS_OBJECTS) $(BENCH_LIB_OBJECTS) \
		$(B)/lib/libactmem.so.$(ABI)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib' $(TOOLS_LIBS)

install:: $(INSTALLED_BENCH)
	[ -z '$^' ] || install -D -m 755 $(INSTALLED_BENCH) $(BINDIR)/actmem-bench

uninstall::
	rm -f $(BINDIR)/actmem-bench
