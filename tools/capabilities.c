// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Checks which capabilities this process has, and so which other processes it can see. */
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tool.h"

/* Inode numbers of the initial namespaces in /proc/PID/ns (include/linux/proc_ns.h). */
#define FIRST_USER_NAMESPACE	0xeffffffdUL
#define FIRST_PID_NAMESPACE	0xeffffffcUL

static bool is_in_namespace(const char *path, ino_t number)
{
	struct stat found;

	return !stat(path, &found) && found.st_ino == number;
}

bool has_capability(unsigned int capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data))
		return false;
	return data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability);
}

/*
 * To show other users' regions, the driver requires CAP_SYS_ADMIN. Opening a descriptor in
 * /proc/PID/fd requires CAP_SYS_PTRACE. Only the owner may read that folder, so other users also
 * need CAP_DAC_READ_SEARCH or CAP_DAC_OVERRIDE.
 */
bool sees_all_users(void)
{
	return has_capability(CAP_SYS_ADMIN) && has_capability(CAP_SYS_PTRACE) &&
	       (has_capability(CAP_DAC_READ_SEARCH) || has_capability(CAP_DAC_OVERRIDE));
}

/*
 * Checks that this process is in no container: a container has its own processes, and perhaps its
 * own users.
 */
bool sees_machine(void)
{
	return sees_all_users() &&
	       is_in_namespace("/proc/self/ns/user", FIRST_USER_NAMESPACE) &&
	       is_in_namespace("/proc/self/ns/pid", FIRST_PID_NAMESPACE);
}
