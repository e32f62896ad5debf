# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# libactmem_xla.so: the handlers that XLA calls. XLA's header comes with the jaxlib of
# build/venv, or of the demo's environment where that alone is there; without one a plain
# `make` says so and goes on, while what needs the library (check, demo) makes the
# environment first. Or it comes from another jaxlib by XLA_INCLUDE=folder: handlers are the
# same whichever it is.

XLA_SOURCES := $(wildcard lib/xla/*.c)
XLA_OBJECTS := $(XLA_SOURCES:%.c=$(B)/obj/%.o)
# Of the library, which shows its own calls alone.
XLA_SHARED_OBJECTS := $(addprefix $(B)/obj/lib/base/,checksum.o knob.o size.o \
	spill_allow.o thread.o)
XLA_VENV := $(or $(patsubst %/.ready,%,$(firstword \
	$(wildcard $(VENV)/.ready $(DEMO_VENV)/.ready))),$(VENV))
XLA_INCLUDE ?= $(firstword $(shell \
	ls -d $(XLA_VENV)/lib/python3*/site-packages/jaxlib/include 2>/dev/null))
XLA_LIBRARY := $(B)/lib/libactmem_xla.so

ifeq ($(origin XLA_INCLUDE),file)
XLA_READY := $(XLA_VENV)/.ready
endif

ifneq ($(wildcard $(or $(XLA_READY),$(XLA_INCLUDE))),)
ALL += $(XLA_LIBRARY)
INSTALLED_XLA_LIBRARY := $(XLA_LIBRARY)
else
LEFT_OUT += 'libactmem_xla.so, which JAX needs: first `make $(DEMO_VENV)/.ready`'
endif

# The command actmem links knobs.o, without JAX.
$(filter-out %/knobs.o,$(XLA_OBJECTS)): | $(XLA_READY)
$(XLA_OBJECTS): EXTRA_CFLAGS = $(addprefix -isystem ,$(XLA_INCLUDE))

# nodelete: XLA keeps the handlers' addresses for as long as it runs.
$(XLA_LIBRARY): $(XLA_OBJECTS) $(XLA_SHARED_OBJECTS) $(B)/lib/libactmem.so
	@mkdir -p $(@D)
	$(CC) -shared -pthread $(CFLAGS) $(LDFLAGS) $(XLA_OBJECTS) $(XLA_SHARED_OBJECTS) -o $@ \
		-L$(B)/lib -lactmem -Wl,-rpath,'$$ORIGIN' \
		-Wl,-z,defs,-z,relro,-z,now,-z,nodelete

# Beside the Python module, which removes it with its own.
python-module:: $(INSTALLED_XLA_LIBRARY)
	[ -z '$^' ] || install -m 755 $^ $(PYTHON_MODULE)/
