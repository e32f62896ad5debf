# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# `actmem exporter`, scraped by Debian's Prometheus; its rules and its dashboard.

CHECKS += exporter
CHECK_NEEDS += $(B)/tests/tools/holder

.PHONY: check-exporter
check-exporter: all $(B)/tests/tools/holder
	@tests/exporter/run $(B)
