# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests in booted kernels.

$(B)/vm/init: tests/vm/init.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -static $< -o $@
