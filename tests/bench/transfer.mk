# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The transfer queue beside fio, on this machine's memory and disk:
#   make bench-transfer [BENCH_DIRECTORY=DIR] [ACTMEM_BACKEND= ACTMEM_PAGES=]

BENCH_DIRECTORY ?= $(B)/bench

$(B)/bench/transfer: $(B)/obj/tests/bench/transfer.o $(LIB_STATIC)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIB_NEEDS) -o $@

.PHONY: bench-transfer
bench-transfer:
	@scripts/setup packages build bench
	@$(MAKE) --no-print-directory -s $(B)/bench/transfer
	@tests/bench/transfer.py $(B)/bench/transfer $(BENCH_DIRECTORY) | \
		tee $(B)/bench-transfer.json
