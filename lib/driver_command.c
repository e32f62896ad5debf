/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What changes the pages of a driver's region, as ioctls and as commands of
 * io_uring, and what has come of it in words.
 */
#include <errno.h>
#include <string.h>

#include "../uapi/actmem.h"
#include "driver.h"
#include "driver_command.h"
#include "error.h"
#include "why.h"

#define ARGUMENT_BYTES	sizeof(((struct backend_command *)0)->argument)

_Static_assert(sizeof(struct actmem_ioctl_range) <= ARGUMENT_BYTES &&
	       sizeof(struct actmem_ioctl_copy) <= ARGUMENT_BYTES, "arguments of commands fit");

static int tell_populate(int error, int fd, const struct actmem_ioctl_range *range)
{
	if (!error)
		return 0;
	if (error == -ENOTTY)
		return fail(EOPNOTSUPP, "this driver does not populate; upgrade the module");
	if (!why_tell(-error, &range->why, fd, false))
		fail(-error, "the driver cannot populate %s (%s)", BYTES_TEXT(range->length),
		     strerror(-error));
	fail_more("; the first %s of the %s are there", BYTES_TEXT(range->done),
		  BYTES_TEXT(range->length));
	return error;
}

static int tell_discard(int error, const struct actmem_ioctl_range *range)
{
	if (!error)
		return 0;
	if (error == -ENOTTY)
		return fail(EOPNOTSUPP, "this driver does not discard; upgrade the module");
	if (error == -EBUSY)
		return fail(EBUSY, "%s of %s stay, since a device or I/O in flight holds them; try again when that has ended",
			    BYTES_TEXT(range->length - range->done), BYTES_TEXT(range->length));
	return fail(-error, "the driver cannot discard %s (%s)", BYTES_TEXT(range->length),
		    strerror(-error));
}

static int tell_copy(int error, int fd, const struct actmem_ioctl_copy *copy)
{
	if (!error)
		return 0;
	if (error == -ENOTTY)
		return fail(EOPNOTSUPP, "this driver does not copy; upgrade the module");
	if (error == -ESTALE)
		fail(ESTALE, "the owner of imported memory has truncated its file or punched a hole in it; close the region and import the memory again");
	else if (error == -EIO && copy->why.reason == ACTMEM_WHY_NONE)
		fail(EIO, "the hardware reported an error in a page (see the kernel's log)");
	else if (!why_tell(-error, &copy->why, fd, false))
		fail(-error, "the driver cannot copy %s (%s)", BYTES_TEXT(copy->length),
		     strerror(-error));
	fail_more("; the first %llu of %llu bytes are copied", (unsigned long long)copy->done,
		  (unsigned long long)copy->length);
	return error;
}

void driver_command(const struct page_change *change, struct backend_command *command)
{
	struct actmem_ioctl_range range = {
		.size = sizeof(range),
		.offset = change->offset,
		.length = change->length,
	};
	struct actmem_ioctl_copy copy = {
		.size = sizeof(copy),
		.offset = change->offset,
		.source_offset = change->from_offset,
		.length = change->length,
		.source_fd = change->kind == CHANGE_COPY ? change->from->fd : -1,
	};

	command->fd = change->backing->fd;
	if (change->kind == CHANGE_COPY) {
		command->operation = ACTMEM_IOC_COPY;
		memcpy(command->argument, &copy, sizeof(copy));
	} else {
		command->operation = change->kind == CHANGE_POPULATE ? ACTMEM_IOC_POPULATE :
				     ACTMEM_IOC_DISCARD;
		memcpy(command->argument, &range, sizeof(range));
	}
}

int driver_command_result(struct backend_command *command, int result)
{
	struct actmem_ioctl_range range;
	struct actmem_ioctl_copy copy;

	memcpy(&range, command->argument, sizeof(range));
	memcpy(&copy, command->argument, sizeof(copy));
	if (command->operation == ACTMEM_IOC_COPY)
		return tell_copy(result, command->fd, &copy);
	return command->operation == ACTMEM_IOC_POPULATE ?
	       tell_populate(result, command->fd, &range) : tell_discard(result, &range);
}

static int change_now(const struct page_change *change)
{
	struct backend_command command;
	int result;

	driver_command(change, &command);
	result = driver_ask(command.fd, command.operation, command.argument);
	return driver_command_result(&command, result);
}

int driver_populate(const struct backing *backing, uint64_t offset, uint64_t length)
{
	const struct page_change change = { CHANGE_POPULATE, backing, offset, length, NULL, 0 };

	return change_now(&change);
}

int driver_discard(const struct backing *backing, uint64_t offset, uint64_t length)
{
	const struct page_change change = { CHANGE_DISCARD, backing, offset, length, NULL, 0 };

	return change_now(&change);
}

int driver_copy(const struct backing *to, uint64_t offset, const struct backing *from,
		uint64_t from_offset, uint64_t length)
{
	const struct page_change change = {
		CHANGE_COPY, to, offset, length, from, from_offset,
	};

	return change_now(&change);
}
