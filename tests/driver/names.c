// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Regions with names: files of a mounted file system, made in two steps, that
 * outlive their processes and go when they have been removed and nobody uses
 * them any more.
 */
#include "names_test.h"

#include <pthread.h>
#include <sys/inotify.h>

#define PAGES	3
#define LENGTH	(PAGES * PAGE_BYTES)
#define NAME	AT "/region"

static int info_state(int fd, const char *name, uint32_t state)
{
	struct actmem_ioctl_info now;

	CHECK(!info(fd, 0, &now));
	CHECK(!strcmp(name, now.name));
	CHECK(now.state == state);
	return 0;
}

TEST_F(names, an_empty_file_has_no_region)
{
	struct actmem_ioctl_range all = range_of(0, 1);
	struct actmem_ioctl_info now;
	int fd = must(make_file(NAME));
	struct stat status;
	char byte;

	EXPECT_EQ(0, regions());
	EXPECT_ERRNO(ENODATA, map(fd, 1));
	EXPECT_EQ(-ENODATA, info(fd, 0, &now));
	EXPECT_EQ(-ENODATA, call(fd, ACTMEM_IOC_POPULATE, &all));
	EXPECT_EQ(-ENODATA, call(fd, ACTMEM_IOC_DISCARD, &all));
	EXPECT_EQ(0, read(fd, &byte, 1));
	EXPECT_ERRNO(EINVAL, write(fd, "", 1));
	ASSERT_EQ(0, fstat(fd, &status));
	EXPECT_EQ(0, status.st_size);
	EXPECT_EQ(0, status.st_blocks);
	EXPECT_EQ((blksize_t)PAGE_BYTES, status.st_blksize);
	/* Empty it is, so that it can be truncated to that. */
	EXPECT_EQ(0, ftruncate(fd, 0));
	EXPECT_EQ(0, close(open(NAME, O_RDWR | O_TRUNC)));
	close(fd);
}

static long long nanoseconds(const struct timespec *time)
{
	return time->tv_sec * 1000000000LL + time->tv_nsec;
}

TEST_F(names, times_are_those_of_the_clock)
{
	struct timespec before, after;
	struct stat directory, file;
	int fd;

	/* So that the mount is older, by the coarse clock that files have their times from. */
	usleep(20000);
	ASSERT_EQ(0, clock_gettime(CLOCK_REALTIME_COARSE, &before));
	fd = must(make_file(NAME));
	ASSERT_EQ(0, clock_gettime(CLOCK_REALTIME, &after));
	ASSERT_EQ(0, fstat(fd, &file));
	EXPECT_LE(nanoseconds(&before), nanoseconds(&file.st_mtim));
	EXPECT_GE(nanoseconds(&after), nanoseconds(&file.st_mtim));
	EXPECT_EQ(nanoseconds(&file.st_mtim), nanoseconds(&file.st_ctim));
	EXPECT_EQ(nanoseconds(&file.st_mtim), nanoseconds(&file.st_atim));
	ASSERT_EQ(0, stat(AT, &directory));
	EXPECT_LE(nanoseconds(&file.st_mtim), nanoseconds(&directory.st_mtim));
	EXPECT_EQ(nanoseconds(&directory.st_mtim), nanoseconds(&directory.st_ctim));
	EXPECT_GT(nanoseconds(&before), nanoseconds(&directory.st_atim));
	close(fd);
}

