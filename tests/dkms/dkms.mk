# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The module by DKMS, up to its upgrade in kernels that check signatures.

CHECKS_IN_VM += dkms
CHECK_NEEDS += $(B)/tests/tools/holder $(B)/vm/init

.PHONY: check-dkms
check-dkms: all $(B)/tests/tools/holder $(B)/vm/init
	@mkdir -p $(B)/check
	@tests/dkms/run
