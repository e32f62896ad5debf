/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The model of each worker's regions, which predicts every byte, and reports of failures. The
 * fuzzer's processes share the model, and it outlives a killed worker, so that the worker's
 * successor can check the named regions.
 *
 * A region consists of pages of 2 MiB and small pages of 4 KiB. The model has a version for each
 * small page, from which every word of it follows. Version 0 is zeros.
 */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include <setjmp.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>

#include "names_test.h"

#define WORKERS		4
#define REGIONS		3
#define PAGES		12
#define SMALL		4096
#define SMALLS		512
#define WORDS		(SMALL / sizeof(uint64_t))
#define HISTORY		16
/* How long a reference that the kernel holds for a moment may last. */
#define PATIENCE_MS	20000

/* Whether a page exists. UNKNOWN: another thread may have allocated it. */
enum presence { MISSING, PRESENT, UNKNOWN };
enum kind { UNNAMED, NAMED, TMPFILE };
enum life { NONE, MAKING, LIVE };

/*
 * A region of a worker. @first and @count are the pages that @memory maps. @pins: how often the
 * worker itself has pinned each page. The small pages of @change have either their version in
 * @version or @change.version, or some words of each.
 */
struct model {
	enum life life;
	enum kind kind;
	bool is_shared;
	bool is_inherited;
	uint32_t pages;
	uint32_t policy;
	uint64_t nodes;
	uint64_t id;
	uint64_t key;
	int fd;
	char *memory;
	uint32_t first;
	uint32_t count;
	uint32_t exported;
	uint8_t state[PAGES];
	uint8_t pins[PAGES];
	uint32_t version[PAGES * SMALLS];
	uint32_t next_version;
	struct {
		uint32_t first;
		uint32_t count;
		uint32_t version;
	} change;
};

struct record {
	const char *operation;
	uint32_t region;
	uint32_t first;
	uint32_t count;
	int result;
};

/*
 * A process or its second thread. @steps: operations that it has begun, and calls whose
 * results were compared; a number that stays the same shows that the actor hangs.
 */
struct actor {
	atomic_ulong steps;
	const char *operation;
};

struct worker {
	struct actor main;
	struct actor chaos;
	unsigned int number;
	unsigned int generation;
	pid_t pid;
	struct model regions[REGIONS];
	struct record history[HISTORY];
	unsigned int records;
};

/* Counts of the summary. */
enum event { BUSY, REFUSED, FAULTED, LINGERED, CANCELLED, RECOVERED, KILLED, EVENTS };

static struct fuzz {
	unsigned long seed;
	atomic_bool failed;
	atomic_ulong events[EVENTS];
	struct actor limiter;
	struct worker workers[WORKERS];
	int device;
	int disk;
	int arena;
	int empty;
	int node_count;
	bool has_cgroup;
} *fuzz;

/* The worker of this process; NULL in the others. */
static struct worker *self;
static __thread struct actor *actor;
static __thread uint64_t random_state;

static inline unsigned int choose(unsigned int count)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 33) % count;
}

static inline uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 32) * 0xd6e8feb86659fd93ULL;
	value = (value ^ value >> 32) * 0xd6e8feb86659fd93ULL;
	return value ^ value >> 32;
}

/* Starts the random numbers of an actor, which follow from the seed and these two numbers. */
static inline void seed_random(unsigned int number, unsigned int generation)
{
	random_state = mix(fuzz->seed ^ mix((uint64_t)number << 32 | (generation + 1)));
	random_state += !random_state;
}

static inline void count(enum event event)
{
	atomic_fetch_add(&fuzz->events[event], 1);
}

/* Ends this process when its parent ends. */
static inline void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
}

/* Begins an operation of the current actor. */
static inline void step(const char *operation)
{
	actor->operation = operation;
	atomic_fetch_add(&actor->steps, 1);
}

static inline void note(const struct model *m, uint32_t first, uint32_t number, int result)
{
	self->history[self->records++ % HISTORY] = (struct record){
		actor->operation, m - self->regions, first, number, result
	};
}

/* Reports a failure with the worker's last operations, and ends the process. */
__attribute__((format(printf, 1, 2), noreturn))
static inline void fail(const char *format, ...)
{
	char text[1024];
	va_list values;
	unsigned int i;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	atomic_store(&fuzz->failed, true);
	dprintf(2, "# FAILED: seed %lu, worker %d, generation %d, operation %lu (%s): %s\n",
		fuzz->seed, self ? (int)self->number : -1,
		self ? (int)self->generation : 0, actor ? atomic_load(&actor->steps) : 0,
		actor ? actor->operation : "supervisor", text);
	for (i = self && self->records > HISTORY ? self->records - HISTORY : 0;
	     self && i < self->records; i++) {
		struct record *was = &self->history[i % HISTORY];

		dprintf(2, "#   before: %s of region %u, from %u on %u, result %d\n",
			was->operation, was->region, was->first, was->count, was->result);
	}
	_exit(1);
}

#define ensure(condition, ...) do { if (!(condition)) fail(__VA_ARGS__); } while (0)

