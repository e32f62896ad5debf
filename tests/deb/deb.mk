# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The Debian packages: built, installed, used and purged in clean chroots.

CHECKS += deb

.PHONY: check-deb
check-deb: $(VENV)/.ready $(B)/tests/preload/programs/musl
	@scripts/setup packages build demo deb
	@tests/deb/run
