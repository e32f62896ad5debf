// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A program lets userfaultfd suspend the driver while the driver writes the answer of
 * ACTMEM_IOC_CREATE. Meanwhile, other tenants of the mount use the file and its folder. They
 * must not wait, and the suspended call must not undo the changes that they make.
 */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>

#include "names_test.h"

#define PAGES		3
#define SMALL		4096
#define NAME		AT "/region"
#define OTHER_NAME	AT "/other"
/* How long another tenant may take; it needs milliseconds. */
#define PATIENCE_MS	20000

/* A call whose answer userfaultfd suspends. */
struct slow_call {
	int file;
	int faults;
	struct actmem_ioctl_create *arg;
	pthread_t thread;
	int err;
};

static bool has_userfaultfd(void)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 && errno == ENOSYS)
		return false;
	must(fd < 0 ? -errno : 0);
	close(fd);
	return true;
}

static void *create_slowly(void *context)
{
	struct slow_call *slow = context;

	slow->err = call(slow->file, ACTMEM_IOC_CREATE, slow->arg);
	return NULL;
}

static void protect(const struct slow_call *slow, bool on)
{
	struct uffdio_writeprotect range = {
		.range = { (uintptr_t)slow->arg, SMALL },
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	must(call(slow->faults, UFFDIO_WRITEPROTECT, &range));
}

/* Starts the call for a new file, and returns when the driver has begun to write the answer. */
static void begin(struct slow_call *slow)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_WP };
	struct pollfd event = { .events = POLLIN };
	struct uffd_msg message;

	slow->file = must(make_file(NAME));
	slow->arg = mapped(mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				-1, 0));
	*slow->arg = region_of(PAGES);
	slow->faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	must(slow->faults < 0 ? -errno : 0);
	must(call(slow->faults, UFFDIO_API, &api));
	range.range.start = (uintptr_t)slow->arg;
	range.range.len = SMALL;
	must(call(slow->faults, UFFDIO_REGISTER, &range));
	protect(slow, true);
	must(-pthread_create(&slow->thread, NULL, create_slowly, slow));
	event.fd = slow->faults;
	must(poll(&event, 1, PATIENCE_MS) == 1 ? 0 : -ETIMEDOUT);
	must(read(slow->faults, &message, sizeof(message)) == sizeof(message) ? 0 : -EIO);
	must(message.event == UFFD_EVENT_PAGEFAULT ? 0 : -EIO);
}

/* Lets the call finish, and returns its result. */
static int end(struct slow_call *slow)
{
	protect(slow, false);
	must(-pthread_join(slow->thread, NULL));
	close(slow->faults);
	return slow->err;
}

/* Closes the file and the memory of a call that has ended. */
static void forget(struct slow_call *slow)
{
	munmap(slow->arg, SMALL);
	close(slow->file);
}

/* Runs a function in a process of another user. Returns ETIMEDOUT if the process gets stuck. */
static int as_other_tenant(int (*function)(int))
{
	pid_t child = start_child(USER, function, 0);
	int ms, status;

	for (ms = 0; ms < PATIENCE_MS; ms += 10) {
		if (waitpid(child, &status, WNOHANG) == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
		usleep(10000);
	}
	return -ETIMEDOUT;
}

static int use_folder(int unused)
{
	int fd;

	(void)unused;
	fd = open(NAME, O_RDWR | O_TRUNC | O_CLOEXEC);
	CHECK(fd >= 0);
	close(fd);
	CHECK(!rename(NAME, OTHER_NAME));
	fd = make_named(AT "/own", 1);
	CHECK(fd >= 0);
	close(fd);
	CHECK(!unlink(AT "/own"));
	return 0;
}

static int remove_file(int unused)
{
	(void)unused;
	return unlink(NAME) ? __LINE__ : 0;
}

static int set_length(int unused)
{
	(void)unused;
	return truncate(NAME, PAGE_BYTES) ? __LINE__ : 0;
}

TEST_F(names, others_use_the_folder)
{
	struct slow_call slow;
	struct actmem_ioctl_info now;

	if (!has_userfaultfd())
		SKIP(return, "this kernel has no userfaultfd");
	begin(&slow);
	EXPECT_EQ(0, as_other_tenant(use_folder));
	EXPECT_EQ(0, end(&slow));
	ASSERT_EQ(0, info(slow.file, 0, &now));
	EXPECT_EQ(slow.arg->id, now.id);
	EXPECT_EQ(PAGES * PAGE_BYTES, now.length);
	/* The file was renamed before the region was attached to it. */
	EXPECT_STREQ("other", now.name);
	forget(&slow);
}

TEST_F(names, others_remove_the_file)
{
	struct slow_call slow;

	if (!has_userfaultfd())
		SKIP(return, "this kernel has no userfaultfd");
	begin(&slow);
	EXPECT_EQ(0, as_other_tenant(remove_file));
	EXPECT_EQ(0, end(&slow));
	EXPECT_EQ(0, populate(slow.file, 0, PAGES));
	EXPECT_EQ(PAGES, pages_held(slow.file));
	EXPECT_EQ(PAGES, pages_used(AT));
	forget(&slow);
	EXPECT_EQ(0, regions());
}

/* A file gets only one region, so the suspended call fails. */
TEST_F(names, others_create_the_region)
{
	struct slow_call slow;
	struct actmem_ioctl_info now;

	if (!has_userfaultfd())
		SKIP(return, "this kernel has no userfaultfd");
	begin(&slow);
	EXPECT_EQ(0, as_other_tenant(set_length));
	EXPECT_EQ(-EEXIST, end(&slow));
	EXPECT_EQ(0, slow.arg->id);
	EXPECT_EQ(1, regions());
	ASSERT_EQ(0, info(slow.file, 0, &now));
	EXPECT_EQ(PAGE_BYTES, now.length);
	EXPECT_EQ(USER, (int)now.uid);
	EXPECT_STREQ("region", now.name);
	forget(&slow);
}

/* The driver cannot write the answer, because the memory is read-only. */
TEST_F(names, no_region_without_an_answer)
{
	struct actmem_ioctl_create *arg;
	struct stat status;
	int fd = must(make_file(NAME));

	arg = mapped(mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	*arg = region_of(PAGES);
	ASSERT_EQ(0, mprotect(arg, SMALL, PROT_READ));
	EXPECT_EQ(-EFAULT, call(fd, ACTMEM_IOC_CREATE, arg));
	EXPECT_EQ(0, regions());
	ASSERT_EQ(0, fstat(fd, &status));
	EXPECT_EQ(0, status.st_size);
	EXPECT_ERRNO(ENODATA, map(fd, 1));
	EXPECT_EQ(0, ftruncate(fd, PAGE_BYTES));
	munmap(arg, SMALL);
	close(fd);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
