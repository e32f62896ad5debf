/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A queue by each engine, on disks that fail at a block or altogether, are full, are
 * slow or do not answer: the request is told where, the others end well, nothing
 * hangs, and it all goes on when the disk does.
 */
#include <sys/stat.h>

#include "base/clock.h"
#include "disk.h"
#include "../../queue/queue_test.h"

#define BLOCK		(64 * KIB)
#define BLOCKS		8
#define SPAN		(BLOCKS * BLOCK)
#define BAD		5		/* block */
#define DEPTH		3
#define DISK_BYTES	(32 * MIB)
#define FOLDER		"/tmp/disk"
#define FILE_PATH	FOLDER "/file"

struct setup {
	struct actmem *am;
	struct actmem_queue *queue;
	struct actmem_region *region;
	struct actmem_file *file;
	struct disk disk;
	char *memory;
};

static struct actmem_file *open_file(struct setup *s, const char *path, uint32_t flags,
				     uint64_t length)
{
	struct actmem_file_options options = {
		.size = sizeof(options), .paths = &path, .path_count = 1, .flags = flags, .length = length,
	};
	struct actmem_file *file;

	if (actmem_file_open(s->queue, &options, &file))
		tap_bail("actmem_file_open");
	return file;
}

/* Of as many requests as there are blocks: a bit for each that ended with @result. */
static unsigned int ended_with(const struct actmem_completion completions[BLOCKS], int result)
{
	unsigned int bits = 0, i;

	for (i = 0; i < BLOCKS; i++)
		if (completions[i].result == result)
			bits |= 1u << i;
	return bits;
}

/* A request for each block, the memory as it is in the file. */
static void begin_each(struct setup *s, bool fills, uint64_t deadline,
		       uint64_t ids[BLOCKS])
{
	struct actmem_request request;
	uint64_t i, at;
	int error;

	for (i = 0; i < BLOCKS; i++) {
		ACTMEM_INIT(&request);
		request.cookie = i;
		request.deadline_ns = deadline;
		at = i * BLOCK;
		error = (fills ? actmem_queue_fill : actmem_queue_spill)(
			s->queue, s->file, at, s->region, at, BLOCK, &request);
		if (error)
			tap_bail("a request is refused");
		ids[i] = request.id;
	}
}

static void take_each(struct setup *s, struct actmem_completion completions[BLOCKS])
{
	struct actmem_completion one;
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		one = wait_or_bail(s->queue);
		completions[one.cookie] = one;
		if (one.result)
			printf("# block %llu: %s\n", (unsigned long long)one.cookie, actmem_error());
	}
}

static void transfer_each(struct setup *s, bool fills, struct actmem_completion completions[BLOCKS])
{
	uint64_t ids[BLOCKS];

	begin_each(s, fills, 0, ids);
	take_each(s, completions);
}

static int transfer(struct setup *s, bool fills)
{
	return result_of(s->queue, fills ?
			 actmem_queue_fill(s->queue, s->file, 0, s->region, 0, SPAN, NULL) :
			 actmem_queue_spill(s->queue, s->file, 0, s->region, 0, SPAN, NULL));
}

static bool holds(const char *memory, uint64_t at, uint64_t bytes, uint64_t seed)
{
	char *wanted = malloc(SPAN);
	bool same;

	pattern(wanted, SPAN, seed);
	same = !memcmp(memory + at, wanted + at, bytes);
	free(wanted);
	return same;
}

/* All blocks but the bad one are as they were written. */
static bool holds_others(const char *memory, uint64_t seed)
{
	return holds(memory, 0, BAD * BLOCK, seed) &&
	       holds(memory, (BAD + 1) * BLOCK, SPAN - (BAD + 1) * BLOCK, seed);
}

static void write_down(struct setup *s, uint64_t seed)
{
	pattern(s->memory, SPAN, seed);
	returns(transfer(s, false), 0);
	memset(s->memory, 0, SPAN);
}

