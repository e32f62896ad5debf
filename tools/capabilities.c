// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Tells which capabilities this command has, and so what it may see. */
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tool.h"

bool has_capability(unsigned int capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability);
}

/*
 * The driver asks for CAP_SYS_ADMIN, a descriptor in /proc/PID/fd for CAP_SYS_PTRACE, and that
 * folder, which its user alone may read, for one of the other two.
 */
bool sees_all_users(void)
{
	return has_capability(CAP_SYS_ADMIN) && has_capability(CAP_SYS_PTRACE) &&
	       (has_capability(CAP_DAC_READ_SEARCH) || has_capability(CAP_DAC_OVERRIDE));
}
