/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Many transfers of both kinds in flight at once, some of them cancelled or too late,
 * beside a model in ordinary memory that does the same when a request has ended.
 * Files and regions are compared with it, by plain reads, and in the end whole.
 *
 *	SEED=1 STEPS=10000 queue_random
 */

#include "base/clock.h"
#include "queue_test.h"
#include "random.h"

#define SLOTS		32
#define SLOT_BYTES	(LENGTH / SLOTS)
#define ROUNDS		120
#define IN_FLIGHT_MAX	12

enum action { FILL, SPILL, ACTIONS };

/* Slots of region and set that a request has to itself while it is under way. */
struct flight {
	bool is_used, is_cancelled, is_timed;
	enum action action;
	unsigned int to, from;		/* slots: region, or set for one side */
	uint64_t skip, length;		/* within the slots */
	uint64_t id;
};

struct model {
	struct actmem_queue *queue;
	struct actmem_region *region;
	struct set set;
	char *memory, *region_wanted, *set_wanted;
	bool region_busy[SLOTS], set_busy[SLOTS];
	/* Some part of what a request that did not end well was to write. */
	bool region_unknown[SLOTS], set_unknown[SLOTS];
	struct flight flights[IN_FLIGHT_MAX];
	unsigned int in_flight;
	uint64_t seed;
	unsigned int done, cancelled, late;
};

static int free_slot(struct model *m, const bool busy[SLOTS])
{
	unsigned int i, slot = (unsigned int)random_below(&m->seed, SLOTS);

	for (i = 0; i < SLOTS; i++, slot = (slot + 1) % SLOTS)
		if (!busy[slot])
			return (int)slot;
	tap_bail("no slot is free");
}

static void check_region_slot(struct model *m, unsigned int slot)
{
	uint64_t at = slot * SLOT_BYTES;

	if (m->region_unknown[slot])
		memcpy(m->region_wanted + at, m->memory + at, SLOT_BYTES);
	m->region_unknown[slot] = false;
	if (memcmp(m->region_wanted + at, m->memory + at, SLOT_BYTES))
		tap_bail("slot %u of the region is not as the model has it", slot);
}

static void check_set_slot(struct model *m, unsigned int slot)
{
	uint64_t at = slot * SLOT_BYTES;
	char seen[SLOT_BYTES];

	if (!set_transfer(&m->set, seen, at, SLOT_BYTES, false))
		tap_bail("cannot read the files: %s", strerror(errno));
	if (m->set_unknown[slot])
		memcpy(m->set_wanted + at, seen, SLOT_BYTES);
	m->set_unknown[slot] = false;
	if (memcmp(m->set_wanted + at, seen, SLOT_BYTES))
		tap_bail("slot %u of the files is not as the model has it", slot);
}

static void submit(struct model *m)
{
	struct actmem_request request = { .size = sizeof(request) };
	struct flight *flight = m->flights;
	uint64_t to, from;
	int error;

	while (flight->is_used)
		flight++;
	*flight = (struct flight){
		.is_used = true,
		.action = (enum action)random_below(&m->seed, ACTIONS),
		.is_timed = !random_below(&m->seed, 8),
		.skip = random_below(&m->seed, 4) * 4096,
	};
	flight->length = (1 + random_below(&m->seed, (SLOT_BYTES - flight->skip) / 4096)) * 4096;
	flight->to = (unsigned int)free_slot(m, flight->action == SPILL ? m->set_busy :
					     m->region_busy);
	(flight->action == SPILL ? m->set_busy : m->region_busy)[flight->to] = true;
	flight->from = (unsigned int)free_slot(m, flight->action == FILL ? m->set_busy :
					       m->region_busy);
	(flight->action == FILL ? m->set_busy : m->region_busy)[flight->from] = true;

	request.cookie = (uint64_t)(flight - m->flights);
	if (flight->is_timed)
		request.deadline_ns = clock_ns() + random_below(&m->seed, 3000000);
	to = flight->to * SLOT_BYTES + flight->skip;
	from = flight->from * SLOT_BYTES + flight->skip;
	if (flight->action == FILL)
		error = actmem_queue_fill(m->queue, m->set.file, from, m->region, to,
					  flight->length, &request);
	else
		error = actmem_queue_spill(m->queue, m->set.file, to, m->region, from,
					   flight->length, &request);
	if (error)
		tap_bail("a request is refused");
	flight->id = request.id;
	m->in_flight++;
}

static void cancel_one(struct model *m)
{
	struct flight *flight = &m->flights[random_below(&m->seed, IN_FLIGHT_MAX)];
	int error;

	if (!flight->is_used)
		return;
	error = actmem_queue_cancel(m->queue, flight->id);
	if (error && error != -ENOENT)
		tap_bail("actmem_queue_cancel");
	flight->is_cancelled |= !error;
}