/* The disk below @s->file fails at @place, which is within the bad block. */
static void test_bad_block(struct setup *s, const char *path, uint64_t place)
{
	struct actmem_completion completions[BLOCKS];
	char words[128];

	snprintf(words, sizeof(words), "block %d, %llu bytes at %llu of '%s'", BAD, BLOCK,
		 BAD * BLOCK, path);
	disk_break(&s->disk, place, 4096);
	transfer_each(s, true, completions);
	ok(ended_with(completions, -EIO) == 1u << BAD &&
	   ended_with(completions, 0) == (0xffu ^ 1u << BAD),
	   "of requests for a block each the one of the bad block fails");
	ok(holds_others(s->memory, 1), "and the others have their bytes");
	returns(transfer(s, true), -EIO);
	says(words);
	says("fill");

	pattern(s->memory, SPAN, 2);
	transfer_each(s, false, completions);
	ok(ended_with(completions, -EIO) == 1u << BAD &&
	   ended_with(completions, 0) == (0xffu ^ 1u << BAD),
	   "likewise when they are written");
	returns(transfer(s, false), -EIO);
	says(words);
	says("spill");
	disk_work(&s->disk);
	memset(s->memory, 0, SPAN);
	returns(transfer(s, true), 0);
	ok(holds_others(s->memory, 2), "the disk works again: what was written is there");
	write_down(s, 3);
	returns(transfer(s, true), 0);
	ok(holds(s->memory, 0, SPAN, 3), "and the bad block can be used");
}

static void test_raw(struct setup *s)
{
	s->file = open_file(s, s->disk.path, 0, 0);
	write_down(s, 1);
	test_bad_block(s, s->disk.path, BAD * BLOCK + 8192);
	returns(actmem_file_close(s->file), 0);
}

static bool file_holds(uint64_t seed)
{
	char *seen = malloc(SPAN);
	int fd = open(FILE_PATH, O_RDONLY | O_CLOEXEC);
	bool same = fd >= 0 && pread(fd, seen, SPAN, 0) == (ssize_t)SPAN &&
		    holds(seen, 0, SPAN, seed);

	close(fd);
	free(seen);
	return same;
}

static void test_file(struct setup *s)
{
	struct actmem_completion completions[BLOCKS];
	uint64_t place;
	int fd;

	disk_format(&s->disk, FOLDER);
	s->file = open_file(s, FILE_PATH, ACTMEM_FILE_CREATE, SPAN);
	write_down(s, 1);
	fd = open(FILE_PATH, O_RDONLY | O_CLOEXEC);
	place = disk_place_of(fd, BAD * BLOCK + 8192);
	close(fd);
	test_bad_block(s, FILE_PATH, place);

	sync();
	disk_fail(&s->disk);
	transfer_each(s, true, completions);
	ok(ended_with(completions, -EIO) == 0xff, "a disk that is gone fails them all");
	returns(transfer(s, false), -EIO);
	returns(actmem_file_close(s->file), 0);
	disk_unmount(FOLDER);
	disk_work(&s->disk);
	disk_mount(&s->disk, FOLDER);
	ok(file_holds(3), "when it is back, it can be mounted, and has what was written");

	s->file = open_file(s, FILE_PATH, 0, 0);
	if (truncate(FILE_PATH, 3 * BLOCK + BLOCK / 2))
		tap_bail("truncate: %s", strerror(errno));
	transfer_each(s, true, completions);
	ok(ended_with(completions, 0) == 0x7 && ended_with(completions, -ENODATA) == 0xf8,
	   "a file that became shorter is ENODATA where it ends");
	ok(holds(s->memory, 0, 3 * BLOCK, 3), "and has its bytes before that");
	returns(actmem_file_close(s->file), 0);
	disk_unmount(FOLDER);
}

