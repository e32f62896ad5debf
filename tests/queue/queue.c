/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A queue by each engine: fill and spill from and to files of one to four stripes;
 * what is refused; the end of a file; registered pages, which cannot be discarded; a
 * deadline; several threads; a forked child.
 */
#include <pthread.h>

#include "queue_test.h"

#define BLOCK	(256 * KIB)

/* Spilled, found in the files where it belongs, and filled again. */
static void test_stripes(struct actmem_queue *queue, struct actmem_region *region,
			 unsigned int count, uint64_t stripe_bytes)
{
	/* Neither whole blocks, nor whole stripes, nor the start of either. */
	uint64_t length = LENGTH - 3 * BLOCK - 4096, at = BLOCK + 4096, offset = 4096;
	struct set set = set_or_bail(queue, count, stripe_bytes, LENGTH + BLOCK);
	char *memory = memory_or_bail(region), *seen = malloc(length), *wanted = malloc(length);

	ok(set.info.length >= LENGTH + BLOCK, "%u files have the length asked for", count);
	ok(set.info.stripe_bytes == stripe_bytes, "and the stripes");
	pattern(wanted, length, count);
	memcpy(memory + offset, wanted, length);
	returns(spill_result(queue, set.file, at, region, offset, length), 0);
	ok(set_transfer(&set, seen, at, length, false) && !memcmp(seen, wanted, length),
	   "what is spilled is in %u files with stripes of %llu", count,
	   (unsigned long long)stripe_bytes);

	pattern(wanted, length, count + 100);
	ok(set_transfer(&set, wanted, at, length, true), "files written");
	memset(memory, 0, LENGTH);
	returns(fill_result(queue, set.file, at, region, offset, length), 0);
	ok(!memcmp(memory + offset, wanted, length), "what is filled is as in the files");
	ok(!memory[offset - 1] && !memory[offset + length], "and no more than that");
	free(seen);
	free(wanted);
	returns(actmem_region_unmap(region), 0);
	set_close(&set);
}

static void test_end_of_file(struct actmem_queue *queue, struct actmem_region *region)
{
	struct set set = set_or_bail(queue, 1, 0, 5 * BLOCK / 2);
	struct actmem_completion completion;

	returns(actmem_queue_fill(queue, set.file, 0, region, 0, 4 * BLOCK, NULL), 0);
	completion = wait_or_bail(queue);
	ok(completion.result == -ENODATA, "a fill past the end of a file fails (%d)",
	   completion.result);
	says("block 2");
	says(strrchr(set.paths[0], '/'));
	says("ends before");
	ok(completion.bytes <= 2 * BLOCK, "with no byte too many");
	/* In the middle of what direct I/O can read at once. */
	if (truncate(set.paths[0], (off_t)BLOCK + 100))
		tap_bail("truncate: %s", strerror(errno));
	returns(fill_result(queue, set.file, 0, region, 0, 2 * BLOCK), -ENODATA);
	says("block 1");
	returns(fill_result(queue, set.file, 0, region, 0, BLOCK), 0);
	set_close(&set);
}

static void test_refusals(struct actmem *am, struct actmem_queue *queue,
			  struct actmem_region *region)
{
	struct set set = set_or_bail(queue, 1, 0, LENGTH);
	struct actmem_queue *other = queue_or_bail(am, ACTMEM_ENGINE_WORKERS, 0, 0);
	struct actmem_region *stranger = region_or_bail(am, "stranger");
	struct actmem_completion completion;

	returns(actmem_queue_fill(queue, NULL, 0, region, 0, 4096, NULL), -EINVAL);
	returns(actmem_queue_fill(queue, set.file, 0, NULL, 0, 4096, NULL), -EINVAL);
	returns(actmem_queue_fill(NULL, set.file, 0, region, 0, 4096, NULL), -EINVAL);
	returns(actmem_queue_fill(queue, set.file, 0, region, 0, 0, NULL), -EINVAL);
	returns(actmem_queue_fill(queue, set.file, 0, region, LENGTH - 4096, 8192, NULL), -EINVAL);
	says("8192 bytes at 8384512");
	returns(actmem_queue_fill(queue, set.file, 0, stranger, 0, 4096, NULL), -EINVAL);
	says("attach");
	returns(actmem_queue_fill(other, set.file, 0, region, 0, 4096, NULL), -EINVAL);
	says("another queue");
	if (set.info.alignment > 1) {
		returns(actmem_queue_fill(queue, set.file, 100, region, 0, 4096, NULL), -EINVAL);
		says("multiples of");
		returns(actmem_queue_spill(queue, set.file, 0, region, 0, 100, NULL), -EINVAL);
		returns(actmem_queue_fill(queue, set.file, 0, region, 1, 4096, NULL), -EINVAL);
		says("in the region");
	}
	returns(actmem_queue_wait(queue, &completion, 0, 0), -EINVAL);
	returns(actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER), 0);
	returns(actmem_queue_cancel(queue, 12345), -ENOENT);
	returns(actmem_queue_attach(queue, region, 8), -EINVAL);
	returns(actmem_queue_detach(queue, stranger), -ENOENT);
	returns(actmem_queue_destroy(queue), -EBUSY);
	says("1 open files");
	returns(actmem_close(am), -EBUSY);
	returns(actmem_region_close(stranger), 0);
	set_close(&set);
	destroy_idle(other);
}

