# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The Python module as a wheel, with the libraries in it. How pip makes one is in
# pyproject.toml and in wheel_backend.py, which has make fill a folder (wheel-module) and sees from
# the libraries which machines the wheel is for.

WHEELS := $(B)/wheel

# liburing within it, as pip cannot install that; where there is only the shared one, as on
# Fedora, the wheel is for this machine alone, and its name says so.
WHEEL_LIB := $(B)/wheel-lib/$(LIB_SONAME)
WHEEL_LIB_NEEDS = $(if $(findstring /,$(shell $(CC) -print-file-name=liburing.a)), \
	-l:liburing.a,$(LIB_NEEDS))

$(WHEEL_LIB): $(LIB_OBJECTS) lib/libactmem.map
	@mkdir -p $(@D)
	$(LIB_LINK) $(WHEEL_LIB_NEEDS) -o $@

# The libraries before, as pip does not show what a compiler says.
.PHONY: wheel
wheel: $(VENV)/.ready $(WHEEL_LIB) $(XLA_LIBRARY)
	@rm -rf $(WHEELS)
	@MAKEFLAGS= $(VENV_PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-index --no-build-isolation --wheel-dir $(WHEELS) .

# A wheel has no links.
.PHONY: wheel-module
wheel-module: $(WHEEL_LIB) $(XLA_LIBRARY) python-module
	install -m 755 $(WHEEL_LIB) $(PYTHON_MODULE)/