/* Compares the result of a call with the documented one. */
#define expect(wanted, call) do {						\
	long got_ = (long)(call), wanted_ = (wanted);				\
										\
	got_ = got_ == -1 ? -errno : got_;					\
	ensure(got_ == wanted_, "%s returned %ld, not %ld", #call, got_, wanted_); \
	if (actor)								\
		atomic_fetch_add(&actor->steps, 1);				\
} while (0)

/* Repeats a check until it holds, for as long as the kernel may hold a reference. */
#define wait_until(condition) ({						\
	int tries_ = PATIENCE_MS / 2;						\
										\
	while (!(condition) && --tries_)					\
		usleep(2000);							\
	tries_;									\
})

/* Signals of accesses to memory. Code between touch_begin() and touch_end() may get them. */
static __thread sigjmp_buf touch_return;
static __thread volatile sig_atomic_t is_touching;

#define touch_begin()	({ is_touching = 1; sigsetjmp(touch_return, 0); })
#define touch_end()	(is_touching = 0)

static inline void handle_signal(int number, siginfo_t *about, void *context)
{
	if (!is_touching)
		fail("signal %d at address %p", number, about->si_addr);
	is_touching = 0;
	siglongjmp(touch_return, number);
}

static inline void catch_signals(void)
{
	struct sigaction action = {
		.sa_sigaction = handle_signal,
		.sa_flags = SA_SIGINFO | SA_NODEFER,
	};

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
}

/* Writes a word if @written is not 0, then reads it. Returns the signal that ended this. */
__attribute__((noinline))
static int touch_word(void *at, uint64_t written, uint64_t *found)
{
	int number = touch_begin();

	if (!number && written)
		*(volatile uint64_t *)at = written;
	if (!number)
		*found = *(volatile uint64_t *)at;
	touch_end();
	return number;
}

#define FACTOR	0x9e3779b97f4a7c15ULL

/* Returns a word of a version of a small page. */
static inline uint64_t word_of(uint64_t key, uint32_t small, uint32_t version, size_t word)
{
	return version ? mix(key ^ mix((uint64_t)version << 32 | small)) + FACTOR * word : 0;
}

static inline void pattern_fill(void *at, uint64_t key, uint32_t small, uint32_t version)
{
	uint64_t word = word_of(key, small, version, 0), step_by = version ? FACTOR : 0;
	uint64_t *words = at;
	size_t i;

	for (i = 0; i < WORDS; i++, word += step_by)
		words[i] = word;
}

/* Returns the index of the first word that differs, -1 if none does. */
static inline long pattern_differs(const void *at, uint64_t key, uint32_t small, uint32_t version)
{
	uint64_t word = word_of(key, small, version, 0), step_by = version ? FACTOR : 0;
	const uint64_t *words = at;
	size_t i;

	for (i = 0; i < WORDS; i++, word += step_by)
		if (words[i] != word)
			return i;
	return -1;
}

/* Compares every byte of the small pages from @first on with the model. */
static inline void check_bytes(const struct model *m, const char *bytes, uint32_t first,
			       uint32_t number, const char *how)
{
	uint32_t i;

	for (i = 0; i < number; i++, bytes += SMALL) {
		uint32_t version = m->version[first + i];
		long at = pattern_differs(bytes, m->key, first + i, version);

		if (at < 0)
			continue;
		fail("region %td, page %u, byte %zu, read by %s: found %016llx %016llx, expected %016llx (version %u)",
		     m - self->regions, (first + i) / SMALLS,
		     (first + i) % SMALLS * SMALL + at * sizeof(uint64_t), how,
		     ((unsigned long long *)bytes)[at],
		     ((unsigned long long *)bytes)[(at + 1) % WORDS],
		     (unsigned long long)word_of(m->key, first + i, version, at), version);
	}
}

static inline void change_begin(struct model *m, uint32_t first, uint32_t number, uint32_t version)
{
	m->change.first = first;
	m->change.version = version;
	atomic_thread_fence(memory_order_seq_cst);
	m->change.count = number;
}

/* The first @done small pages of the change have the new version. */
static inline void change_end(struct model *m, uint32_t done)
{
	uint32_t i;

	for (i = 0; i < done; i++)
		m->version[m->change.first + i] = m->change.version;
	atomic_thread_fence(memory_order_seq_cst);
	m->change.count = 0;
}

/* Another thread, or a failed call, may have allocated any of these pages. */
static inline void forget_missing(struct model *m, uint32_t first, uint32_t number)
{
	uint32_t i;

	for (i = first; i < first + number; i++)
		if (m->state[i] == MISSING)
			m->state[i] = UNKNOWN;
}

/* A range of small pages was touched. The first @done accesses succeeded. */
static inline void pages_touched(struct model *m, uint32_t first, uint32_t number, uint32_t done)
{
	uint32_t i;

	for (i = first / SMALLS; i < (first + number + SMALLS - 1) / SMALLS; i++) {
		if (done && i * SMALLS < first + done)
			m->state[i] = PRESENT;
		else
			forget_missing(m, i, 1);
	}
}

static inline bool all_present(const struct model *m, uint32_t first, uint32_t number)
{
	uint32_t i;

	for (i = first / SMALLS; i < (first + number + SMALLS - 1) / SMALLS; i++)
		if (m->state[i] != PRESENT)
			return false;
	return true;
}

#endif
