/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Calls in orders that nobody means: a random program is told by each of its calls what it
 * is told where all is the driver's own. Blocks are freed twice, in their middle and by
 * another thread, and registered and unregistered as ranges are; ranges are registered
 * twice and in parts; contexts end with what is theirs.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "memory_test.h"
#include "random.h"

#define CALLS	3000
#define SLOTS	8
#define MOST	(5 * MIB + 123)

/* Of both processes: what each call returned, and what it told. */
struct record {
	char call[24];
	unsigned int result, told;
};

struct transcript {
	unsigned int count;
	struct record records[2 * CALLS];
};

struct slot {
	char *address;
	size_t bytes;
	unsigned int flags;
	bool registered, is_block, is_own;	/* is_own: of the context that the program made */
};

static struct transcript *transcripts, *transcript;
static uint64_t state, seed;
static struct slot slots[SLOTS];
static bool are_drivers;		/* all blocks; else there are some of regions */
static unsigned int of_regions;
static CUcontext own;
static bool in_own;

static unsigned int draw(unsigned int below)
{
	return (unsigned int)random_below(&state, below);
}

static void write_down(const char *call, CUresult result, unsigned int told)
{
	struct record *record = &transcript->records[transcript->count];

	if (transcript->count == 2 * CALLS)
		return;
	transcript->count++;
	snprintf(record->call, sizeof(record->call), "%s", call);
	record->result = result;
	record->told = told;
}

static void alloc(struct slot *slot)
{
	static const size_t sizes[] = { 0, 8, MIB - 1, MIB, 4 * MIB, MOST, MIB + 4096, SIZE_MAX };
	static const unsigned int flags[] = { 0, 1, 2, 3, 4, 0x10, 1, 3 };
	size_t bytes = draw(3) ? sizes[3 + draw(4)] : sizes[draw(8)];
	void *memory = NULL;
	CUresult result;

	slot->flags = draw(2) ? flags[draw(8)] : 0;
	result = slot->flags || draw(2) ? api.cuMemHostAlloc(&memory, bytes, slot->flags) :
					  api.cuMemAllocHost_v2(&memory, bytes);
	write_down("alloc", result, !!memory);
	if (result)
		return;
	*slot = (struct slot){ memory, bytes, slot->flags, false, true, in_own };
	of_regions += is_in_region(memory);
	memset(memory, (int)draw(256), bytes);
}

static void map(struct slot *slot)
{
	char *room = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	char *at = room + (-(uintptr_t)room % (2 * MIB));

	if (room == MAP_FAILED)
		return;
	munmap(room, (size_t)(at - room));
	munmap(at + 4 * MIB, (size_t)(room + 8 * MIB - at - 4 * MIB));
	*slot = (struct slot){ .address = at, .bytes = 4 * MIB };
	if (draw(3) == 0)
		at[draw(4 * MIB)] = 1;
}

/* All of it, a part, or what is not to be. */
static void register_some(struct slot *slot)
{
	static const unsigned int flags[] = { 0, 1, 2, 3, 4, 8, 0x100, 1 };
	unsigned int some = draw(8), flag = flags[draw(8)];
	char *address = slot->address;
	size_t bytes = slot->bytes;
	CUresult result;

	if (some == 0 && bytes > 2 * MIB)
		address += MIB, bytes -= MIB;
	else if (some == 1)
		bytes = 0;
	else if (some == 2 && bytes > 8192)
		bytes = 4096;
	result = api.cuMemHostRegister_v2(address, bytes, flag);
	write_down("register", result, 0);
	if (result)
		return;
	/* It is undone by the address at which it was done. */
	slot->registered = true;
	slot->is_own = in_own;
	slot->flags = flag;
	if (address != slot->address || bytes != slot->bytes) {
		write_down("unregister a part", api.cuMemHostUnregister(address), 0);
		slot->registered = false;
	}
}

static void unregister(struct slot *slot)
{
	char *address = slot->address + (draw(4) ? 0 : 4096);
	CUresult result = api.cuMemHostUnregister(address);

	write_down("unregister", result, 0);
	if (!result)
		slot->registered = false;
	if (!result && draw(2))
		write_down("unregister twice", api.cuMemHostUnregister(address), 0);
}

static CUresult release_result;

static void *release_in_thread(void *memory)
{
	CUcontext context = in_own ? own : primary;

	release_result = api.cuCtxSetCurrent(context);
	if (!release_result)
		release_result = api.cuMemFreeHost(memory);
	return NULL;
}

static void release(struct slot *slot)
{
	char *address = slot->address + (draw(4) || !slot->bytes ? 0 : slot->bytes / 2);
	pthread_t thread;

	if (draw(4) || pthread_create(&thread, NULL, release_in_thread, address))
		release_result = api.cuMemFreeHost(address);
	else
		pthread_join(thread, NULL);
	write_down("free", release_result, 0);
	if (release_result)
		return;
	if (draw(2))
		write_down("free twice", api.cuMemFreeHost(address), 0);
	*slot = (struct slot){ NULL };
}

static void drop(struct slot *slot)
{
	if (slot->registered)
		write_down("unregister at last", api.cuMemHostUnregister(slot->address), 0);
	munmap(slot->address, slot->bytes);
	*slot = (struct slot){ NULL };
}

