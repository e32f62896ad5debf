# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Tests of the runtimes, against a stand-in for libcuda.so.1 that is built here, as no
# GPU is at hand; tests/gpu/run runs the same programs against the real one. cuda.h
# comes from NVIDIA's package of headers, or from a toolkit by CUDA_INCLUDE=folder.

CUDA_INCLUDE ?= $(firstword $(shell \
	ls -d $(VENV)/lib/python3*/site-packages/nvidia/cu13/include 2>/dev/null))
CUDA_TESTS := $(patsubst tests/cuda/%.c,%,$(filter-out $(addprefix tests/cuda/,cuda_test.c \
	types.c xla_device.c xla_play.c),$(wildcard tests/cuda/*.c)))
CUDA_SHARED := tests/cuda/cuda_test tests/common/tap tests/common/common
# Those that play XLA have the handlers in them, and XLA's header.
CUDA_PLAYS := stream stream_announce stream_batch stream_budget stream_capture stream_checksum \
	stream_failures stream_far stream_green stream_grow stream_meanwhile stream_nodes \
	stream_own stream_random stream_waits
CUDA_PLAYED := tests/cuda/xla_device tests/cuda/xla_play $(XLA_SOURCES:%.c=%)
CUDA_COMPILE = $(CC) $(ALL_CFLAGS) -Itests/common -isystem $(CUDA_INCLUDE) \
	$(addprefix -isystem ,$(XLA_INCLUDE)) -MMD -MP -c $< -o $@

# Some of the library's own calls are wrapped: sysfs and the kernel's log can be others.
CUDA_WRAPPED := sysfile_read sysfile_value kernel_log_open
$(B)/tests/cuda/stream_nodes $(B)/tests/gpu/stream_nodes: CUDA_WRAPPED += actmem_store_reserve
CUDA_LINK = $(CC) $(ALL_CFLAGS) $(LDFLAGS) $(CUDA_WRAPPED:%=-Wl,--wrap=%) $^ $(LIB_NEEDS) -o $@

# The folder of cuda.h is there only once the environment is.
ifeq ($(origin CUDA_INCLUDE),file)
CUDA_READY := $(VENV)/.ready
endif

$(B)/obj/cuda/%.o: %.c | $(CUDA_READY)
	@mkdir -p $(@D)
	$(CUDA_COMPILE)

CUDA_STANDIN := $(B)/tests/cuda/standin/libcuda.so.1
CUDA_STANDIN_OBJECTS := $(patsubst %.c,$(B)/obj/cuda/%.o,$(wildcard tests/cuda/standin/*.c))

# It calls itself by its own names, as the real one does.
$(CUDA_STANDIN): $(CUDA_STANDIN_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,defs,-Bsymbolic $^ -o $@

# One of CUDA 12.4.
CUDA_OLD := $(B)/tests/cuda/old/libcuda.so.1

$(CUDA_OLD): tests/cuda/old.map $(CUDA_STANDIN_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,defs,-Bsymbolic \
		-Wl,--version-script=$< $(CUDA_STANDIN_OBJECTS) -o $@

# Here ASan and UBSan watch; the library's objects are those of the unit tests.
CUDA_SANITIZE := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer
CUDA_PROGRAMS := $(CUDA_TESTS:%=$(B)/tests/cuda/%)
CUDA_QUEUED := $(CUDA_PLAYS:%=$(B)/tests/cuda/%)

$(B)/obj/cuda-sanitized/%.o: %.c | $(CUDA_READY)
	@mkdir -p $(@D)
	$(CUDA_COMPILE) $(CUDA_SANITIZE)

$(CUDA_PROGRAMS): $(B)/tests/cuda/%: $(B)/obj/cuda-sanitized/tests/cuda/%.o \
		$(CUDA_SHARED:%=$(B)/obj/cuda-sanitized/%.o) \
		$(LIB_SOURCES:%.c=$(B)/obj/sanitized/%.o)
	@mkdir -p $(@D)
	$(CUDA_LINK) $(CUDA_SANITIZE)

$(CUDA_PLAYS:%=$(B)/tests/cuda/%): $(CUDA_PLAYED:%=$(B)/obj/cuda-sanitized/%.o) \
		$(UPDATE_SOURCES:%.c=$(B)/obj/sanitized/%.o)

# What JAX's arrays are made of needs no header of XLA's.
CUDA_ARRAYS := $(addprefix lib/xla/,arrays attached counts forked grow knobs \
	memory own_memory places shares stores tensor)

$(addprefix $(B)/tests/cuda/,arrays attached): $(CUDA_ARRAYS:%=$(B)/obj/sanitized/%.o)
$(addprefix $(B)/tests/gpu/,arrays attached): $(CUDA_ARRAYS:%=$(B)/obj/cuda/%.o)

# And ThreadSanitizer where threads race, with the objects of check-lib-threads.
CUDA_RACES := $(B)/tests/thread/cuda_threads

$(B)/obj/cuda-thread/%.o: %.c | $(CUDA_READY)
	@mkdir -p $(@D)
	$(CUDA_COMPILE) -O1 -fsanitize=thread

$(B)/tests/thread/cuda_threads: $(addprefix $(B)/obj/cuda-thread/,tests/cuda/threads.o $(CUDA_SHARED:%=%.o)) \
		$(LIB_SOURCES:%.c=$(B)/obj/thread/%.o)
	@mkdir -p $(@D)
	$(CUDA_LINK) -fsanitize=thread

CUDA_PLAY_RACES := $(B)/tests/thread/cuda_stream_random
CUDA_RACES += $(CUDA_PLAY_RACES)

$(CUDA_PLAY_RACES): $(addprefix $(B)/obj/cuda-thread/,tests/cuda/stream_random.o \
		$(CUDA_SHARED:%=%.o) $(CUDA_PLAYED:%=%.o)) \
		$(UPDATE_SOURCES:%.c=$(B)/obj/thread/%.o) $(LIB_SOURCES:%.c=$(B)/obj/thread/%.o)
	@mkdir -p $(@D)
	$(CUDA_LINK) -fsanitize=thread

# types.o is not linked: that it compiles is the test.
.PHONY: check-cuda
CHECKS += cuda
CHECK_NEEDS += $(CUDA_PROGRAMS) $(CUDA_RACES) $(CUDA_STANDIN) $(CUDA_OLD)
check-cuda: $(CUDA_PROGRAMS) $(CUDA_RACES) $(CUDA_STANDIN) $(CUDA_OLD) \
		$(B)/obj/cuda/tests/cuda/types.o
	@status=0; \
	tests/cuda/run $(dir $(CUDA_STANDIN)) $(filter-out $(CUDA_QUEUED),$(CUDA_PROGRAMS)) \
		$(CUDA_RACES) --queues $(CUDA_QUEUED) || status=1; \
	tests/cuda/run $(dir $(CUDA_OLD)) $(B)/tests/cuda/stream_green || status=1; \
	exit $$status

# With the machine's own libcuda.so.1; no part of `make check`.
# Without jaxlib's header (XLA_INCLUDE) those that play XLA are left out.
CUDA_ON_GPU = $(addprefix $(B)/tests/gpu/,$(if $(XLA_INCLUDE),$(CUDA_TESTS), \
	$(filter-out $(CUDA_PLAYS),$(CUDA_TESTS))))

$(CUDA_TESTS:%=$(B)/tests/gpu/%): $(B)/tests/gpu/%: $(B)/obj/cuda/tests/cuda/%.o \
		$(CUDA_SHARED:%=$(B)/obj/cuda/%.o) $(LIB_OBJECTS)
	@mkdir -p $(@D)
	$(CUDA_LINK)

$(CUDA_PLAYS:%=$(B)/tests/gpu/%): $(CUDA_PLAYED:%=$(B)/obj/cuda/%.o) $(UPDATE_OBJECTS)

.PHONY: check-gpu
check-gpu: $(CUDA_ON_GPU)
	$(if $(XLA_INCLUDE),,@echo '# left out, as there is no XLA_INCLUDE: $(CUDA_PLAYS)')
	@tests/cuda/run '' $(CUDA_ON_GPU)