/* Returns true if the queue registers the memory of regions with io_uring. */
static bool registers(const struct actmem_queue *queue)
{
	const char *description = actmem_queue_describe(queue);

	return strstr(description, "io_uring") && !strstr(description, "without registered");
}

/* Of two queues, the last that lets go of it counts. */
static void test_close(struct actmem *am, struct actmem_queue *queue)
{
	struct actmem_queue *other = queue_or_bail(am, ACTMEM_ENGINE_WORKERS, 0, 0);
	struct set set = set_or_bail(queue, 1, 0, LENGTH);
	struct actmem_region *region = region_or_bail(am, "held");
	struct actmem_queue_stats stats = { .size = sizeof(stats) };

	returns(actmem_queue_attach(queue, region, 0), 0);
	returns(actmem_queue_attach(queue, region, 0), -EEXIST);
	returns(actmem_queue_get_stats(queue, &stats), 0);
	ok(stats.regions == 2 && stats.registered_bytes == (registers(queue) ? 2 * LENGTH : 0),
	   "it counts once, and so do its registered bytes");
	returns(actmem_queue_attach(other, region, ACTMEM_ATTACH_PLAIN), 0);
	returns(actmem_region_close(region), -EBUSY);
	says("attached to 2 queues");
	returns(actmem_queue_detach(other, region), 0);
	returns(actmem_region_close(region), -EBUSY);
	says("attached to 1 queue;");
	says("actmem_queue_detach()");
	returns(fill_result(queue, set.file, 0, region, 0, LENGTH), 0);
	returns(actmem_queue_detach(queue, region), 0);
	returns(actmem_region_close(region), 0);
	set_close(&set);
	destroy_idle(other);
}

static int open_with(struct actmem_queue *queue, const char *path, uint32_t flags,
		     uint64_t length, struct actmem_file **file)
{
	struct actmem_file_options options = {
		.size = sizeof(options), .paths = &path, .path_count = 1, .flags = flags,
		.length = length,
	};

	return actmem_file_open(queue, &options, file);
}

static void test_files(struct actmem_queue *queue, struct actmem_region *region)
{
	char path[PATH_MAX], directory[PATH_MAX];
	struct actmem_file *file;

	path_of(path, 1000);
	returns(open_with(queue, path, 0, 0, &file), -ENOENT);
	says(path);
	returns(open_with(queue, "", 0, 0, &file), -EINVAL);
	returns(open_with(queue, path, 1 << 9, 0, &file), -EINVAL);
	returns(open_with(queue, path, ACTMEM_FILE_CREATE | ACTMEM_FILE_READ_ONLY, 0, &file),
		-EINVAL);
	returns(open_with(queue, "/proc/self/maps", ACTMEM_FILE_READ_ONLY, 0, &file), -EINVAL);
	says("direct I/O");
	returns(open_with(queue, "/dev/null", ACTMEM_FILE_ALLOW_BUFFERED, 0, &file), -EINVAL);
	ok(open_with(queue, path, ACTMEM_FILE_CREATE | ACTMEM_FILE_ALLOW_BUFFERED, 1ULL << 60,
		     &file) < 0, "no file system has room for 1 EiB");
	says(path);
	ok(access(path, F_OK), "and nothing is left of the file");

	returns(open_with(queue, path, ACTMEM_FILE_CREATE | ACTMEM_FILE_ALLOW_BUFFERED, LENGTH,
			  &file), 0);
	returns(actmem_file_close(file), 0);
	returns(open_with(queue, path, ACTMEM_FILE_CREATE | ACTMEM_FILE_ALLOW_BUFFERED, 0, &file),
		-EEXIST);
	returns(open_with(queue, path, ACTMEM_FILE_READ_ONLY | ACTMEM_FILE_ALLOW_BUFFERED, 0,
			  &file), 0);
	returns(actmem_queue_spill(queue, file, 0, region, 0, 4096, NULL), -EBADF);
	returns(fill_result(queue, file, 0, region, 0, LENGTH), 0);
	returns(actmem_file_close(file), 0);
	unlink(path);

	strcpy(directory, path);
	returns(open_with(queue, dirname(directory),
			  ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_ALLOW_BUFFERED, LENGTH, &file), 0);
	returns(spill_result(queue, file, 0, region, 0, LENGTH), 0);
	returns(actmem_file_close(file), 0);
}