static void test_full(struct setup *s)
{
	const char *path = FILE_PATH;
	struct actmem_file_options options = {
		.size = sizeof(options), .paths = &path, .path_count = 1,
		.flags = ACTMEM_FILE_CREATE, .length = DISK_BYTES,
	};
	struct actmem_completion completion;
	unsigned int well = 0, full = 0;
	uint64_t before, i;

	disk_format(&s->disk, FOLDER);
	before = disk_free_bytes(FOLDER);
	returns(actmem_file_open(s->queue, &options, &s->file), -ENOSPC);
	says(FILE_PATH);
	ok(access(FILE_PATH, F_OK) && disk_free_bytes(FOLDER) == before,
	   "what does not fit leaves nothing behind");
	options.length = before / 4 * 3 / BLOCK * BLOCK;
	for (i = 0; i < 2; i++) {
		returns(actmem_file_open(s->queue, &options, &s->file), 0);
		returns(actmem_file_close(s->file), 0);
		options.flags = 0;
	}
	ok(disk_free_bytes(FOLDER) < options.length, "what exists already needs no room");
	unlink(FILE_PATH);
	/* The ring may keep its room for a moment. */
	disk_unmount(FOLDER);
	disk_mount(&s->disk, FOLDER);
	options.flags = ACTMEM_FILE_CREATE;
	options.length = 0;
	returns(actmem_file_open(s->queue, &options, &s->file), 0);
	for (i = 0; i * LENGTH < DISK_BYTES; i++) {
		if (actmem_queue_spill(s->queue, s->file, i * LENGTH, s->region, 0, LENGTH, NULL))
			tap_bail("a request is refused");
	}
	while (i--) {
		completion = wait_or_bail(s->queue);
		well += !completion.result;
		full += completion.result == -ENOSPC && strstr(actmem_error(), "free space there") &&
			strstr(actmem_error(), FILE_PATH);
	}
	ok(well && full && well + full == DISK_BYTES / LENGTH,
	   "%u requests fit, %u are told that the disk is full", well, full);
	returns(transfer(s, true), 0);
	returns(actmem_file_close(s->file), 0);
	unlink(FILE_PATH);
	disk_unmount(FOLDER);
	disk_mount(&s->disk, FOLDER);
	ok(disk_free_bytes(FOLDER) == before, "and all room is back without the file");
	disk_unmount(FOLDER);
}

/*
 * Of a disk that does a few blocks at a time and takes half a second for each: the
 * last ones are not begun before they are to end, and those that are end well.
 */
static void test_slow(struct setup *s)
{
	struct actmem_completion completions[BLOCKS];
	uint64_t ids[BLOCKS];
	unsigned int well, i;

	s->file = open_file(s, s->disk.path, 0, 0);
	write_down(s, 1);
	disk_delay(&s->disk, 500);
	begin_each(s, true, clock_ns() + 100000000, ids);
	take_each(s, completions);
	well = ended_with(completions, 0);
	ok((well | ended_with(completions, -ETIME)) == 0xff &&
	   completions[BLOCKS - 1].result == -ETIME,
	   "on a slow disk a deadline ends what is not begun (%#x ended well)", well);
	for (i = 0; i < BLOCKS; i++)
		if (well & 1u << i && !holds(s->memory, i * BLOCK, BLOCK, 1))
			tap_bail("block %u ended well without its bytes", i);

	memset(s->memory, 0, SPAN);
	begin_each(s, true, 0, ids);
	for (i = 0; i < BLOCKS; i++)
		if (actmem_queue_cancel(s->queue, ids[i]))
			tap_bail("a request under way cannot be cancelled");
	take_each(s, completions);
	well = ended_with(completions, 0);
	ok((well | ended_with(completions, -ECANCELED)) == 0xff &&
	   completions[BLOCKS - 1].result == -ECANCELED && !completions[BLOCKS - 1].bytes,
	   "and so does cancelling (%#x ended well)", well);
	ok(all_bytes(s->memory + (BLOCKS - 1) * BLOCK, BLOCK, 0),
	   "what is not begun leaves the memory as it was");
	disk_work(&s->disk);
	returns(actmem_file_close(s->file), 0);
}

