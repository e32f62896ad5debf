# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tarball and the RPM packages that are built from it.

CHECKS += dist

.PHONY: check-dist
check-dist: $(VENV)/.ready
	@scripts/setup packages build demo rpm
	@tests/dist/run
