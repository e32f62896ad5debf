# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The command actmem. Both in build/ and under PREFIX, libactmem is in $ORIGIN/../lib. The
# command links its own copy of the functions that read /proc, /sys and the environment,
# because the library does not export them.

TOOLS_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tools/*.c))
TOOLS_LIB_OBJECTS := $(patsubst %,$(B)/obj/lib/%.o,base/size config/knob config/read \
	xla/knobs \
	$(addprefix machine/,cgroup mounts nodes procfs sysfile) watch/published \
	$(addprefix preload/,malloc/place settings))

ifneq ($(TOOLS_FOUND),)
INSTALLED_COMMAND := $(B)/bin/actmem
ALL += $(INSTALLED_COMMAND)
else
LEFT_OUT += 'the commands: they need pkg-config, libsmartcols-dev and libjansson-dev'
endif

$(TOOLS_OBJECTS): EXTRA_CFLAGS += $(TOOLS_CFLAGS)

# Only libmicrohttpd's header is needed: the command loads the library when it serves.
ifneq ($(shell pkg-config --exists libmicrohttpd 2>/dev/null && echo found),)
$(B)/obj/tools/cmd_exporter.o: EXTRA_CFLAGS += -DHAVE_MICROHTTPD $(shell pkg-config --cflags libmicrohttpd)
else
LEFT_OUT += 'HTTP of actmem exporter: it needs libmicrohttpd-dev'
endif

$(B)/bin/actmem: $(TOOLS_OBJECTS) $(TOOLS_LIB_OBJECTS) $(B)/lib/libactmem.so.$(ABI)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib' $(TOOLS_LIBS)

install:: $(INSTALLED_COMMAND)
	[ -z '$^' ] || install -D -m 755 $^ $(BINDIR)/actmem

uninstall::
	rm -f $(BINDIR)/actmem
