/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder reads the kernel's information about the machine and its processes.
 *
 * Read sysfile.h first, which reads small files of /proc and /sys. Next come node.h (NUMA nodes,
 * and the nodes of pages), cpus.h (sets of CPUs), cgroup.h and mounts.h. procfs.h reads processes
 * and their descriptors, smaps.h counts pages, and device.h describes the disk that stores a file.
 * kernel_log.h reads the kernel's log, and helpers.h has threads that help to zero pages.
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
