/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder reads the kernel's information about the machine and its processes.
 *
 * Read sysfile.h first, which reads small files of /proc and /sys; then node.h (NUMA
 * nodes, and where pages are), cpus.h (the CPUs of nodes), cgroup.h, mounts.h, procfs.h
 * (processes and their descriptors), smaps.h, device.h (disks below files). The kernel's log
 * is in kernel_log.h, and the threads that help to zero pages in helpers.h.
 *
 * Locks: none.
 */
#ifndef LIB_MACHINE_H
#define LIB_MACHINE_H

#include "machine/cgroup.h"
#include "machine/cpus.h"
#include "machine/device.h"
#include "machine/helpers.h"
#include "machine/kernel_log.h"
#include "machine/mounts.h"
#include "machine/node.h"
#include "machine/procfs.h"
#include "machine/smaps.h"
#include "machine/sysfile.h"

#endif /* LIB_MACHINE_H */
