# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The command actmem-bench, with the models that its replay knows. Files of tools/ are
# compiled into both commands.

include tools/needs.mk

BENCH_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard bench/*.c))
BENCH_TOOLS_OBJECTS := $(patsubst %,$(B)/obj/tools/%.o,best_memory command memory_options options own_folder table wrap)
BENCH_LIB_OBJECTS := $(patsubst %,$(B)/obj/lib/%.o,base/size config/knob config/read \
	machine/sysfile)

ifneq ($(TOOLS_FOUND),)
INSTALLED_BENCH := $(B)/bin/actmem-bench
MODELS := $(B)/share/actmem/models.csv
ALL += $(INSTALLED_BENCH) $(MODELS)
endif

$(BENCH_OBJECTS): EXTRA_CFLAGS += $(TOOLS_CFLAGS)

$(B)/bin/actmem-bench: $(BENCH_OBJECTS) $(BENCH_TOOLS_OBJECTS) $(BENCH_LIB_OBJECTS) \
		$(B)/lib/libactmem.so.$(ABI)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib' $(TOOLS_LIBS)

# The command finds them as ../share/actmem/models.csv, both in build/ and under PREFIX.
$(B)/share/actmem/models.csv: bench/models.csv
	@mkdir -p $(@D)
	cp $< $@

install:: $(INSTALLED_BENCH) $(MODELS)
	[ -z '$^' ] || install -D -m 755 $(INSTALLED_BENCH) $(BINDIR)/actmem-bench
	[ -z '$^' ] || install -D -m 644 $(MODELS) $(DATADIR)/models.csv

uninstall::
	rm -f $(BINDIR)/actmem-bench $(DATADIR)/models.csv
