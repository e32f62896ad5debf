# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# `make deb` builds Debian packages into build/deb/, in a copy of the tree that has
# packaging/debian where dpkg-buildpackage expects it. JAX's handlers are built with the
# headers of the jaxlib in build/venv. Any jaxlib with the same interface accepts them.

DEB := $(B)/deb
DEB_TREE := $(DEB)/actmem-$(ACTMEM_VERSION)

.PHONY: deb
deb:
	@scripts/setup packages build demo deb
	@$(MAKE) --no-print-directory -s $(VENV)/.ready
	@rm -rf $(DEB) && mkdir -p $(DEB_TREE)
	@tar -cf - --exclude=./build --exclude=./.git . | tar -xf - -C $(DEB_TREE)
	@cp -r packaging/debian $(DEB_TREE)
	@cd $(DEB_TREE) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
		XLA_INCLUDE='$(abspath $(XLA_INCLUDE))' dpkg-buildpackage -b -us -uc \
		>../build.log 2>&1 || { tail -n 30 ../build.log >&2; exit 1; }
	@ls $(DEB)/*.deb
