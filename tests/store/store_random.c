/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store beside a model that knows what every key has: threads reserve, commit, hold,
 * take, put back, drop and prefetch blocks of any length at random, wrongly now and
 * then, in stores of different budgets. And steps as those of a training, whose order
 * recurs for a while and then changes.
 *
 *	SEED=1 STEPS=1000000 SPILL=/dev/shm store_random
 */
#include <pthread.h>

#include "store_folder.h"

#define STEPS		2000
#define THREADS		4
#define KEYS		160
/* However those that are in use lie in the budget, another one of these fits. */
#define BYTES_MAX	(BUDGET / 32)
#define LAYERS		24

enum state { ABSENT, COMMITTED, HELD };

struct entry {
	struct actmem_key key;
	bool is_taken;			/* by one of the threads, for its step */
	enum state state;
	uint64_t bytes, content;
	const void *memory;		/* HELD */
};

struct model {
	struct actmem_store *store;
	bool has_budget;
	pthread_mutex_t lock;
	struct entry entries[KEYS];
	uint64_t puts, takes;
	uint64_t steps;
	const char *wrong;
	struct actmem_key where;
	int returned;
};

struct worker {
	struct model *model;
	pthread_t thread;
	uint64_t random;
	/* One at most stays held for a while. */
	struct entry *held;
	char *copy;
};

static bool expect(struct model *m, const struct entry *entry, int got, int wanted,
		   const char *what)
{
	if (got == wanted)
		return true;
	pthread_mutex_lock(&m->lock);
	if (!m->wrong) {
		m->wrong = what;
		m->where = entry->key;
		m->returned = got;
		printf("# %s\n", actmem_error());
	}
	pthread_mutex_unlock(&m->lock);
	return false;
}

static void count(struct model *m, uint64_t *sum)
{
	pthread_mutex_lock(&m->lock);
	++*sum;
	pthread_mutex_unlock(&m->lock);
}

static uint64_t some_bytes(uint64_t *random)
{
	static const uint64_t recurring[] = { 4096, 20480, 61440, BYTES_MAX };

	if (one_in(random, 2))
		return recurring[random_below(random, 4)];
	return 1 + random_below(random, 1ULL << (1 + random_below(random, 17)));
}

/* None, a little, or as much as it takes. */
static uint64_t some_time(struct worker *w)
{
	return one_in(&w->random, 3) ? 0 : one_in(&w->random, 2) ? 100000 : ACTMEM_WAIT_FOREVER;
}

static int reserve_or_wait(struct worker *w, const struct entry *entry, void **memory)
{
	struct actmem_store *store = w->model->store;
	int error = actmem_store_reserve(store, entry->key, entry->bytes, memory, some_time(w));

	return error != -ETIMEDOUT ? error :
	       actmem_store_reserve(store, entry->key, entry->bytes, memory, ACTMEM_WAIT_FOREVER);
}

static int reserve_again(struct worker *w, const struct entry *entry, uint64_t bytes)
{
	void *memory;

	return actmem_store_reserve(w->model->store, entry->key, bytes, &memory, some_time(w));
}

static int hold_again(struct worker *w, const struct entry *entry)
{
	const void *seen;
	uint64_t bytes;

	return actmem_store_hold(w->model->store, entry->key, &seen, &bytes, some_time(w));
}

static void put(struct worker *w, struct entry *entry)
{
	struct model *m = w->model;
	void *memory;

	entry->bytes = some_bytes(&w->random);
	entry->content = next_random(&w->random);
	if (one_in(&w->random, 3)) {
		fill_block(w->copy, entry->bytes, entry->content);
		if (!expect(m, entry, actmem_store_put(m->store, entry->key, w->copy, entry->bytes),
			    0, "put"))
			return;
	} else {
		if (!expect(m, entry, reserve_or_wait(w, entry, &memory), 0, "reserve") ||
		    !expect(m, entry, (uintptr_t)memory % 4096 != 0, 0, "alignment"))
			return;
		fill_block(memory, entry->bytes, entry->content);
		if (one_in(&w->random, 20)) {
			expect(m, entry, hold_again(w, entry), -ENOENT, "hold what is reserved");
			expect(m, entry, actmem_store_drop(m->store, entry->key), 0,
			       "drop what is reserved");
			return;
		}
		if (!expect(m, entry, actmem_store_commit(m->store, entry->key), 0, "commit"))
			return;
	}
	entry->state = COMMITTED;
	count(m, &m->puts);
}

