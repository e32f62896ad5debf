/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tests of importing, each with memfds of small, transparent huge and hugetlb's pages. */
#ifndef IMPORT_FIXTURE_H
#define IMPORT_FIXTURE_H

#include "import_test.h"

#define PAGES		4
#define BYTES		(PAGES * PAGE_BYTES)
#define HUGE_NUMBER	HUGE_PAGES("2048") "nr_hugepages"
#define HUGE_FREE	HUGE_PAGES("2048") "free_hugepages"
#define HUGE_TOTAL	12
#define THP_OF_SHMEM	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

FIXTURE(import)
{
	int device;
	int memory;
	size_t page_bytes;
};

FIXTURE_VARIANT(import)
{
	unsigned int flags;
	bool huge;
	size_t page_bytes;
};

FIXTURE_VARIANT_ADD(import, small)
{
	.page_bytes = 4096,
};

FIXTURE_VARIANT_ADD(import, transparent)
{
	.huge = true,
	.page_bytes = PAGE_BYTES,
};

FIXTURE_VARIANT_ADD(import, hugetlb)
{
	.flags = MFD_HUGETLB | MFD_HUGE_2MB,
	.page_bytes = PAGE_BYTES,
};

FIXTURE_SETUP(import)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", HUGE_TOTAL);
	ASSERT_EQ(0, put(HUGE_NUMBER, number));
	ASSERT_EQ(HUGE_TOTAL, number_in(HUGE_FREE));
	ASSERT_EQ(0, put(THP_OF_SHMEM, variant->huge ? "always" : "never"));
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	self->memory = memfd_of(variant->flags, BYTES);
	ASSERT_LE(0, self->memory);
}

/* What was imported is its owner's again, to the last page. */
FIXTURE_TEARDOWN(import)
{
	if (self->memory >= 0)
		close(self->memory);
	close(self->device);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, put(THP_OF_SHMEM, "never"));
	EXPECT_EQ(HUGE_TOTAL, number_in(HUGE_FREE));
	EXPECT_EQ(0, put(HUGE_NUMBER, "0"));
	EXPECT_EQ(0, number_in(HUGE_NUMBER));
}

#endif
