# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# libactmem_preload.so: LD_PRELOAD puts it in front of a program's own libraries. It
# does nothing unless the environment asks for a mode.

PRELOAD_SOURCES := $(wildcard lib/preload/*.c lib/preload/*/*.c)
PRELOAD_OBJECTS := $(PRELOAD_SOURCES:%.c=$(B)/obj/%.o) $(B)/obj/lib/preload/dlsym.o
PRELOAD_LIB_OBJECTS := $(addprefix $(B)/obj/lib/,base/extents_find.o base/size.o \
	config/knob.o config/read.o cuda/error.o cuda/load.o machine/nodes.o machine/sysfile.o \
	watch/publish.o)
PRELOAD_MAP := lib/preload/libactmem_preload.map
PRELOAD_LIBRARY := $(B)/lib/libactmem_preload.so

ALL += $(PRELOAD_LIBRARY)

# The compiler knows malloc and calloc, and could replace one by the other. initial-exec
# gives access to thread variables without a call that may allocate.
$(PRELOAD_OBJECTS): EXTRA_CFLAGS = -fno-builtin-malloc -fno-builtin-calloc \
	-fno-builtin-realloc -fno-builtin-free -ftls-model=initial-exec

$(PRELOAD_OBJECTS) $(PRELOAD_LIB_OBJECTS): ALL_CFLAGS += -DACTMEM_PRELOAD

$(B)/obj/lib/preload/cuda/library.o: EXTRA_CFLAGS += -DLIB_SONAME='"$(LIB_SONAME)"'

$(B)/obj/lib/preload/dlsym.o: lib/preload/dlsym.S
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$(PRELOAD_LIBRARY): $(PRELOAD_OBJECTS) $(PRELOAD_LIB_OBJECTS) $(PRELOAD_MAP)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(notdir $@) \
		-Wl,--version-script=$(PRELOAD_MAP) \
		-Wl,-Bsymbolic-functions,-z,defs,-z,relro,-z,now,-z,nodelete,-z,initfirst \
		$(PRELOAD_OBJECTS) $(PRELOAD_LIB_OBJECTS) -o $@

install:: $(PRELOAD_LIBRARY)
	install -D -m 755 $< $(LIBDIR)/$(notdir $<)

uninstall::
	rm -f $(LIBDIR)/$(notdir $(PRELOAD_LIBRARY))
