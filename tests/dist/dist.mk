# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The tarball, the RPM packages that are built from it, and what `make uninstall` leaves.

CHECKS += dist

.PHONY: check-dist
check-dist: $(VENV)/.ready all
	@scripts/setup packages build demo rpm
	@status=0; \
	tests/dist/run || status=1; \
	tests/dist/uninstall || status=1; \
	exit $$status
