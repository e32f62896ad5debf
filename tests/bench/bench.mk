# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The driver's benchmarks: `make bench-vm [KERNEL=6.12]` runs them in a booted
# kernel and writes build/bench-vm.json. `make check` only sees that they run.

KERNEL ?= 6.12

BENCH_PROGRAMS := $(addprefix $(B)/bench/,create copy fixed)
BENCH_SMOKE := --and $(B)/bench/create --smoke --and $(B)/bench/copy --smoke \
	--and $(B)/bench/fixed --smoke /dev/nvme0n1

$(BENCH_PROGRAMS): $(B)/bench/%: tests/bench/%.c tests/bench/bench.c \
		tests/bench/bench.h uapi/actmem.h
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -g -static -pthread -Iuapi \
		$(filter %.c,$^) -luring -o $@

.PHONY: bench-vm
bench-vm:
	@scripts/setup packages build check
	@$(MAKE) --no-print-directory -s $(B)/vm/init $(BENCH_PROGRAMS)
	@tests/bench/bench-vm $(KERNEL) $(B)/bench-vm.json $(B)/bench

# What needs no kernel of its own: `make bench` measures the library on this
# machine and writes build/bench.json; `make check-unit` only sees that it runs. The
# library is the shared one, as the peers are.
BENCH_HOST := $(addprefix $(B)/bench/,heap_pair heap_peak)
BENCH_HOST_COMMON := $(addprefix $(B)/obj/tests/bench/,trace.o pools.o)

$(BENCH_HOST): $(B)/bench/%: $(B)/obj/tests/bench/%.o $(BENCH_HOST_COMMON) \
		$(B)/bench/bench.o $(LIB_SHARED)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -Wl,-rpath,'$$ORIGIN/../lib' -o $@

$(B)/bench/bench.o: tests/bench/bench.c tests/bench/bench.h uapi/actmem.h
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -g -Iuapi -c $< -o $@

.PHONY: bench
bench:
	@scripts/setup packages build bench
	@$(MAKE) --no-print-directory -s $(BENCH_HOST)
	@tests/bench/bench-host $(B)/bench.json $(B)/bench
