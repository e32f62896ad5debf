// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Tells whether this command may see other users' processes and regions. */
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tool.h"

/* The driver asks for CAP_SYS_ADMIN, /proc/PID/fd for CAP_SYS_PTRACE. */
bool sees_all_users(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[0].effective & CAP_TO_MASK(CAP_SYS_ADMIN) &&
	       data[0].effective & CAP_TO_MASK(CAP_SYS_PTRACE);
}