static int hold_or_wait(struct worker *w, struct entry *entry, uint64_t *bytes)
{
	struct actmem_store *store = w->model->store;
	int error = actmem_store_hold(store, entry->key, &entry->memory, bytes, some_time(w));

	return error != -ETIMEDOUT ? error :
	       actmem_store_hold(store, entry->key, &entry->memory, bytes, ACTMEM_WAIT_FOREVER);
}

static void hold(struct worker *w, struct entry *entry)
{
	struct model *m = w->model;
	uint64_t bytes;

	if (!expect(m, entry, hold_or_wait(w, entry, &bytes), 0, "hold") ||
	    !expect(m, entry, bytes != entry->bytes, 0, "length of what is held") ||
	    !expect(m, entry, !is_block(entry->memory, bytes, entry->content), 0,
		    "content of what is held"))
		return;
	entry->state = HELD;
	count(m, &m->takes);
}

static void end_hold(struct worker *w, struct entry *entry)
{
	struct model *m = w->model;

	if (!expect(m, entry, !is_block(entry->memory, entry->bytes, entry->content), 0,
		    "content after a while"))
		return;
	if (one_in(&w->random, 3)) {
		expect(m, entry, actmem_store_put_back(m->store, entry->key), 0, "put back");
		entry->state = COMMITTED;
	} else {
		expect(m, entry, actmem_store_release(m->store, entry->key), 0, "release");
		entry->state = ABSENT;
	}
}

static void take(struct worker *w, struct entry *entry)
{
	struct model *m = w->model;

	if (one_in(&w->random, 10)) {
		expect(m, entry, actmem_store_take(m->store, entry->key, w->copy,
						   entry->bytes + 1), -EINVAL,
		       "take with another length");
		return;
	}
	if (!expect(m, entry, actmem_store_take(m->store, entry->key, w->copy, entry->bytes), 0,
		    "take") ||
	    !expect(m, entry, !is_block(w->copy, entry->bytes, entry->content), 0,
		    "content of what is taken"))
		return;
	entry->state = ABSENT;
	count(m, &m->takes);
}

static void misuse(struct worker *w, struct entry *entry)
{
	struct model *m = w->model;
	struct actmem_store *store = m->store;

	if (entry->state == ABSENT) {
		expect(m, entry, hold_again(w, entry), -ENOENT, "hold of nothing");
		expect(m, entry, actmem_store_drop(store, entry->key), -ENOENT, "drop of nothing");
		expect(m, entry, actmem_store_prefetch(store, entry->key), -ENOENT,
		       "prefetch of nothing");
		expect(m, entry, reserve_again(w, entry, 0), -EINVAL, "reserve of no byte");
		if (m->has_budget)
			expect(m, entry, reserve_again(w, entry, BUDGET + 1), -ENOMEM,
			       "reserve of more than the budget");
	} else {
		expect(m, entry, reserve_again(w, entry, 4096), -EEXIST,
		       "reserve of what is there");
	}
	if (entry->state == HELD) {
		expect(m, entry, hold_again(w, entry), 0, "hold of what is held");
		expect(m, entry, actmem_store_put_back(store, entry->key), 0,
		       "put back of the second hold");
		count(m, &m->takes);
		expect(m, entry, actmem_store_drop(store, entry->key), -EBUSY,
		       "drop of what is held");
	} else {
		expect(m, entry, actmem_store_release(store, entry->key), -ENOENT,
		       "release of what is not held");
		expect(m, entry, actmem_store_put_back(store, entry->key), -ENOENT,
		       "put back of what is not held");
	}
	expect(m, entry, actmem_store_commit(store, entry->key), -ENOENT,
	       "commit of what is not reserved");
}

/* Nobody else uses the entry until it is given back. */
static struct entry *some_entry(struct worker *w)
{
	struct model *m = w->model;
	struct entry *entry = NULL;

	pthread_mutex_lock(&m->lock);
	while (!entry || entry->is_taken)
		entry = &m->entries[random_below(&w->random, KEYS)];
	entry->is_taken = true;
	pthread_mutex_unlock(&m->lock);
	return entry;
}

