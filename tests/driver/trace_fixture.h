/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tests of tracepoints: all of them are on, and what is traced is the test's own. */
#ifndef TRACE_FIXTURE_H
#define TRACE_FIXTURE_H

#include "trace_test.h"

#define NODE		1
#define PAGES		4

FIXTURE(trace)
{
	int device;
};

FIXTURE_SETUP(trace)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, regions());
	ASSERT_TRUE(!mkdir(INSTANCE, 0755) || errno == EEXIST);
	ASSERT_EQ(0, clear_trace());
	ASSERT_EQ(0, put(EVENTS "/enable", "1"));
}

FIXTURE_TEARDOWN(trace)
{
	close(self->device);
	put(EVENTS "/enable", "0");
	EXPECT_EQ(0, rmdir(INSTANCE));
}

#endif