static void apply(struct model *m, const struct flight *flight, bool is_well)
{
	uint64_t to = flight->to * SLOT_BYTES + flight->skip;
	uint64_t from = flight->from * SLOT_BYTES + flight->skip;
	char *target = flight->action == SPILL ? m->set_wanted : m->region_wanted;
	const char *source = flight->action == FILL ? m->set_wanted : m->region_wanted;

	if (is_well)
		memcpy(target + to, source + from, flight->length);
	else
		(flight->action == SPILL ? m->set_unknown : m->region_unknown)[flight->to] = true;
	if (flight->action == SPILL)
		check_set_slot(m, flight->to);
	else
		check_region_slot(m, flight->to);
	(flight->action == SPILL ? m->set_busy : m->region_busy)[flight->to] = false;
	(flight->action == FILL ? m->set_busy : m->region_busy)[flight->from] = false;
}

static void take(struct model *m, uint64_t timeout)
{
	struct actmem_completion completions[4];
	int count = actmem_queue_wait(m->queue, completions, 4, timeout), i;

	if (count < 0 && count != -ETIMEDOUT)
		tap_bail("actmem_queue_wait");
	for (i = 0; i < count; i++) {
		struct flight *flight = &m->flights[completions[i].cookie];
		int result = completions[i].result;

		if (!flight->is_used || flight->id != completions[i].id)
			tap_bail("a completion that nobody asked for");
		if (result && !(result == -ECANCELED && flight->is_cancelled) &&
		    !(result == -ETIME && flight->is_timed))
			tap_bail("%d: %s", result, actmem_error());
		if (!result != (completions[i].bytes == flight->length))
			tap_bail("result %d with %llu bytes", result,
				 (unsigned long long)completions[i].bytes);
		m->done += !result;
		m->cancelled += result == -ECANCELED;
		m->late += result == -ETIME;
		apply(m, flight, !result);
		flight->is_used = false;
		m->in_flight--;
	}
}

/* What the caller itself writes between requests. */
static void scribble(struct model *m)
{
	unsigned int slot = (unsigned int)free_slot(m, m->region_busy);
	uint64_t at = slot * SLOT_BYTES;

	check_region_slot(m, slot);
	pattern(m->memory + at, SLOT_BYTES, m->seed);
	memcpy(m->region_wanted + at, m->memory + at, SLOT_BYTES);
}

static void run(struct actmem *am, enum actmem_engine engine, unsigned int stripes,
		uint32_t attach, uint64_t seed, unsigned int rounds)
{
	struct model *m = calloc(1, sizeof(*m));
	unsigned int i;

	printf("# %s, %u files\n", engine_names[engine], stripes);
	m->seed = seed;
	m->queue = queue_or_bail(am, engine, 5 * 4096, 1 + (unsigned int)(seed % 7));
	m->region = region_or_bail(am, "random");
	m->set = set_or_bail(m->queue, stripes, stripes * 3 * 4096, LENGTH);
	m->memory = memory_or_bail(m->region);
	m->region_wanted = malloc(LENGTH);
	m->set_wanted = malloc(LENGTH);
	returns(actmem_queue_attach(m->queue, m->region, attach), 0);
	pattern(m->memory, LENGTH, seed);
	memcpy(m->region_wanted, m->memory, LENGTH);
	pattern(m->set_wanted, LENGTH, seed + 1);
	if (!set_transfer(&m->set, m->set_wanted, 0, LENGTH, true))
		tap_bail("cannot write the files: %s", strerror(errno));

	for (i = 0; i < rounds; i++) {
		while (m->in_flight < IN_FLIGHT_MAX && random_below(&m->seed, 4))
			submit(m);
		if (!random_below(&m->seed, 3))
			cancel_one(m);
		if (!random_below(&m->seed, 5))
			scribble(m);
		take(m, random_below(&m->seed, 2) ? 0 : random_below(&m->seed, 200000));
	}
	while (m->in_flight)
		take(m, ACTMEM_WAIT_FOREVER);
	for (i = 0; i < SLOTS; i++) {
		check_region_slot(m, i);
		check_set_slot(m, i);
	}
	ok(m->done, "%u requests ended well, %u cancelled, %u late, and every byte is as it should be",
	   m->done, m->cancelled, m->late);
	returns(actmem_queue_detach(m->queue, m->region), 0);
	set_close(&m->set);
	returns(actmem_region_close(m->region), 0);
	destroy_idle(m->queue);
	free(m->region_wanted);
	free(m->set_wanted);
	free(m);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	unsigned int rounds = (unsigned int)number_given("STEPS", ROUNDS), i;
	uint64_t seed = seed_given();

	for (i = 0; i < 2; i++) {
		if (!engine_is_there(am, engines[i]))
			continue;
		run(am, engines[i], 1, 0, seed, rounds);
		run(am, engines[i], 3, ACTMEM_ATTACH_PLAIN, seed + 1, rounds);
	}
	return end_tests(am, before);
}
