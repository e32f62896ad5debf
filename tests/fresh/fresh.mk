# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The demo and the wheel on clean systems, for somebody who has just got them.

CHECKS += fresh

.PHONY: check-fresh
check-fresh: wheel
	@tests/fresh/run