static void give_entry(struct model *m, struct entry *entry)
{
	pthread_mutex_lock(&m->lock);
	entry->is_taken = false;
	pthread_mutex_unlock(&m->lock);
}

static void step(struct worker *w)
{
	struct model *m = w->model;
	struct entry *entry = some_entry(w);

	if (one_in(&w->random, 30))
		misuse(w, entry);
	else if (entry->state == ABSENT)
		put(w, entry);
	else if (one_in(&w->random, 30))
		expect(m, entry, actmem_store_drop(m->store, entry->key), 0, "drop"),
		entry->state = ABSENT;
	else if (one_in(&w->random, 4))
		expect(m, entry, actmem_store_prefetch(m->store, entry->key), 0, "prefetch");
	else if (one_in(&w->random, 2))
		take(w, entry);
	else
		hold(w, entry);
	if (entry->state != HELD) {
		give_entry(m, entry);
		return;
	}
	if (!w->held && one_in(&w->random, 2)) {
		w->held = entry;
		return;
	}
	end_hold(w, entry);
	give_entry(m, entry);
}

static void *work(void *context)
{
	struct worker *w = context;
	struct model *m = w->model;
	uint64_t i;

	for (i = 0; i < m->steps && !m->wrong; i++) {
		step(w);
		if (w->held && !m->wrong && one_in(&w->random, 10)) {
			if (one_in(&w->random, 10))
				misuse(w, w->held);
			end_hold(w, w->held);
			give_entry(m, w->held);
			w->held = NULL;
		}
	}
	if (w->held && !m->wrong) {
		end_hold(w, w->held);
		give_entry(m, w->held);
	}
	return NULL;
}

/* The store's sums are those of the model, when nobody is in a call. */
static void check_sums(struct model *m)
{
	struct actmem_store_stats stats = stats_of(m->store);
	uint64_t blocks = 0, bytes = 0;
	unsigned int i;

	for (i = 0; i < KEYS; i++) {
		if (m->entries[i].state == ABSENT)
			continue;
		blocks++;
		bytes += m->entries[i].bytes;
	}
	ok(stats.blocks == blocks && stats.block_bytes == bytes &&
	   stats.block_bytes_peak >= bytes, "the store has the model's blocks (%llu of %llu bytes)",
	   (unsigned long long)stats.blocks, (unsigned long long)stats.block_bytes);
	ok(stats.puts_total == m->puts && stats.takes_total == m->takes,
	   "%llu puts and %llu takes are counted", (unsigned long long)stats.puts_total,
	   (unsigned long long)stats.takes_total);
	ok(!stats.failed_spills_total && !stats.failed_fills_total && !stats.beyond_budget_bytes,
	   "none has failed");
	/* Now and then all that there is at a time fits into it. */
	ok(m->has_budget ? stats.memory_bytes_peak <= stats.budget_bytes &&
	   (stats.spilled_bytes_total || stats.block_bytes_peak <= stats.budget_bytes) :
	   !stats.spilled_bytes_total,
	   "and %llu bytes were spilled, memory within the budget",
	   (unsigned long long)stats.spilled_bytes_total);
}

