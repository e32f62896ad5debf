# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of the runtimes, against a stand-in for libcuda.so.1 that is built here, as no
# GPU is at hand; tests/gpu/run runs the same programs against the real one. cuda.h
# comes from NVIDIA's package of headers, or from a toolkit by CUDA_INCLUDE=folder.

CUDA_INCLUDE ?= $(firstword $(wildcard $(VENV)/lib/python3*/site-packages/nvidia/cu13/include))
CUDA_SHARED_TESTS := $(B)/obj/tests/cuda/cuda_test.o $(B)/obj/tests/lib/tap.o \
	$(B)/obj/tests/lib/common.o
CUDA_TESTS := $(patsubst tests/cuda/%.c,%,$(filter-out tests/cuda/cuda_test.c \
	tests/cuda/types.c,$(wildcard tests/cuda/*.c)))
CUDA_TEST_PROGRAMS := $(CUDA_TESTS:%=$(B)/tests/cuda/%)
CUDA_STANDIN := $(B)/tests/cuda/standin/libcuda.so.1
CUDA_STANDIN_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/cuda/standin/*.c))
CUDA_OBJECTS := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/cuda/*.c)) $(CUDA_STANDIN_OBJECTS)

# The folder is there only once the environment is.
$(CUDA_OBJECTS): EXTRA_CFLAGS = -Itests/lib -isystem $(or $(CUDA_INCLUDE),$(firstword $(shell \
	ls -d $(VENV)/lib/python3*/site-packages/nvidia/cu13/include)))
ifeq ($(origin CUDA_INCLUDE),file)
$(CUDA_OBJECTS): | $(VENV)/.ready
endif

$(CUDA_STANDIN): $(CUDA_STANDIN_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,defs $^ -o $@

# Of the library's own calls one is wrapped: sysfs can be another folder.
$(CUDA_TEST_PROGRAMS): $(B)/tests/cuda/%: $(B)/obj/tests/cuda/%.o $(CUDA_SHARED_TESTS) \
		$(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,--wrap=sysfile_value $^ $(LIB_NEEDS) -o $@

.PHONY: cuda-tests check-cuda
cuda-tests: $(CUDA_TEST_PROGRAMS)

# types.o is not linked: that it compiles is the test.
CHECKS += cuda
check-cuda: $(CUDA_TEST_PROGRAMS) $(CUDA_STANDIN) $(B)/obj/tests/cuda/types.o
	@tests/cuda/run $(dir $(CUDA_STANDIN)) $(CUDA_TEST_PROGRAMS)

# With the machine's own libcuda.so.1; no part of `make check`.
.PHONY: check-gpu
check-gpu: $(CUDA_TEST_PROGRAMS)
	@tests/cuda/run '' $(CUDA_TEST_PROGRAMS)
