# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The folder that computes updates is not part of libactmem, which has no call for it. The handlers
# for XLA link these objects, and the shared ones that they need of the library.

UPDATE_SOURCES := $(wildcard lib/update/*.c)
UPDATE_OBJECTS := $(UPDATE_SOURCES:%.c=$(B)/obj/%.o)
UPDATE_SHARED_OBJECTS := $(addprefix $(B)/obj/lib/,base/thread.o config/knob.o config/read.o \
	machine/cpus.o machine/sysfile.o)

# Each operation is rounded by itself, so that all instruction sets compute the same bits. Functions
# that pass vectors are all inline, so they have no ABI that could change.
UPDATE_SOURCES_BUILT := $(foreach folder,obj obj/sanitized obj/thread, \
	$(UPDATE_SOURCES:%.c=$(B)/$(folder)/%.o))
$(UPDATE_SOURCES_BUILT): ALL_CFLAGS += -ffp-contract=off -fno-math-errno -Wno-psabi
