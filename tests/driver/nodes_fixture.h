/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tests that need a machine with at least two memory nodes. */
#ifndef NODES_FIXTURE_H
#define NODES_FIXTURE_H

#include "driver_test.h"

FIXTURE(placement)
{
	int device;
	int nodes;
};

FIXTURE_SETUP(placement)
{
	self->device = open_device();
	for (self->nodes = 0; node_memory(self->nodes, "MemTotal"); self->nodes++)
		;
	if (self->nodes < 2)
		SKIP(return, "this machine has one memory node only");
}

FIXTURE_TEARDOWN(placement)
{
	close(self->device);
	EXPECT_EQ(0, regions());
}

#endif
