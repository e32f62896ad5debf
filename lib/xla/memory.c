// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The heap that blocks come from; see memory.h.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actmem.h"
#include "actmem_xla.h"
#include "memory.h"

/* Blocks begin where a cache line, and where a GPU's copy engine, likes it. */
#define BLOCK_ALIGN	256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct actmem *attached;
static struct actmem_heap *heap;
static uint64_t heap_grow;
static uint64_t heap_limit;

/* "64M" and the like; false if the variable holds no such thing. */
static int bytes_from_environment(const char *name, uint64_t *bytes)
{
	static const char suffixes[] = "KMGT";
	const char *text = getenv(name), *suffix;
	unsigned int shift = 0;
	uint64_t value;
	char *end;

	if (!text || !*text)
		return 1;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || !isdigit((unsigned char)*text))
		return 0;
	if (*end) {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix || end[1])
			return 0;
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
	}
	if (value > UINT64_MAX >> shift)
		return 0;
	*bytes = value << shift;
	return 1;
}

/* What went wrong, and where a Python program turns the knob that helps. */
static int explain(int ret, char *words, size_t words_size)
{
	const char *why = actmem_error(), *knob = "";

	if (strstr(why, "ACTMEM_ALLOW"))
		knob = ", or in Python actmem.open(allow=(\"thp\", \"4k\")) before the first use";
	else if (strstr(why, "limit_bytes"))
		knob = " (ACTMEM_HEAP_LIMIT, or in Python actmem.open(heap_limit=))";
	snprintf(words, words_size, "%s%s", why, knob);
	return ret;
}

static int heap_make(char *words, size_t words_size)
{
	struct actmem_heap_options options;
	const char *wrong = NULL;
	int ret;

	if (!heap_grow && !bytes_from_environment("ACTMEM_HEAP_GROW", &heap_grow))
		wrong = "ACTMEM_HEAP_GROW";
	else if (!heap_limit &&
		 !bytes_from_environment("ACTMEM_HEAP_LIMIT", &heap_limit))
		wrong = "ACTMEM_HEAP_LIMIT";
	if (wrong) {
		snprintf(words, words_size,
			 "%s is '%s', which is no number of bytes (such as 268435456 or 256M)",
			 wrong, getenv(wrong));
		return -EINVAL;
	}
	if (!attached) {
		ret = actmem_open(&attached, NULL);
		if (ret)
			return explain(ret, words, words_size);
	}
	ACTMEM_INIT(&options);
	ACTMEM_INIT(&options.region);
	options.grow_bytes = heap_grow;
	options.limit_bytes = heap_limit;
	options.region.name = "activations";
	ret = actmem_heap_create(attached, &options, &heap);
	return ret ? explain(ret, words, words_size) : 0;
}

int memory_alloc(uint64_t bytes, void **block, char *words, size_t words_size)
{
	struct actmem_heap *from;
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!heap)
		ret = heap_make(words, words_size);
	from = heap;
	pthread_mutex_unlock(&lock);
	if (ret)
		return ret;
	ret = actmem_alloc(from, bytes, BLOCK_ALIGN, block);
	return ret ? explain(ret, words, words_size) : 0;
}

void memory_free(void *block)
{
	/* Fails only in a forked child, whose blocks are the parent's. */
	actmem_free(heap, block);
}

int actmem_xla_attach(struct actmem *am, uint64_t grow_bytes,
		      uint64_t limit_bytes)
{
	int ret = -EBUSY;

	pthread_mutex_lock(&lock);
	if (!attached) {
		attached = am;
		heap_grow = grow_bytes;
		heap_limit = limit_bytes;
		ret = 0;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void actmem_xla_detach(struct actmem *am)
{
	pthread_mutex_lock(&lock);
	if (attached == am && !heap) {
		attached = NULL;
		heap_grow = 0;
		heap_limit = 0;
	}
	pthread_mutex_unlock(&lock);
}

struct actmem *actmem_xla_attached(void)
{
	struct actmem *am;

	pthread_mutex_lock(&lock);
	am = attached;
	pthread_mutex_unlock(&lock);
	return am;
}

int actmem_xla_trim(void)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (heap)
		ret = actmem_heap_trim(heap);
	pthread_mutex_unlock(&lock);
	return ret;
}
