# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The command actmem. $ORIGIN/../lib is where libactmem lies both in build/
# and under PREFIX. What reads /proc and /sys is the library's own, but no part
# of its interface: the command has it once more.

TOOLS_NEEDS := smartcols jansson
TOOLS_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tools/*.c))
TOOLS_LIB_OBJECTS := $(patsubst %,$(B)/obj/lib/%.o,$(addprefix base/,knob_words size spill_allow) \
	$(addprefix machine/,cgroup mounts nodes procfs sysfile) watch/published \
	$(addprefix preload/,cuda/kept cuda/settings malloc/place settings))

# As pkg-config knows them, unless TOOLS_CFLAGS and TOOLS_LIBS say otherwise.
ifneq ($(origin TOOLS_LIBS),undefined)
TOOLS_FOUND := found
else ifneq ($(shell pkg-config --exists $(TOOLS_NEEDS) 2>/dev/null && echo found),)
TOOLS_FOUND := found
TOOLS_CFLAGS = $(shell pkg-config --cflags $(TOOLS_NEEDS))
TOOLS_LIBS = $(shell pkg-config --libs $(TOOLS_NEEDS))
endif

ifneq ($(TOOLS_FOUND),)
INSTALLED_COMMAND := $(B)/bin/actmem
MODELS := $(B)/share/actmem/models.csv
ALL += $(INSTALLED_COMMAND) $(MODELS)
else
LEFT_OUT += 'the command: it needs pkg-config, libsmartcols-dev and libjansson-dev'
endif

$(TOOLS_OBJECTS): EXTRA_CFLAGS += $(TOOLS_CFLAGS)

$(B)/bin/actmem: $(TOOLS_OBJECTS) $(TOOLS_LIB_OBJECTS) $(B)/lib/libactmem.so.$(ABI)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(TOOLS_OBJECTS) $(TOOLS_LIB_OBJECTS) \
		$(B)/lib/libactmem.so.$(ABI) -Wl,-rpath,'$$ORIGIN/../lib' \
		$(TOOLS_LIBS)

# It finds them as ../share/actmem/models.csv in both places, too.
$(B)/share/actmem/models.csv: tools/models.csv
	@mkdir -p $(@D)
	cp $< $@

install:: $(INSTALLED_COMMAND) $(MODELS)
	[ -z '$^' ] || install -D -m 755 $(INSTALLED_COMMAND) $(BINDIR)/actmem
	[ -z '$^' ] || install -D -m 644 $(MODELS) $(DATADIR)/models.csv

uninstall::
	rm -f $(BINDIR)/actmem $(DATADIR)/models.csv
	! [ -d $(DATADIR) ] || rmdir --ignore-fail-on-non-empty $(DATADIR)