TEST_F(names, a_length_is_given_once)
{
	int fd = must(make_file(NAME));
	struct stat status;

	EXPECT_ERRNO(EINVAL, ftruncate(fd, PAGE_BYTES / 2));
	EXPECT_ERRNO(EFBIG, ftruncate(fd, 1L << 60));
	EXPECT_EQ(0, regions());
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	EXPECT_EQ(1, regions());
	EXPECT_EQ(0, ftruncate(fd, LENGTH));
	EXPECT_ERRNO(EPERM, ftruncate(fd, LENGTH - PAGE_BYTES));
	EXPECT_ERRNO(EPERM, ftruncate(fd, LENGTH + PAGE_BYTES));
	EXPECT_ERRNO(EPERM, ftruncate(fd, 0));
	EXPECT_ERRNO(EPERM, open(NAME, O_RDWR | O_TRUNC));
	ASSERT_EQ(0, fstat(fd, &status));
	EXPECT_EQ((off_t)LENGTH, status.st_size);
	EXPECT_EQ(0, status.st_blocks);
	EXPECT_EQ(0, pages_used(AT));
	EXPECT_EQ(0, info_state(fd, "region", ACTMEM_INFO_NAMED));
	close(fd);
}

TEST_F(names, is_mapped_by_huge_pages)
{
	int fd = make_named(NAME, PAGES);
	char *memory = mapped(map_and_touch(fd, PAGES));

	EXPECT_EQ(LENGTH, pmd_mapped(memory, LENGTH));
	EXPECT_EQ(PAGES, pages_allocated(fd));
	EXPECT_EQ(PAGES, pages_used(AT));
	EXPECT_EQ(0, munmap(memory, LENGTH));
	close(fd);
}

TEST_F(names, the_create_call_says_how)
{
	struct actmem_ioctl_create arg = region_on(PAGES, ACTMEM_POLICY_BIND, 1), wrong;
	struct actmem_ioctl_info now;
	int fd = must(make_file(NAME)), reader = open(NAME, O_RDONLY | O_CLOEXEC);

	arg.flags = ACTMEM_CREATE_INHERIT;
	EXPECT_EQ(-EBADF, call(reader, ACTMEM_IOC_CREATE, &arg));
	wrong = arg;
	wrong.name[0] = 'a';
	EXPECT_EQ(-EINVAL, call(fd, ACTMEM_IOC_CREATE, &wrong));
	wrong = arg;
	wrong.length++;
	EXPECT_EQ(-EINVAL, call(fd, ACTMEM_IOC_CREATE, &wrong));
	EXPECT_EQ(0, wrong.id);
	EXPECT_EQ(0, regions());

	ASSERT_EQ(0, call(fd, ACTMEM_IOC_CREATE, &arg));
	EXPECT_EQ(-1, arg.fd);
	EXPECT_EQ(0, *arg.name);
	EXPECT_EQ(0, pages_allocated(fd));
	EXPECT_EQ(0, populate(fd, 0, PAGES));
	EXPECT_EQ(PAGES, pages_allocated(fd));
	ASSERT_EQ(0, info(reader, 0, &now));
	EXPECT_EQ(arg.id, now.id);
	EXPECT_EQ(ACTMEM_POLICY_BIND, now.policy);
	EXPECT_EQ(1, now.nodes[0]);
	EXPECT_EQ(ACTMEM_INFO_NAMED | ACTMEM_INFO_INHERIT, now.state);
	EXPECT_EQ(-EEXIST, call(fd, ACTMEM_IOC_CREATE, &arg));
	close(reader);
	close(fd);
	fd = create_pages(self->device, 1);
	EXPECT_EQ(-ENOTTY, call(fd, ACTMEM_IOC_CREATE, &arg));
	close(fd);
}

/* Whoever is killed leaves what it wrote. */
static int write_and_die(int device)
{
	int fd = make_named(NAME, PAGES);
	char *memory = map_and_touch(fd, 2);

	if (memory == MAP_FAILED)
		return 1;
	memset(memory, 0x5a, 2 * PAGE_BYTES);
	raise(SIGKILL);
	return 1;
}