static void test_discard(struct actmem *am, struct actmem_queue *queue)
{
	struct actmem_region *region = region_or_bail(am, "discard");
	struct actmem_region_info info = { .size = sizeof(info) };
	uint64_t page_bytes;

	returns(actmem_region_get_info(region, &info), 0);
	page_bytes = info.page_bytes;
	returns(actmem_queue_attach(queue, region, 0), 0);
	if (registers(queue)) {
		/* Otherwise the ring would go on using pages that the region no longer has. */
		returns(actmem_region_discard(region, 0, page_bytes), -EBUSY);
		says("PLAIN");
	}
	returns(actmem_queue_detach(queue, region), 0);
	returns(actmem_region_discard(region, 0, page_bytes), 0);
	returns(actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN), 0);
	returns(actmem_region_discard(region, 0, page_bytes), 0);
	returns(actmem_queue_detach(queue, region), 0);
	returns(actmem_region_close(region), 0);
}

static void test_deadline(struct actmem_queue *queue, struct actmem_region *region)
{
	struct set set = set_or_bail(queue, 1, 0, LENGTH);
	struct actmem_completion completion;
	struct actmem_request request = { .size = sizeof(request), .cookie = 77, .deadline_ns = 1 };
	char *memory = memory_or_bail(region);

	memset(memory, 1, LENGTH);
	returns(actmem_queue_fill(queue, set.file, 0, region, 0, LENGTH, &request), 0);
	completion = wait_or_bail(queue);
	ok(completion.cookie == 77 && completion.id == request.id, "it is the request's completion");
	ok(completion.result == -ETIME && !completion.bytes, "a deadline that is past is ETIME");
	says("deadline");
	ok(all_bytes(memory, LENGTH, 1), "and nothing was begun");
	memset(memory, 2, LENGTH);
	request.deadline_ns = UINT64_MAX;
	returns(result_of(queue,
			  actmem_queue_spill(queue, set.file, 0, region, 0, LENGTH, &request)), 0);
	ok(memory[0] == 2 && memory[LENGTH - 1] == 2, "memory is left alone behind the deadline");
	returns(actmem_region_unmap(region), 0);
	set_close(&set);
}

struct user {
	struct actmem_queue *queue;
	struct actmem_file *file;
	struct actmem_region *region;
	uint64_t offset;
	unsigned int taken;
	bool failed;
};

#define USERS	4
#define TURNS	50

/* Takes as many completions as it makes requests, whosever they are. */
static void *use(void *argument)
{
	struct user *user = argument;
	struct actmem_completion completion;
	unsigned int i;

	for (i = 0; i < TURNS; i++) {
		int error = (i % 2 ? actmem_queue_fill : actmem_queue_spill)(
			user->queue, user->file, user->offset, user->region, user->offset,
			64 * KIB, NULL);

		if (error ||
		    actmem_queue_wait(user->queue, &completion, 1, ACTMEM_WAIT_FOREVER) != 1 ||
		    completion.result)
			user->failed = true;
		else
			user->taken++;
	}
	return NULL;
}

static void test_threads(struct actmem_queue *queue, struct actmem_region *region)
{
	struct set set = set_or_bail(queue, 2, 128 * KIB, LENGTH);
	struct user users[USERS];
	pthread_t threads[USERS];
	unsigned int i, taken = 0;
	bool failed = false;

	for (i = 0; i < USERS; i++) {
		users[i] = (struct user){ queue, set.file, region, i * MIB, 0, false };
		threads[i] = start_thread(use, &users[i]);
	}
	for (i = 0; i < USERS; i++) {
		pthread_join(threads[i], NULL);
		taken += users[i].taken;
		failed |= users[i].failed;
	}
	ok(!failed && taken == USERS * TURNS, "%u threads use a queue at once", USERS);
	set_close(&set);
}

struct inherited {
	struct actmem_queue *queue;
	struct actmem_file *file;
	struct actmem_region *region;
	const char *path;
};

/* Nor does the child keep the file or the ring alive. */
static bool has_no_descriptor_of(const char *path)
{
	char name[64], link[PATH_MAX];
	unsigned int same = 0;
	ssize_t length;
	int fd;

	for (fd = 3; fd < 256; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		length = readlink(name, link, sizeof(link) - 1);
		link[length > 0 ? length : 0] = '\0';
		if (strstr(link, "io_uring") || strstr(link, "eventfd"))
			return false;
		same += !strcmp(link, path);
	}
	/* The test's own. */
	return same == 1;
}

