# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The kernel module, in a folder of its own for each kernel:
#   make module KDIR=/lib/modules/RELEASE/build    build/module/RELEASE/actmem.ko
# make passes W=1, C=2 and CHECK= to the kernel's own build.

KDIR ?= /lib/modules/$(shell uname -r)/build
module_sources := Kbuild VERSION uapi/actmem.h \
	$(filter-out %/probed.h, $(wildcard driver/*.[ch] driver/compat/*))

# Kernel headers with a vmlinux require pahole, for BTF that the module
# does not need.
without_pahole := $(if $(shell command -v pahole),,CONFIG_DEBUG_INFO_BTF_MODULES=)

.PHONY: module
module:
	@test -e '$(KDIR)/Makefile' || { \
		echo "No kernel headers in $(KDIR). Install linux-headers-$$(uname -r)," \
		     "or name a kernel's build folder: make module KDIR=..." >&2; \
		exit 1; \
	}
	@set -e; \
	release=$$(sed -n 's/.*UTS_RELEASE "\(.*\)".*/\1/p' '$(KDIR)/include/generated/utsrelease.h'); \
	folder='$(B)'/module/$$release; \
	mkdir -p "$$folder"; \
	cp -u --preserve=mode,timestamps --parents $(module_sources) "$$folder"; \
	$(MAKE) --no-print-directory -C '$(KDIR)' M="$(CURDIR)/$$folder" \
		$(without_pahole) modules; \
	echo "$$folder/actmem.ko"
