# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The demo on clean systems, as somebody runs it who has just got the project.

CHECKS += fresh

.PHONY: check-fresh
check-fresh:
	@tests/fresh/run