/* A disk that does not answer holds up neither another one nor the caller. */
static void test_silent(struct setup *s)
{
	struct disk other = disk_make("actmem-other", 512 * MIB, DISK_BYTES);
	struct actmem_completion completions[BLOCKS], one;
	struct actmem_file *good = open_file(s, other.path, 0, 0);
	uint64_t ids[BLOCKS];

	s->file = open_file(s, s->disk.path, 0, 0);
	write_down(s, 1);
	disk_suspend(&s->disk);
	begin_each(s, true, 0, ids);
	returns(actmem_queue_spill(s->queue, good, 0, s->region, SPAN, SPAN,
				   &(struct actmem_request){ .size = sizeof(struct actmem_request),
							     .cookie = 100 }), 0);
	one = wait_or_bail(s->queue);
	ok(one.cookie == 100 && !one.result, "while a disk does not answer, another one does");
	returns(actmem_queue_wait(s->queue, &one, 1, 1000000), -ETIMEDOUT);
	returns(actmem_queue_cancel(s->queue, ids[BLOCKS - 1]), 0);
	one = wait_or_bail(s->queue);
	ok(one.cookie == BLOCKS - 1 && one.result == -ECANCELED,
	   "and what it has not begun can be cancelled");
	returns(actmem_file_close(s->file), -EBUSY);
	disk_work(&s->disk);
	completions[BLOCKS - 1] = one;
	while ((unsigned int)actmem_queue_wait(s->queue, &one, 1, ACTMEM_WAIT_FOREVER) == 1)
		completions[one.cookie] = one;
	ok(ended_with(completions, 0) == 0x7f && holds(s->memory, 0, SPAN - BLOCK, 1),
	   "when it answers, all the others end well");
	returns(actmem_file_close(s->file), 0);
	returns(actmem_file_close(good), 0);
	disk_remove(&other);
}

static void test_engine(struct actmem *am, enum actmem_engine engine)
{
	struct setup s = { .am = am };

	s.queue = queue_or_bail(am, engine, BLOCK, DEPTH);
	s.region = region_or_bail(am, "faults");
	s.memory = memory_or_bail(s.region);
	s.disk = disk_make("actmem-bad", 0, DISK_BYTES);
	returns(actmem_queue_attach(s.queue, s.region, 0), 0);
	printf("# %s\n", actmem_queue_describe(s.queue));
	test_raw(&s);
	test_file(&s);
	test_full(&s);
	test_slow(&s);
	test_silent(&s);
	disk_remove(&s.disk);
	returns(actmem_queue_detach(s.queue, s.region), 0);
	returns(actmem_region_close(s.region), 0);
	destroy_idle(s.queue);
}

static void test_both(struct actmem *am)
{
	test_engine(am, ACTMEM_ENGINE_URING);
	test_engine(am, ACTMEM_ENGINE_WORKERS);
}

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return written;
}

/* As the administrator does; what seccomp does is in queue_refused. */
static void test_refused(struct actmem *am)
{
	struct actmem_queue_options options;
	struct actmem_queue *queue;

	if (!put("/proc/sys/kernel/io_uring_disabled", "2")) {
		printf("# this kernel has no io_uring_disabled\n");
		return;
	}
	ACTMEM_INIT(&options);
	options.engine = ACTMEM_ENGINE_URING;
	returns(actmem_queue_create(am, &options, &queue), -EPERM);
	says("kernel.io_uring_disabled is 2");
	returns(actmem_queue_create(am, NULL, &queue), 0);
	ok(strstr(actmem_queue_describe(queue), "workers: io_uring is unavailable") &&
	   strstr(actmem_queue_describe(queue), "kernel.io_uring_disabled"),
	   "a queue works without it, and says so (%s)", actmem_queue_describe(queue));
	destroy_idle(queue);
	ok(put("/proc/sys/kernel/io_uring_disabled", "0"), "permitted again");
}

int main(void)
{
	return RUN_TESTS(test_both, test_refused);
}
