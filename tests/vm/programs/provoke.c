// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Has the kernel go wrong, by the module tests/vm/provoke.
 *
 *	provoke MODULE WAY [keep]	keep: leaves the module loaded
 *
 * An oops does not end the machine from then on.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char parameters[64];
	int fd;

	if (argc < 3)
		return 99;
	fd = open("/proc/sys/kernel/panic_on_oops", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1) {
		perror("/proc/sys/kernel/panic_on_oops");
		return 99;
	}
	close(fd);
	snprintf(parameters, sizeof(parameters), "way=%s", argv[2]);
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, parameters, 0) < 0 ||
	    (argc == 3 && syscall(SYS_delete_module, "provoke", O_NONBLOCK) < 0)) {
		perror(argv[1]);
		return 99;
	}
	return 0;
}
