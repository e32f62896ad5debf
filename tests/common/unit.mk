# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Unit tests of the library: its own objects under ASan and UBSan, with the
# system calls wrapped that the tests make fail and the heap checking itself. And
# that headers stand alone.

UNIT_WRAPPED := open ioctl mmap memfd_create madvise mlock2 ftruncate fallocate \
	access fcntl fstat stat statfs fstatfs flock linkat readlink fopen opendir malloc \
	sched_getaffinity calloc realloc strdup syscall preadv2 pwritev2 eventfd pthread_create checksum \
	io_uring_queue_init_params io_uring_ring_dontfork io_uring_register_buffers_sparse \
	io_uring_register_files_sparse io_uring_register_buffers_update_tag \
	io_uring_register_files_update io_uring_submit io_uring_submit_and_wait_timeout
UNIT_SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer

UNIT_OBJ := $(B)/obj/sanitized
UNIT_FAULTS := $(patsubst %.c,$(UNIT_OBJ)/%.o,$(wildcard tests/faults/faults*.c))
UNIT_PROGRAMS := $(addprefix $(B)/,$(foreach test,$(FOLDER_TESTS), \
	$(if $(filter test_%,$(notdir $(test))),$(test))))

$(UNIT_OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Itests/common -Itests/faults -O1 $(UNIT_SANITIZE) -DACTMEM_DEBUG -Wno-missing-prototypes \
		-MMD -MP -c $< -o $@

$(UNIT_PROGRAMS): $(B)/%: $(UNIT_OBJ)/%.o \
		$(UNIT_FAULTS) $(LIB_SOURCES:%.c=$(UNIT_OBJ)/%.o)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(UNIT_SANITIZE) -pthread $(UNIT_WRAPPED:%=-Wl,--wrap=%) \
		$^ -lcmocka $(LIB_NEEDS) -o $@

# Code that is not part of libactmem; the plain functions of its tests are rounded as it is. With
# this option, the compiler would fuse operations here as at -O2, so the tests see if it does.
$(UPDATE_SOURCES:%.c=$(UNIT_OBJ)/%.o): ALL_CFLAGS += -fexpensive-optimizations
UNIT_UPDATE := $(filter $(B)/tests/update/%,$(UNIT_PROGRAMS))
$(UNIT_UPDATE): $(UPDATE_SOURCES:%.c=$(UNIT_OBJ)/%.o)
$(UNIT_UPDATE): LIB_NEEDS += -lm
$(UNIT_UPDATE:$(B)/%=$(UNIT_OBJ)/%.o): ALL_CFLAGS += -ffp-contract=off -Wno-psabi

.PHONY: check-unit
CHECKS += unit
CHECK_NEEDS += $(UNIT_PROGRAMS)
check-unit: $(UNIT_PROGRAMS)
	@tests/faults/headers
	@status=0; for program in $(UNIT_PROGRAMS); do \
		CMOCKA_MESSAGE_OUTPUT=TAP timeout 200 $$program || \
			{ echo "not ok - $$program ended with status $$?"; status=1; }; \
	done; exit $$status

# Beside a model, where the library checks itself: with sanitizers, and a heap
# that looks at its bookkeeping whenever it locks it. SEED= repeats a run, STEPS=
# makes it as long as one likes.
UNIT_RANDOM := $(addprefix $(B)/random/tests/,heap/heap_random heap/heap_crowd \
	queue/queue_random store/store_random)

$(UNIT_RANDOM): $(B)/random/%: $(UNIT_OBJ)/%.o \
		$(UNIT_OBJ)/tests/common/tap.o $(UNIT_OBJ)/tests/common/common.o \
		$(LIB_SOURCES:%.c=$(UNIT_OBJ)/%.o)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(UNIT_SANITIZE) -pthread $^ $(LIB_NEEDS) -o $@

.PHONY: check-lib-random
CHECKS += lib-random
CHECK_NEEDS += $(UNIT_RANDOM)
check-lib-random: $(UNIT_RANDOM)
	@status=0; for test in $(UNIT_RANDOM); do \
		ACTMEM_BACKEND=memfd ACTMEM_PAGES=4K $$test || \
			{ echo "not ok - $$test ended with status $$?"; status=1; }; \
	done; exit $$status