/* Of each context the stand-in has only what is of it, or for all: regions are for all. */
static bool is_reached(const struct slot *slot)
{
	return slot->is_own == in_own;
}

static void ask(const struct slot *slot)
{
	static const CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
		CU_POINTER_ATTRIBUTE_HOST_POINTER,
	};
	char *address = slot->address + (slot->bytes ? draw((unsigned int)slot->bytes) : 0);
	unsigned int flags = 0, i, options = !draw(8);
	CUdeviceptr pointer = 0;
	CUresult result;

	if (is_reached(slot)) {
		result = api.cuMemHostGetDevicePointer_v2(&pointer, address, options);
		write_down("device pointer", result, pointer == (CUdeviceptr)(uintptr_t)address);
	}
	write_down("flags", api.cuMemHostGetFlags(&flags, address), flags);
	for (i = 0; i < 5; i++) {
		uint64_t value = 0;

		result = api.cuPointerGetAttribute(&value, attributes[i],
						    (CUdeviceptr)(uintptr_t)address);
		write_down("attribute", result, i < 2 ? (unsigned int)value : i == 2 ?
			   value == (uintptr_t)primary : value == (uintptr_t)address);
	}
}

static void end_own(void)
{
	unsigned int i;

	write_down("end context", api.cuCtxDestroy_v2(own), 0);
	api.cuCtxSetCurrent(primary);
	own = NULL;
	in_own = false;
	for (i = 0; i < SLOTS; i++) {
		if (!slots[i].is_own)
			continue;
		slots[i].is_own = slots[i].registered = false;
		if (slots[i].is_block)
			slots[i] = (struct slot){ NULL };
	}
}

static void change_context(void)
{
	if (own && draw(2)) {
		end_own();
		return;
	}
	in_own = !in_own;
	if (!own)
		write_down("create context", api.cuCtxCreate_v4(&own, NULL, 0, 0), 0);
	api.cuCtxSetCurrent(in_own ? own : primary);
}

static void act(void)
{
	struct slot *slot = &slots[draw(SLOTS)];

	if (!draw(in_own ? 10 : 100)) {
		change_context();
	} else if (!slot->address) {
		if (draw(2))
			alloc(slot);
		else
			map(slot);
	} else {
		switch (draw(6)) {
		case 0:
			register_some(slot);
			break;
		case 1:
			unregister(slot);
			break;
		case 2:
		case 3:
			if (!slot->is_block && draw(2))
				drop(slot);
			else
				release(slot);
			break;
		default:
			ask(slot);
		}
	}
}

static bool random_program(void)
{
	struct standin_counts counts;
	unsigned int i;

	state = seed;
	for (i = 0; i < CALLS && transcript->count < 2 * CALLS - 20; i++)
		act();
	if (own)
		end_own();
	for (i = 0; i < SLOTS; i++) {
		if (slots[i].address && slots[i].is_block)
			CHECK(!api.cuMemFreeHost(slots[i].address));
		else if (slots[i].address)
			drop(&slots[i]);
	}
	counts = counts_now();
	CHECK(!counts.allocated && !counts.registered);
	if (!are_drivers)
		printf("# %u blocks\n", of_regions);
	CHECK(are_drivers ? !of_regions : of_regions > CALLS / 60);
	return true;
}

static void compare(void)
{
	const struct transcript *theirs = &transcripts[0], *ours = &transcripts[1];
	unsigned int i = 0;

	while (i < theirs->count && i < ours->count &&
	       !memcmp(&theirs->records[i], &ours->records[i], sizeof(theirs->records[i])))
		i++;
	if (ok(i == theirs->count && i == ours->count && i > CALLS / 2,
	       "%u calls have the driver's answers (seed %llu)", i, (unsigned long long)seed))
		return;
	printf("# call %u: %s is %u, %u by the driver; %s is %u, %u\n", i, theirs->records[i].call,
	       theirs->records[i].result, theirs->records[i].told, ours->records[i].call,
	       ours->records[i].result, ours->records[i].told);
}

int main(void)
{
	uint64_t first = number_given("SEED", (uint64_t)time(NULL) * 4 + 1);
	unsigned int round;

	skip_without_cuda();
	/* On a real one, what it answers to calls that nobody means is its own affair. */
	if (!stand_in_is_there()) {
		tap_skip("the real GPU's answers are not compared");
		return tap_end();
	}
	transcripts = mmap(NULL, 2 * sizeof(*transcripts), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (transcripts == MAP_FAILED)
		tap_bail("no memory for what is compared");
	for (round = 0; round < 3; round++) {
		seed = first + round * 9;
		memset(transcripts, 0, 2 * sizeof(*transcripts));
		transcript = &transcripts[0];
		are_drivers = true;
		run_case("a random program runs where all is the driver's", random_program,
			 "ACTMEM_CUDA_MIN=1T", "ACTMEM_CUDA_KEEP=0", NULL);
		transcript = &transcripts[1];
		are_drivers = false;
		run_case("and where large blocks are not", random_program, "ACTMEM_CUDA_MIN",
			 "ACTMEM_CUDA_KEEP=0", NULL);
		compare();
	}
	return tap_end();
}
