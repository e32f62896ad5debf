# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Installs the module with DKMS, which rebuilds it for every later kernel:
#   make dkms-install     build, sign and install it, and reload it if it is loaded
#   make dkms-remove      undo dkms-install
#   make dkms-source      only copy the sources to /usr/src, for packages
# KERNELS= names the kernels; RELOAD=no leaves the loaded module as it is.

DKMS_SOURCE = $(DESTDIR)/usr/src/actmem-$(ACTMEM_VERSION)

.PHONY: dkms-source dkms-install dkms-remove
dkms-source:
	@rm -rf '$(DKMS_SOURCE)'
	@mkdir -p '$(DKMS_SOURCE)'
	@cp --preserve=mode,timestamps --parents dkms.conf $(module_sources) '$(DKMS_SOURCE)'

dkms-install:
	@RELOAD='$(RELOAD)' packaging/dkms install '$(ACTMEM_VERSION)' $(KERNELS)

dkms-remove:
	@packaging/dkms remove
