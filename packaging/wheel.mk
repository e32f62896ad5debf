# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The Python module as a wheel, with the libraries in it. pyproject.toml and wheel_backend.py
# define how pip builds one. wheel_backend.py runs make to fill a folder (wheel-module), and
# derives the wheel's platform tag from the libraries.

WHEELS := $(B)/wheel

# The wheel contains liburing, because pip cannot install it. If only the shared liburing is
# installed, as on Fedora, the wheel works only on this machine, and its name says so.
WHEEL_LIB := $(B)/wheel-lib/$(LIB_SONAME)
WHEEL_LIB_NEEDS = $(if $(findstring /,$(shell $(CC) -print-file-name=liburing.a)), \
	-l:liburing.a,$(LIB_NEEDS))

$(WHEEL_LIB): $(LIB_OBJECTS) lib/libactmem.map
	@mkdir -p $(@D)
	$(LIB_LINK) $(WHEEL_LIB_NEEDS) -o $@

# make builds the libraries first, because pip does not show a compiler's messages.
.PHONY: wheel
wheel: $(VENV)/.ready $(WHEEL_LIB) $(XLA_LIBRARY)
	@rm -rf $(WHEELS)
	@MAKEFLAGS= $(VENV_PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-index --no-build-isolation --wheel-dir $(WHEELS) .

# A wheel cannot contain symbolic links.
.PHONY: wheel-module
wheel-module: $(WHEEL_LIB) $(XLA_LIBRARY) python-module
	install -m 755 $(WHEEL_LIB) $(PYTHON_MODULE)/
