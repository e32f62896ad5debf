# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# libactmem: the shared library, the static library and the pkg-config file. A program that
# links the static library must also link LIB_NEEDS.

# From the lowest folder to the highest. Each includes headers only of folders before it.
LIB_FOLDERS := base config machine watch region region/driver region/memfd cuda runtime heap queue store
LIB_SOURCES := $(wildcard $(LIB_FOLDERS:%=lib/%/*.c))
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(B)/obj/%.o)
LIB_SONAME := libactmem.so.$(ABI)
LIB_SHARED := $(B)/lib/$(LIB_SONAME)
LIB_STATIC := $(B)/lib/libactmem.a
LIB_PC := $(B)/actmem.pc
LIB_HEADERS := $(wildcard lib/include/*.h)
LIB_PC_SED = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(ACTMEM_VERSION)|' \
	-e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR:$(DESTDIR)%=%))|'
LIB_NEEDS := -luring

ALL += $(LIB_SHARED) $(B)/lib/libactmem.so $(LIB_STATIC) $(LIB_PC)

# nodelete: the library must stay loaded, because threads call it when they end.
LIB_LINK = $(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(LIB_SONAME) \
	-Wl,--version-script=lib/libactmem.map -Wl,-z,defs,-z,relro,-z,now,-z,nodelete \
	$(LIB_OBJECTS)
$(LIB_SHARED): $(LIB_OBJECTS) lib/libactmem.map
	@mkdir -p $(@D)
	$(LIB_LINK) $(LIB_NEEDS) -o $@

$(B)/lib/libactmem.so: $(LIB_SHARED)
	ln -sf $(LIB_SONAME) $@

# One object with local hidden symbols, so that the library's internal names
# cannot conflict with those of a program that links it statically.
$(LIB_STATIC): $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(LD) -r $(LIB_OBJECTS) -o $(B)/obj/lib/libactmem.o
	objcopy --localize-hidden $(B)/obj/lib/libactmem.o
	rm -f $@
	$(AR) rcs $@ $(B)/obj/lib/libactmem.o

$(LIB_PC): lib/actmem.pc.in Makefile
	@mkdir -p $(@D)
	$(LIB_PC_SED) $< >$@

# Checks which headers files include, and that the calls inside each folder go one way.
.PHONY: check-layers
CHECKS += layers
check-layers:
	@$(PYTHON3) -B tests/layers

install:: $(LIB_SHARED) $(LIB_STATIC)
	install -d $(LIBDIR)/pkgconfig $(INCLUDEDIR)
	install -m 755 $(LIB_SHARED) $(LIBDIR)/
	ln -sf $(LIB_SONAME) $(LIBDIR)/libactmem.so
	install -m 644 $(LIB_STATIC) $(LIBDIR)/
	install -m 644 $(LIB_HEADERS) $(INCLUDEDIR)/
	$(LIB_PC_SED) lib/actmem.pc.in >$(LIBDIR)/pkgconfig/actmem.pc

uninstall::
	rm -f $(LIBDIR)/$(LIB_SONAME) $(LIBDIR)/libactmem.so $(LIBDIR)/libactmem.a \
		$(LIBDIR)/pkgconfig/actmem.pc $(LIB_HEADERS:lib/include/%=$(INCLUDEDIR)/%)