TEST_F(names, outlives_its_process)
{
	struct actmem_ioctl_info before, after;
	pid_t child = start_child(0, write_and_die, self->device);
	uint64_t id;
	char *memory;
	int fd, status;
	size_t i;

	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status));
	ASSERT_EQ(1, list(self->device, &id, 1));
	ASSERT_EQ(0, info(self->device, id, &before));
	EXPECT_EQ(0, before.pid);
	EXPECT_EQ(0, before.mapped_bytes);
	EXPECT_EQ(2 * PAGE_BYTES, before.allocated_bytes);
	fd = open(NAME, O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, fd);
	memory = mapped(map(fd, PAGES));
	for (i = 0; i < 2 * PAGE_BYTES; i++)
		if (memory[i] != 0x5a)
			break;
	EXPECT_EQ(2 * PAGE_BYTES, i);
	ASSERT_EQ(0, info(fd, 0, &after));
	EXPECT_EQ(id, after.id);
	EXPECT_EQ(before.allocated_bytes, after.allocated_bytes);
	EXPECT_EQ(before.demand_faults, after.demand_faults);
	munmap(memory, LENGTH);
	close(fd);
}

TEST_F(names, goes_with_its_last_user)
{
	int fd = make_named(NAME, PAGES);
	char *memory = mapped(map_and_touch(fd, PAGES));

	ASSERT_EQ(0, unlink(NAME));
	EXPECT_EQ(-1, open(NAME, O_RDWR));
	EXPECT_EQ(1, regions());
	close(fd);
	EXPECT_EQ(PAGES, pages_used(AT));
	EXPECT_EQ(1, memory[0]);
	EXPECT_EQ(-EBUSY, unmount(AT));
	munmap(memory, LENGTH);
	EXPECT_EQ(0, pages_used(AT));
	EXPECT_EQ(0, regions());
}

TEST_F(names, goes_with_its_name)
{
	int fd = make_named(NAME, PAGES);

	ASSERT_EQ(0, mkdir(AT "/directory", 0777));
	ASSERT_EQ(0, info_state(fd, "region", ACTMEM_INFO_NAMED));
	EXPECT_ERRNO(EPERM, link(NAME, AT "/directory/link"));
	EXPECT_ERRNO(EPERM, symlink("region", AT "/symbol"));
	ASSERT_EQ(0, rename(NAME, AT "/directory/renamed"));
	EXPECT_EQ(0, info_state(fd, "renamed", ACTMEM_INFO_NAMED));
	close(fd);
	EXPECT_EQ(1, regions());
	fd = open(AT "/directory/renamed", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, fd);
	EXPECT_ERRNO(ENOTEMPTY, rmdir(AT "/directory"));
	ASSERT_EQ(0, unlink(AT "/directory/renamed"));
	ASSERT_EQ(0, rmdir(AT "/directory"));
	EXPECT_EQ(1, regions());
	close(fd);
	EXPECT_EQ(0, regions());
}

TEST_F(names, changes_places_with_another)
{
	int one = make_named(AT "/one", 1), two = make_named(AT "/two", 2);

	ASSERT_EQ(0, renameat2(AT_FDCWD, AT "/one", AT_FDCWD, AT "/two", RENAME_EXCHANGE));
	EXPECT_EQ(0, info_state(one, "two", ACTMEM_INFO_NAMED));
	EXPECT_EQ(0, info_state(two, "one", ACTMEM_INFO_NAMED));
	close(one);
	close(two);
	/* A file that is renamed over is gone. */
	ASSERT_EQ(0, rename(AT "/one", AT "/two"));
	EXPECT_EQ(1, regions());
}

