# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# The driver's benchmarks: `make bench-vm [KERNEL=6.12]` runs them in a booted
# kernel and writes build/bench-vm.json. `make check` only sees that they run.

KERNEL ?= 6.12

BENCH_PROGRAMS := $(addprefix $(B)/bench/,create fixed)
BENCH_SMOKE := --and $(B)/bench/create --smoke --and $(B)/bench/fixed --smoke /dev/nvme0n1

$(BENCH_PROGRAMS): $(B)/bench/%: tests/bench/%.c tests/bench/bench.c \
		tests/bench/bench.h $(LIB_STATIC)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -g -static -pthread -Ilib/include \
		$(filter %.c %.a,$^) $(LIB_NEEDS) -o $@

.PHONY: bench-vm
bench-vm:
	@scripts/setup packages build check
	@$(MAKE) --no-print-directory -s $(B)/vm/init $(BENCH_PROGRAMS)
	@tests/bench/bench-vm $(KERNEL) $(B)/bench-vm.json $(B)/bench

# What needs no kernel of its own: `make bench` measures the library on this
# machine, and writes build/bench.json and pictures; `make bench-PART` measures one
# part of it (parts.py has them). `make check-bench` only sees that all of it runs. The
# heap's are linked with the shared library, as the peers are.
BENCH_HEAP := $(addprefix $(B)/bench/,heap_pair heap_peak)
BENCH_HEAP_COMMON := $(addprefix $(B)/obj/tests/bench/,trace.o pools.o)
BENCH_HOST := $(BENCH_HEAP) $(B)/bench/transfer $(B)/bench/update $(B)/bin/actmem $(B)/bin/actmem-bench \
	$(B)/lib/libactmem_preload.so

$(BENCH_HEAP): $(B)/bench/%: $(B)/obj/tests/bench/%.o $(BENCH_HEAP_COMMON) \
		$(B)/bench/bench.o $(LIB_SHARED)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -Wl,-rpath,'$$ORIGIN/../lib' -o $@

# By the call that the store makes, which the archive hides.
$(B)/bench/transfer: $(B)/obj/tests/bench/transfer.o $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIB_NEEDS) -o $@

$(B)/bench/update: $(B)/obj/tests/bench/update.o $(UPDATE_OBJECTS) $(B)/bench/bench.o $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIB_NEEDS) -o $@

$(B)/bench/bench.o: tests/bench/bench.c tests/bench/bench.h
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -O2 -g -Ilib/include -c $< -o $@

.PHONY: bench
bench:
	@scripts/setup packages build demo bench
	@$(MAKE) --no-print-directory -s $(VENV)/.ready
	@$(MAKE) --no-print-directory -s $(BENCH_HOST) $(XLA_LIBRARY)
	@$(VENV_PYTHON) tests/bench/bench-host $(B)/bench.json $(B)/bench

bench-%:
	@scripts/setup packages build demo bench
	@$(MAKE) --no-print-directory -s $(VENV)/.ready
	@$(MAKE) --no-print-directory -s $(BENCH_HOST) $(XLA_LIBRARY)
	@$(VENV_PYTHON) tests/bench/bench-host $(B)/bench-$*.json $(B)/bench $*

CHECKS += bench
CHECK_NEEDS += $(BENCH_HOST) $(B)/bench/pin
.PHONY: check-bench
check-bench: $(BENCH_HOST) $(B)/bench/pin $(VENV)/.ready $(XLA_LIBRARY)
	@$(VENV_PYTHON) tests/bench/bench-host --smoke $(B)/bench

# Pinning, and who waits for it, with the machine's libcuda.so.1, or with the stand-in, which
# pins 40 GB/s under its lock, where there is none.
$(B)/bench/pin: $(B)/obj/tests/bench/pin.o $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIB_NEEDS) -o $@

PIN_STANDIN := $(B)/tests/cuda/standin
.PHONY: bench-pin
bench-pin: $(B)/bench/pin $(PIN_STANDIN)/libcuda.so.1
	@$(PYTHON3) -B tests/bench/heading.py "make bench-pin"
	@STANDIN_CUDA_PIN_RATE=40000 LD_LIBRARY_PATH="$$LD_LIBRARY_PATH:$(PIN_STANDIN)" \
		$(B)/bench/pin $(PIN_MIB)