static void run(struct actmem *am, const struct actmem_store_options *options, uint64_t seed,
		uint64_t steps)
{
	struct model *m = calloc(1, sizeof(*m));
	struct worker workers[THREADS] = { 0 };
	unsigned int i;

	m->store = store_or_bail(am, options);
	m->has_budget = options->budget_bytes;
	m->steps = steps / THREADS;
	printf("# %s\n", actmem_store_describe(m->store));
	pthread_mutex_init(&m->lock, NULL);
	for (i = 0; i < KEYS; i++)
		m->entries[i].key = (struct actmem_key){ i / 2, i % 2 };
	for (i = 0; i < THREADS; i++) {
		workers[i].model = m;
		workers[i].random = seed + i;
		workers[i].copy = malloc(BYTES_MAX + 8);
		workers[i].thread = start_thread(work, &workers[i]);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	if (m->wrong)
		tap_bail("%s of %llu/%llu: %d", m->wrong, (unsigned long long)m->where.name,
			 (unsigned long long)m->where.instance, m->returned);
	ok(true, "%llu steps of %d threads", (unsigned long long)steps, THREADS);
	check_sums(m);
	for (i = 0; i < KEYS && !m->wrong; i++)
		if (m->entries[i].state == COMMITTED)
			take(&workers[0], &m->entries[i]);
	for (i = 0; i < KEYS; i++)
		if (m->entries[i].state == COMMITTED &&
		    actmem_store_drop(m->store, m->entries[i].key))
			tap_bail("actmem_store_drop");
	ok(!m->wrong, "what is left is as it was put");
	destroy_empty(m->store);
	for (i = 0; i < THREADS; i++)
		free(workers[i].copy);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static void test_random(struct actmem *am, const char *const *folders, uint64_t seed,
			uint64_t steps)
{
	struct actmem_store_options options = store_options(BUDGET, folders, 1);
	struct actmem_queue_options queue = { .size = sizeof(queue) };

	options.flags |= ACTMEM_STORE_CHECKSUM;
	run(am, &options, seed, steps);
	options.flags &= ~ACTMEM_STORE_CHECKSUM;
	options.spill_path_count = 2;
	options.spill_bytes = 2 * BUDGET;
	options.queue = &queue;
	queue.engine = ACTMEM_ENGINE_WORKERS;
	queue.block_bytes = 65536;
	run(am, &options, seed + THREADS, steps);
	options = store_options(0, NULL, 0);
	run(am, &options, seed + 2 * THREADS, steps / 2);
}

/* How a backward pass may want the blocks of the forward pass. */
enum order { REVERSED, SAME, SHUFFLED, ORDERS };

static void one_step(struct actmem_store *store, enum order order, uint64_t seed)
{
	unsigned int sequence[LAYERS], i, j;

	for (i = 0; i < LAYERS; i++) {
		sequence[i] = order == REVERSED ? LAYERS - 1 - i : i;
		if (put_named(store, i, BYTES_MAX * 2 - i * 8))
			tap_bail("put of layer %u", i);
	}
	for (i = LAYERS; order == SHUFFLED && --i; ) {
		unsigned int other = sequence[j = (unsigned int)random_below(&seed, i + 1)];

		sequence[j] = sequence[i];
		sequence[i] = other;
	}
	for (i = 0; i < LAYERS; i++) {
		j = sequence[i];
		if (take_named(store, j, BYTES_MAX * 2 - j * 8))
			tap_bail("take of layer %u", j);
	}
}

/* A shuffle has the same seed for a while, so that it recurs. */
static void test_orders(struct actmem *am, const char *const *folders, uint64_t seed,
			uint64_t steps)
{
	struct actmem_store_options options = store_options(BUDGET, folders, 1);
	struct actmem_store *store = store_or_bail(am, &options);
	enum order order = REVERSED;
	struct actmem_store_stats stats;
	uint64_t shuffle = seed, i;

	for (i = 0; i < steps; i++) {
		one_step(store, order, shuffle);
		if (one_in(&seed, 6)) {
			order = (enum order)random_below(&seed, ORDERS);
			shuffle = next_random(&seed);
		}
	}
	stats = stats_of(store);
	ok(stats.takes_total == steps * LAYERS && stats.puts_total == steps * LAYERS,
	   "%llu steps in an order that changes", (unsigned long long)steps);
	ok(stats.hits_total + stats.late_total + stats.misses_total == stats.takes_total,
	   "%llu hits, %llu late, %llu not foreseen: no take is of two kinds or none",
	   (unsigned long long)stats.hits_total, (unsigned long long)stats.late_total,
	   (unsigned long long)stats.misses_total);
	ok(stats.spilled_bytes_total && stats.filled_bytes_total &&
	   stats.filled_bytes_total >= stats.wasted_bytes_total &&
	   stats.memory_bytes_peak <= BUDGET, "which did not fit into the budget");
	destroy_empty(store);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	uint64_t seed = seed_given(), steps = number_given("STEPS", STEPS);
	char paths[2][PATH_MAX];
	const char *const folders[] = { make_folder(paths[0]), make_folder(paths[1]) };

	test_random(am, folders, seed, steps);
	test_orders(am, folders, seed, steps / 100);
	remove_folder(folders[0]);
	remove_folder(folders[1]);
	return end_tests(am, before);
}
