# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# What tests/gpu/run has on a machine with a GPU, and its own tests, which run it with
# the stand-in for libcuda.so.1 and JAX on the CPU.

GPU_PROBE := $(B)/tests/gpu-probe
GPU_PROBE_OBJECTS := $(patsubst %.c,$(B)/obj/cuda/%.o,$(wildcard tests/gpu/probe*.c))

$(GPU_PROBE): $(GPU_PROBE_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@ -ldl

# All that tests/gpu/run builds.
.PHONY: gpu-programs
gpu-programs: all $(GPU_PROBE) $(CUDA_ON_GPU) $(CUDA_STANDIN)
