# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The Python module, with the libraries that it loads beside it. PYTHONDIR has
# nothing else: `actmem run` puts it first in PYTHONPATH, where a folder with the
# distribution's modules would hide those of a virtual environment.

PYTHONDIR ?= $(PREFIX)/lib/actmem/python
PYTHON_MODULE = $(DESTDIR)$(PYTHONDIR)/actmem

# `make install` and a wheel share this rule, to which lib/xla adds its library.
.PHONY: python-module
python-module::
	install -d $(PYTHON_MODULE)/jax $(PYTHON_MODULE)/plan $(PYTHON_MODULE)/_start
	install -m 644 lib/python/actmem/*.py lib/python/actmem/py.typed $(PYTHON_MODULE)/
	install -m 644 lib/python/actmem/jax/*.py $(PYTHON_MODULE)/jax/
	install -m 644 lib/python/actmem/_start/*.py $(PYTHON_MODULE)/_start/
	install -m 644 $(wildcard $(addprefix lib/python/actmem/plan/*.,py json csv txtpb)) \
		$(PYTHON_MODULE)/plan/

install:: $(LIB_SHARED) python-module
	ln -srf $(LIBDIR)/$(LIB_SONAME) $(PYTHON_MODULE)/$(LIB_SONAME)

uninstall::
	rm -rf $(PYTHON_MODULE)
