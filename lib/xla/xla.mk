# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# libactmem_xla.so: the handlers that XLA calls. XLA's header comes with a jaxlib: that of
# build/venv, of the demo's environment or of $(PYTHON3), in this order, or the one in
# XLA_INCLUDE=folder. The handlers are the same with each of them. Without a header, `make`
# builds the rest and names `make jax`, which first installs a JAX, as check and demo do.

XLA_SOURCES := $(wildcard lib/xla/*.c)
XLA_OBJECTS := $(XLA_SOURCES:%.c=$(B)/obj/%.o)
# Objects of the library, which exports only its API.
XLA_SHARED_OBJECTS := $(sort $(addprefix $(B)/obj/lib/,base/checksum.o base/size.o base/thread.o \
	config/knob.o config/read.o cuda/error.o cuda/load.o) $(UPDATE_OBJECTS) $(UPDATE_SHARED_OBJECTS))
XLA_LIBRARY := $(B)/lib/libactmem_xla.so

ifeq ($(origin XLA_INCLUDE),undefined)
XLA_VENV := $(patsubst %/.ready,%,$(firstword $(wildcard $(VENV)/.ready $(DEMO_VENV)/.ready)))
ifeq ($(XLA_VENV),)
# The oldest version is the one in lib/python/actmem/jax/_versions.py.
XLA_INCLUDE := $(shell $(PYTHON3) -B -c 'import os, jaxlib.version as v; \
	v.__version_info__ < (0, 10, 1) or \
	print(os.path.join(os.path.dirname(v.__file__), "include"))' 2>/dev/null)
endif
ifeq ($(XLA_INCLUDE),)
XLA_VENV := $(or $(XLA_VENV),$(VENV))
XLA_INCLUDE = $(firstword $(shell \
	ls -d $(XLA_VENV)/lib/python3*/site-packages/jaxlib/include 2>/dev/null))
XLA_READY := $(XLA_VENV)/.ready
endif
endif

ifneq ($(wildcard $(or $(XLA_READY),$(XLA_INCLUDE))),)
ALL += $(XLA_LIBRARY)
INSTALLED_XLA_LIBRARY := $(XLA_LIBRARY)
else
LEFT_OUT += 'libactmem_xla.so, which JAX needs: $(PYTHON3) has no jaxlib since 0.10.1; build it with `make jax`'
endif

.PHONY: jax
jax:
	@$(MAKE) --no-print-directory -s $(DEMO_VENV)/.ready
	@$(MAKE) --no-print-directory -s all

# The command actmem links knobs.o, which does not need JAX.
$(filter-out %/knobs.o,$(XLA_OBJECTS)): | $(XLA_READY)
$(XLA_OBJECTS): EXTRA_CFLAGS = $(addprefix -isystem ,$(XLA_INCLUDE))

# nodelete: XLA keeps the handlers' addresses as long as it runs.
$(XLA_LIBRARY): $(XLA_OBJECTS) $(XLA_SHARED_OBJECTS) $(B)/lib/libactmem.so
	@mkdir -p $(@D)
	$(CC) -shared -pthread $(CFLAGS) $(LDFLAGS) $(XLA_OBJECTS) $(XLA_SHARED_OBJECTS) -o $@ \
		-L$(B)/lib -lactmem -Wl,-rpath,'$$ORIGIN' \
		-Wl,-z,defs,-z,relro,-z,now,-z,nodelete

# Installs it beside the Python module, whose uninstall rule removes both.
python-module:: $(INSTALLED_XLA_LIBRARY)
	[ -z '$^' ] || install -m 755 $^ $(PYTHON_MODULE)/
