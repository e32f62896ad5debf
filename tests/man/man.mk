# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The manual pages beside the headers, and the programs in them at work.

.PHONY: check-man
CHECKS += man
CHECK_NEEDS += $(LIB_SHARED) $(B)/lib/libactmem.so $(MAN_PAGES)
check-man: $(LIB_SHARED) $(B)/lib/libactmem.so $(MAN_PAGES)
	@PYTHONPATH=tests/tools $(PYTHON3) -B tests/man/test_pages.py $(B)
