# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# What tests/gpu/run has on a machine with a GPU, and its own tests, which run it with
# the stand-in for libcuda.so.1 and JAX on the CPU.

GPU_PROBE := $(B)/tests/gpu-probe
GPU_PROBE_OBJECTS := $(patsubst %.c,$(B)/obj/cuda/%.o,$(wildcard tests/gpu/probe*.c))

$(GPU_PROBE): $(GPU_PROBE_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@ -ldl

# All that tests/gpu/run builds, and lists of what it runs. The names of some are known
# only when all is read.
.PHONY: gpu-programs gpu-preload gpu-lists
gpu-programs: all $(GPU_PROBE) $(CUDA_ON_GPU) $(CUDA_STANDIN)

gpu-preload:
	@[ -z '$(PRELOAD_PROGRAMS)' ] || \
		$(MAKE) --no-print-directory -s $(PRELOAD_PROGRAMS) $(PRELOAD_PARTS)

gpu-lists:
	@mkdir -p $(B)
	@printf '%s\n' $(CUDA_ON_GPU) >$(B)/cuda-programs
	@printf '%s\n' $(PRELOAD_PROGRAMS) >$(B)/preload-programs

# With the stand-in for libcuda.so.1, JAX on the CPU and small sizes: `make check-gpu` is
# tests/cuda with the machine's own.
CHECKS += gpu-run two-processes

.PHONY: check-gpu-run check-two-processes
check-gpu-run: $(VENV)/.ready
	@mkdir -p $(B)/check
	@PYTHONPATH=tests/tools $(VENV_PYTHON) -B tests/gpu/test_run.py $(B)
	@PYTHONPATH=tests/tools $(VENV_PYTHON) -B tests/gpu/test_first.py $(B)

check-two-processes: $(VENV)/.ready all
	@mkdir -p $(B)/tests
	@JAX_PLATFORMS=cpu ACTMEM_ALLOW=any PYTHONPATH=lib/python $(VENV_PYTHON) -B \
		tests/gpu/two_processes.py --actmem $(B)/bin/actmem --spill $(B)/tests
