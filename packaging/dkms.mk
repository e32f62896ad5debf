# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The module by DKMS, which builds it again for every kernel to come:
#   make dkms-install     build, sign, install, and load it where it is loaded
#   make dkms-remove      undo that
#   make dkms-source      only put the sources into /usr/src, for packages
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
