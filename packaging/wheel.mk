# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The Python module as a wheel, with the libraries in it. How pip makes one is in
# pyproject.toml and in setup.py, which has make fill a folder (wheel-module).

WHEELS := $(B)/wheel

# The libraries before, as pip does not show what a compiler says.
.PHONY: wheel
wheel: $(VENV)/.ready $(LIB_SHARED) $(XLA_LIBRARY)
	@rm -rf $(WHEELS)
	@MAKEFLAGS= $(VENV_PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-index --no-build-isolation --wheel-dir $(WHEELS) .

# A wheel has no links.
.PHONY: wheel-module
wheel-module: $(LIB_SHARED) $(XLA_LIBRARY) python-module
	install -m 755 $(LIB_SHARED) $(PYTHON_MODULE)/
