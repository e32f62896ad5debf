# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# libactmem_xla.so: the handlers that XLA calls. XLA's header comes with the
# jaxlib of build/venv; without it `make` says so and goes on.

XLA_SOURCES := $(wildcard lib/xla/*.c)
XLA_OBJECTS := $(XLA_SOURCES:%.c=$(B)/obj/%.o)
XLA_INCLUDE := $(firstword $(wildcard \
	$(VENV)/lib/python3*/site-packages/jaxlib/include))
XLA_LIBRARY := $(B)/lib/libactmem_xla.so

ifneq ($(XLA_INCLUDE),)
ALL += $(XLA_LIBRARY)
else
.PHONY: without-jaxlib
without-jaxlib:
	@[ -f $(VENV)/.ready ] || \
		echo 'libactmem_xla.so is left out: no jaxlib in $(VENV) (make $(VENV)/.ready)'
ALL += without-jaxlib
endif

# The include folder appears with the environment, after make has read this.
$(XLA_OBJECTS): EXTRA_CFLAGS = -isystem $(or $(XLA_INCLUDE),$(firstword \
	$(shell ls -d $(VENV)/lib/python3*/site-packages/jaxlib/include)))

# -z nodelete: XLA keeps the handlers' addresses for as long as it runs.
$(XLA_LIBRARY): $(XLA_OBJECTS) | $(B)/lib/libactmem.so
	@mkdir -p $(@D)
	$(CC) -shared -pthread $(CFLAGS) $(LDFLAGS) -o $@ $(XLA_OBJECTS) \
		-L$(B)/lib -lactmem -Wl,-rpath,'$$ORIGIN' -Wl,-z,defs -Wl,-z,nodelete