TEST_F(names, can_come_without_a_name)
{
	int fd = open(AT, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[32];

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	EXPECT_EQ(0, info_state(fd, "", ACTMEM_INFO_NAMED));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ASSERT_EQ(0, linkat(AT_FDCWD, path, AT_FDCWD, NAME, AT_SYMLINK_FOLLOW));
	EXPECT_EQ(0, info_state(fd, "region", ACTMEM_INFO_NAMED));
	EXPECT_ERRNO(EPERM, linkat(AT_FDCWD, path, AT_FDCWD, AT "/again", AT_SYMLINK_FOLLOW));
	close(fd);
	EXPECT_EQ(1, regions());
	fd = open(AT, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	EXPECT_EQ(2, regions());
	close(fd);
	EXPECT_EQ(1, regions());
}

TEST_F(names, can_come_before_the_length)
{
	int fd = open(AT, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[32];

	ASSERT_LE(0, fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ASSERT_EQ(0, linkat(AT_FDCWD, path, AT_FDCWD, NAME, AT_SYMLINK_FOLLOW));
	ASSERT_EQ(0, ftruncate(fd, LENGTH));
	EXPECT_EQ(0, info_state(fd, "region", ACTMEM_INFO_NAMED));
	close(fd);
}

TEST_F(names, a_name_can_be_shown)
{
	char path[sizeof(AT) + ACTMEM_NAME_BYTES + 1] = AT "/";
	int fd;

	memset(path + sizeof(AT), 'n', ACTMEM_NAME_BYTES);
	EXPECT_EQ(-ENAMETOOLONG, make_file(path));
	path[sizeof(AT) + ACTMEM_NAME_BYTES - 1] = '\0';
	fd = must(make_named(path, 1));
	EXPECT_EQ(0, info_state(fd, path + sizeof(AT), ACTMEM_INFO_NAMED));
	EXPECT_EQ(ACTMEM_NAME_BYTES - 1, fpathconf(fd, _PC_NAME_MAX));
	EXPECT_ERRNO(EINVAL, rename(path, AT "/a\nb"));
	EXPECT_EQ(-EINVAL, make_file(AT "/\033[2J"));
	close(fd);
}

/* One of those who race for the same file. */
struct racer {
	pthread_t thread;
	pthread_barrier_t *barrier;
	int fd;
	int pages;
	int err;
};

static void *give_length(void *context)
{
	struct racer *racer = context;
	struct actmem_ioctl_create arg = region_of(racer->pages);

	pthread_barrier_wait(racer->barrier);
	if (racer->pages % 2)
		racer->err = call(racer->fd, ACTMEM_IOC_CREATE, &arg);
	else
		racer->err = ftruncate(racer->fd, arg.length) ? -errno : 0;
	return NULL;
}

TEST_F(names, one_of_many_gives_the_length)
{
	struct racer racers[4] = {};
	pthread_barrier_t barrier;
	int round, i, fd, won, pages;
	struct stat status;

	ASSERT_EQ(0, pthread_barrier_init(&barrier, NULL, 4));
	for (round = 0; round < 30; round++) {
		fd = must(make_file(NAME));
		for (i = 0; i < 4; i++) {
			racers[i].barrier = &barrier;
			racers[i].fd = fd;
			racers[i].pages = i + 1;
			ASSERT_EQ(0, pthread_create(&racers[i].thread, NULL, give_length,
						    &racers[i]));
		}
		for (i = 0, won = 0, pages = 0; i < 4; i++) {
			ASSERT_EQ(0, pthread_join(racers[i].thread, NULL));
			won += !racers[i].err;
			pages += racers[i].err ? 0 : racers[i].pages;
			EXPECT_TRUE(!racers[i].err || racers[i].err == (i % 2 ? -EPERM : -EEXIST));
		}
		ASSERT_EQ(1, won);
		ASSERT_EQ(0, fstat(fd, &status));
		ASSERT_EQ((off_t)(pages * PAGE_BYTES), status.st_size);
		ASSERT_EQ(1, regions());
		close(fd);
		ASSERT_EQ(0, unlink(NAME));
	}
}

/* A watcher is not in the way of the unmounting. */
TEST_F(names, can_be_watched)
{
	int watcher = inotify_init1(IN_CLOEXEC), fd = must(make_named(NAME, 1));

	ASSERT_LE(0, inotify_add_watch(watcher, NAME, IN_ALL_EVENTS));
	close(fd);
	EXPECT_EQ(0, unmount(AT));
	EXPECT_EQ(0, regions());
	close(watcher);
	ASSERT_EQ(0, mount_names(AT, LIMIT_OPTION));
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
