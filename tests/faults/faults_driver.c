/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A driver that is a function, and answers as a test says.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "faults_driver.h"

#define MAKER	4711		/* its user */

struct driver driver;

static int answer_query(struct actmem_ioctl_query *query)
{
	if (query->size != sizeof(*query) || query->flags || query->reserved ||
	    query->abi != ACTMEM_ABI_VERSION || query->abi_oldest != ACTMEM_ABI_OLDEST)
		return EINVAL;
	query->abi = driver.abi;
	query->abi_oldest = driver.abi_oldest;
	query->page_bytes = driver.page_bytes;
	query->max_region_bytes = 16ULL << 40;
	return driver.error;
}

static int answer_create(struct actmem_ioctl_create *create)
{
	unsigned int turn = driver.created++;

	assert_in_range(turn, 0, 1);
	driver.asked[turn] = *create;
	if (driver.create_error[turn]) {
		create->why.reason = driver.create.why.reason;
		create->why.node = driver.create.why.node;
		create->why.wanted = driver.create.why.wanted;
		create->why.available = driver.create.why.available;
		create->why.movable = driver.create.why.movable;
		return driver.create_error[turn];
	}
	create->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	create->id = 77;
	return 0;
}

static int answer_info(struct actmem_ioctl_info *info)
{
	if (info->id == driver.gone)
		return ENOENT;
	if (info->node_count)
		((uint64_t *)(uintptr_t)info->node_bytes)[1] = LENGTH;
	info->length = LENGTH;
	info->page_bytes = ACTMEM_PAGE_BYTES;
	info->state = ACTMEM_INFO_LINGERING;
	info->uid = MAKER;
	info->allocated_bytes = LENGTH / 2;
	info->demand_faults = 3;
	info->poisoned_bytes = LENGTH / 4;
	info->exported_bytes = LENGTH / 8;
	strcpy(info->name, "told");
	return 0;
}

static int answer_list(struct actmem_ioctl_list *list)
{
	uint64_t *ids = (uint64_t *)(uintptr_t)list->ids;
	uint32_t i;

	if (!list->count)
		return EINVAL;
	for (i = 0; i < list->count && list->after + i < driver.regions; i++)
		ids[i] = list->after + i + 1;
	list->count = i;
	return 0;
}

static int answer_range(unsigned long request, struct actmem_ioctl_range *range)
{
	driver.changed = request;
	driver.range = *range;
	driver.changes++;
	range->done = range->length / 2;
	range->why = driver.create.why;
	if (driver.populate_errors && driver.changes > driver.populate_errors)
		return 0;
	return driver.range_error;
}

static int answer_export(struct actmem_ioctl_export *export)
{
	driver.exported = *export;
	export->fd = EXPORTED_FD;
	return driver.export_error;
}

static int answer(int fd, unsigned long request, void *argument)
{
	switch (request) {
	case ACTMEM_IOC_POPULATE:
	case ACTMEM_IOC_DISCARD:
		return answer_range(request, argument);
	case ACTMEM_IOC_QUERY:
		return answer_query(argument);
	case ACTMEM_IOC_CREATE:
		return answer_create(argument);
	case ACTMEM_IOC_INFO:
		return answer_info(argument);
	case ACTMEM_IOC_EXPORT:
		return answer_export(argument);
	case ACTMEM_IOC_LIST:
		return answer_list(argument);
	default:
		return ENOTTY;
	}
}

int driver_setup(void **state)
{
	memset(&driver, 0, sizeof(driver));
	driver.abi = ACTMEM_ABI_VERSION;
	driver.abi_oldest = ACTMEM_ABI_OLDEST;
	driver.page_bytes = ACTMEM_PAGE_BYTES;
	driver.gone = UINT32_MAX;
	fake_device(answer);
	return 0;
}

int driver_teardown(void **state)
{
	fail_nothing();
	return 0;
}

int open_backend(struct actmem **am, enum actmem_backend backend)
{
	struct actmem_options options = { .size = sizeof(options), .backend = backend };

	return actmem_open(am, &options);
}

struct actmem *open_driver(void)
{
	struct actmem *am;

	assert_int_equal(open_backend(&am, ACTMEM_BACKEND_DRIVER), 0);
	return am;
}
