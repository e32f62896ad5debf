/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program that learns of completions by an eventfd, by each engine, in a loop that waits
 * for other things as well: it is told of all that ends, also without a transfer, of what
 * had ended before, and of nothing when there is nothing to take.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include "queue_test.h"

#define BLOCK		(64 * KIB)
#define SLOTS		8
#define CHAIN		200

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, timeout_ms) == 1 && event.revents == POLLIN;
}

/* Waits for it, reads it, and takes the only completion. */
static int told_result(struct actmem_queue *queue, int fd)
{
	struct actmem_completion completion;
	uint64_t times;

	if (!is_readable(fd, 20000) || read(fd, &times, sizeof(times)) != sizeof(times))
		tap_bail("the eventfd cannot be read");
	if (actmem_queue_wait(queue, &completion, 1, 0) != 1)
		tap_bail("actmem_queue_wait");
	return completion.result;
}

static void test_descriptor(struct actmem_queue *queue, int fd)
{
	uint64_t times;

	ok(fd >= 0 && actmem_queue_eventfd(queue) == fd, "each call returns the same");
	ok(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFL) & O_NONBLOCK,
	   "it is close-on-exec and nonblocking");
	ok(read(fd, &times, sizeof(times)) < 0 && errno == EAGAIN && !is_readable(fd, 0),
	   "nothing has ended yet");
}

static int fill(struct actmem_queue *queue, const struct set *set, struct actmem_region *region,
		uint64_t slot)
{
	struct actmem_request request = { .size = sizeof(request), .cookie = slot };

	return actmem_queue_fill(queue, set->file, slot * BLOCK, region, slot * BLOCK, BLOCK,
				 &request);
}

/* Another thing that the program waits for: each fill is begun by what it tells. */
struct loop {
	struct actmem_queue *queue;
	struct actmem_region *region;
	const struct set *set;
	int own;
	unsigned int begun, ended, failed, told, other;
};

static void take(struct loop *loop)
{
	struct actmem_completion completions[3];
	const uint64_t one = 1;
	int count, i;

	while ((count = actmem_queue_wait(loop->queue, completions, 3, 0)) > 0)
		for (i = 0; i < count; i++) {
			loop->failed += !!completions[i].result;
			if (loop->begun++ < CHAIN)
				loop->failed += !!fill(loop->queue, loop->set, loop->region,
						       completions[i].cookie);
			if (++loop->ended % 50 == 0 && write(loop->own, &one, sizeof(one)) < 0)
				tap_bail("write: %s", strerror(errno));
		}
}

static void test_loop(struct actmem_queue *queue, struct actmem_region *region,
		      const struct set *set, int fd)
{
	struct loop loop = { queue, region, set, .begun = SLOTS };
	struct pollfd events[2] = { { .fd = fd, .events = POLLIN }, { .events = POLLIN } };
	char *memory = memory_or_bail(region), *wanted = malloc(SLOTS * BLOCK);
	uint64_t times;
	unsigned int i;

	pattern(wanted, SLOTS * BLOCK, 5);
	if (!set_transfer(set, wanted, 0, SLOTS * BLOCK, true))
		tap_bail("cannot write the file: %s", strerror(errno));
	memset(memory, 0, SLOTS * BLOCK);
	loop.own = eventfd(0, EFD_CLOEXEC);
	events[1].fd = loop.own;
	for (i = 0; i < SLOTS; i++)
		if (fill(queue, set, region, i))
			tap_bail("actmem_queue_fill");
	while (loop.ended < CHAIN || loop.other < CHAIN / 50) {
		if (poll(events, 2, 20000) <= 0)
			tap_bail("poll: %u of %d have ended", loop.ended, CHAIN);
		if (events[1].revents && read(loop.own, &times, sizeof(times)) > 0)
			loop.other += (unsigned int)times;
		if (!events[0].revents)
			continue;
		loop.told += read(fd, &times, sizeof(times)) == sizeof(times);
		take(&loop);
	}
	ok(loop.ended == CHAIN && !loop.failed && loop.told && loop.told <= CHAIN,
	   "a loop that waits for another thing, too, has %d fills, told %u times", CHAIN,
	   loop.told);
	ok(!memcmp(memory, wanted, SLOTS * BLOCK), "and every byte has come");
	/* What was told of after the last was taken. */
	if (is_readable(fd, 0) && read(fd, &times, sizeof(times)) < 0)
		tap_bail("read: %s", strerror(errno));
	close(loop.own);
	free(wanted);
	returns(actmem_region_unmap(region), 0);
}

/* Requests also end without a transfer: by a deadline, by a cancel. */
static void test_others(struct actmem_queue *queue, struct actmem_region *region,
			const struct set *set, int fd)
{
	struct actmem_request request = { .size = sizeof(request), .deadline_ns = 1 };
	int result;

	returns(actmem_queue_fill(queue, set->file, 0, region, 0, LENGTH, &request), 0);
	ok(told_result(queue, fd) == -ETIME, "it is told of a deadline");
	request.deadline_ns = 0;
	returns(actmem_queue_fill(queue, set->file, 0, region, 0, LENGTH, &request), 0);
	actmem_queue_cancel(queue, request.id);
	result = told_result(queue, fd);
	ok(!result || result == -ECANCELED, "and of what is cancelled (%d)", result);
	ok(!is_readable(fd, 20), "and then of nothing more");
}

static bool child_has_none(void *context)
{
	struct actmem_queue *queue = context;
	int fd = actmem_queue_eventfd(queue);

	return fd == -EOWNERDEAD;
}

/* Of a queue in which something has ended before. */
static void test_late(struct actmem *am, enum actmem_engine engine, struct actmem_region *region)
{
	struct actmem_queue *queue = queue_or_bail(am, engine, 0, 0);
	struct actmem_queue_stats stats = { .size = sizeof(stats) };
	struct set set = set_or_bail(queue, 1, 0, LENGTH);
	int fd;

	returns(actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN), 0);
	returns(actmem_queue_spill(queue, set.file, 0, region, 0, LENGTH, NULL), 0);
	while (!actmem_queue_get_stats(queue, &stats) && !stats.completions)
		usleep(1000);
	fd = actmem_queue_eventfd(queue);
	ok(!told_result(queue, fd), "of what had ended before it was made it tells at once");
	ok(in_child(child_has_none, queue), "a forked child has none of it");
	set_close(&set);
	returns(actmem_queue_detach(queue, region), 0);
	destroy_idle(queue);
	ok(fcntl(fd, F_GETFD) < 0, "it is closed with the queue");
	returns(actmem_queue_eventfd(NULL), -EINVAL);
}

static void test_engine(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_queue *queue = queue_or_bail(am, engine, BLOCK / 2, 4);
	struct actmem_region *region = region_or_bail(am, "eventfd");
	struct set set = set_or_bail(queue, 1, 0, LENGTH);
	int fd = actmem_queue_eventfd(queue);

	printf("# %s\n", actmem_queue_describe(queue));
	returns(actmem_queue_attach(queue, region, 0), 0);
	test_descriptor(queue, fd);
	test_loop(queue, region, &set, fd);
	test_others(queue, region, &set, fd);
	test_late(am, engine, region);
	set_close(&set);
	returns(actmem_queue_detach(queue, region), 0);
	destroy_idle(queue);
	returns(actmem_region_close(region), 0);
}

int main(void)
{
	return test_engines(test_engine);
}