static bool child_is_refused(void *context)
{
	struct inherited *p = context;
	struct actmem_completion completion;
	struct actmem_queue_stats stats = { .size = sizeof(stats) };
	struct actmem_file_info info = { .size = sizeof(info) };

	return refused(actmem_queue_fill(p->queue, p->file, 0, p->region, 0, 4096, NULL)) &&
	       refused(actmem_queue_wait(p->queue, &completion, 1, 0)) &&
	       refused(actmem_queue_cancel(p->queue, 1)) &&
	       refused(actmem_queue_eventfd(p->queue)) &&
	       refused(actmem_queue_get_stats(p->queue, &stats)) &&
	       refused(actmem_file_get_info(p->file, &info)) &&
	       refused(actmem_file_close(p->file)) &&
	       refused(actmem_queue_attach(p->queue, p->region, 0)) &&
	       refused(actmem_queue_detach(p->queue, p->region)) &&
	       refused(actmem_queue_destroy(p->queue)) && has_no_descriptor_of(p->path);
}

static void test_fork(struct actmem_queue *queue, struct actmem_region *region)
{
	struct set set = set_or_bail(queue, 1, 0, LENGTH);
	struct inherited p = { queue, set.file, region, set.paths[0] };

	ok(in_child(child_is_refused, &p), "a forked child is refused, and holds nothing");
	returns(fill_result(queue, set.file, 0, region, 0, LENGTH), 0);
	set_close(&set);
}

/* A whole disk, if the machine has one to be overwritten, as those of the tests have. */
static void test_disk(struct actmem_queue *queue, struct actmem_region *region)
{
	const char *path = getenv("ACTMEM_TEST_DISK");
	struct actmem_file_info info = { .size = sizeof(info) };
	struct actmem_file *file;
	void *seen;
	int disk;

	if (!path) {
		printf("# ACTMEM_TEST_DISK names no disk\n");
		return;
	}
	disk = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (disk < 0 || posix_memalign(&seen, 4096, LENGTH))
		tap_bail("%s: %s", path, strerror(errno));
	returns(open_with(queue, path, 0, 0, &file), 0);
	returns(actmem_file_get_info(file, &info), 0);
	ok(info.direct && info.alignment >= 512, "a disk is used past the page cache");
	ok(info.length == (uint64_t)lseek(disk, 0, SEEK_END), "and has its length");
	pattern(memory_or_bail(region), LENGTH, 21);
	returns(spill_result(queue, file, LENGTH, region, 0, LENGTH), 0);
	ok(pread(disk, seen, LENGTH, LENGTH) == (ssize_t)LENGTH &&
	   !memcmp(seen, memory_or_bail(region), LENGTH), "what is spilled is on the disk");
	pattern(seen, LENGTH, 22);
	ok(pwrite(disk, seen, LENGTH, 0) == (ssize_t)LENGTH, "written by the test");
	returns(fill_result(queue, file, 0, region, 0, LENGTH), 0);
	ok(!memcmp(seen, memory_or_bail(region), LENGTH), "what is filled is as on the disk");
	returns(fill_result(queue, file, info.length - BLOCK, region, 0, 2 * BLOCK), -ENODATA);
	returns(spill_result(queue, file, info.length - BLOCK, region, 0, 2 * BLOCK), -ENOSPC);
	says("block 1");
	returns(open_with(queue, path, 0, info.length + 4096, &file), -ENOSPC);
	returns(actmem_file_close(file), 0);
	returns(actmem_region_unmap(region), 0);
	returns(actmem_region_unmap(region), 0);
	returns(actmem_region_unmap(region), 0);
	close(disk);
	free(seen);
}

static void test_engine(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_queue *queue = queue_or_bail(am, engine, BLOCK, 8);
	struct actmem_region *region = region_or_bail(am, "queue");
	unsigned int count;

	printf("# %s\n", actmem_queue_describe(queue));
	ok(!strncmp(actmem_queue_describe(queue), engine_names[engine],
		    strlen(engine_names[engine])), "the queue says what it works with");
	returns(actmem_queue_attach(queue, region, 0), 0);
	printf("# %s\n", actmem_queue_describe(queue));
	for (count = 1; count <= PATHS_MAX; count++)
		test_stripes(queue, region, count, count % 2 ? 64 * KIB : 3 * 4096 * 97);
	test_end_of_file(queue, region);
	test_refusals(am, queue, region);
	test_close(am, queue);
	test_files(queue, region);
	test_discard(am, queue);
	test_deadline(queue, region);
	test_threads(queue, region);
	test_fork(queue, region);
	test_disk(queue, region);
	returns(actmem_queue_detach(queue, region), 0);
	returns(actmem_region_close(region), 0);
	destroy_idle(queue);
}

int main(void)
{
	return test_engines(test_engine);
}
