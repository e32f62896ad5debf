# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The command actmem. $ORIGIN/../lib is where libactmem lies both in build/
# and under PREFIX. What reads /proc and /sys is the library's own, but no part
# of its interface: the command has it once more.

TOOLS_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tools/*.c))
TOOLS_LIB_OBJECTS := $(B)/obj/lib/cgroup.o $(B)/obj/lib/sysfile.o
TOOLS_LIBS = $(shell pkg-config --libs smartcols jansson)

ALL += $(B)/bin/actmem

$(TOOLS_OBJECTS): EXTRA_CFLAGS += $(shell pkg-config --cflags smartcols jansson)

$(B)/bin/actmem: $(TOOLS_OBJECTS) $(TOOLS_LIB_OBJECTS) $(B)/lib/libactmem.so.$(ABI)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(TOOLS_OBJECTS) \
		$(TOOLS_LIB_OBJECTS) $(B)/lib/libactmem.so.$(ABI) -Wl,-rpath,'$$ORIGIN/../lib' $(TOOLS_LIBS)

.PHONY: install uninstall
install:: $(B)/bin/actmem
	install -D -m 755 $< $(BINDIR)/actmem

uninstall::
	rm -f $(BINDIR)/actmem
