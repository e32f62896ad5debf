// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A page does not leave its region while a fault that mapped it still has it locked. The
 * fault has no reference any more if the mapping has gone meanwhile. A process with
 * real-time priority interrupts faults on its processor, and discards their page. On
 * kernels that preempt tasks in faults, it does so at any of their instructions.
 */
#include <sched.h>
#include <time.h>

#include "driver_test.h"

#define ROUNDS		500
#define DISCARDS	(ROUNDS / 10)
#define SECONDS_MAX	20
/* The bit of /proc/sys/kernel/tainted for a page in a bad state, such as a free locked one. */
#define TAINT_BAD_PAGE	(1 << 5)

static void fault_for_good(int fd)
{
	char *memory = mapped(map(fd, 1));

	for (;;) {
		must(madvise(memory, PAGE_BYTES, MADV_DONTNEED) ? -errno : 0);
		*(volatile char *)memory = 1;
	}
}

TEST_F(driver, a_fault_keeps_its_page)
{
	const struct sched_param priority = { .sched_priority = 1 };
	int fd = must(create_lazy(self->device, 1)), i, discarded = 0;
	time_t end;
	cpu_set_t cpu, all;
	pid_t child;

	ASSERT_EQ(0, number_in("/proc/sys/kernel/tainted") & TAINT_BAD_PAGE);
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(all), &all));
	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(cpu), &cpu));
	child = fork();
	if (!child)
		fault_for_good(fd);
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_FIFO, &priority));
	/* Some rounds discard nothing, because the child needs time for a page. */
	end = time(NULL) + SECONDS_MAX;
	for (i = 0; i < ROUNDS || (discarded < DISCARDS && time(NULL) < end); i++) {
		usleep(1000 + rand() % 1000);
		discarded += !discard(fd, 0, 1);
	}
	EXPECT_EQ(0, kill_child(child));
	EXPECT_LE(DISCARDS, discarded);
	EXPECT_EQ(0, number_in("/proc/sys/kernel/tainted") & TAINT_BAD_PAGE);
	close(fd);
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(all), &all));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
