// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The checks of `actmem doctor` for devices, files, the environment and the container. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "checks.h"
#include "facts.h"
#include "config/config.h"
#include "machine/machine.h"
#include "xla/xla.h"

#define PCI_DEVICES	"/sys/bus/pci/devices"
#define NVIDIA		0x10de
#define PIPELINED	"--xla_gpu_enable_pipelined_host_offloading"

int check_io_uring(json_t *findings)
{
	json_t *io_uring = facts_io_uring();
	const char *error = json_string_value(json_object_get(io_uring, "error"));
	int err;

	if (!io_uring)
		return -ENOMEM;
	if (!error)
		err = add_finding(findings, "io_uring", CHECK_OK, NULL, "can be used");
	else if (json_integer_value(json_object_get(io_uring, "disabled")) > 0)
		err = add_finding(findings, "io_uring", CHECK_FIX,
				  "as root: sysctl kernel.io_uring_disabled=0",
				  "%s: spilling uses threads instead, which need more CPU time", error);
	else
		err = add_finding(findings, "io_uring", CHECK_FIX,
				  "permit io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile",
				  "%s: spilling uses threads instead, which need more CPU time", error);
	json_decref(io_uring);
	return err;
}

/* Returns true if the kernel reports that the folder's disk is rotational. */
static bool is_rotational(dev_t device)
{
	uint64_t value = 0;

	if (sysfile_value(&value, "/sys/dev/block/%u:%u/queue/rotational",
			  major(device), minor(device)) &&
	    sysfile_value(&value, "/sys/dev/block/%u:%u/../queue/rotational",
			  major(device), minor(device)))
		return false;
	return value == 1;
}

/* Creates a file for direct I/O in a folder, and removes it. Returns 0 or a negative errno. */
static int try_direct_io(const char *folder)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/.actmem-doctor-XXXXXX", folder);
	fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
	if (fd < 0)
		return -errno;
	unlink(path);
	close(fd);
	return 0;
}

static int check_folder(json_t *findings, const char *folder)
{
	struct statfs files;
	struct stat found;
	int err;

	if (statfs(folder, &files) || stat(folder, &found) || access(folder, W_OK))
		return add_finding(findings, "spill", CHECK_FIX,
				   errno == EROFS ? "use a folder on a writable file system" :
				   "create the folder, and give the job's user write permission",
				   "'%s': %s", folder, strerror(errno));
	if (memory_file_system(folder))
		return add_finding(findings, "spill", CHECK_FIX,
				   "use a folder on an NVMe disk",
				   "%s is in memory (%s)", folder, memory_file_system(folder));
	if (files.f_type == NFS_SUPER_MAGIC)
		return add_finding(findings, "spill", CHECK_FIX,
				   "use a folder on a disk of this machine",
				   "%s is on another machine (NFS)", folder);
	if (files.f_blocks && !files.f_bavail)
		return add_finding(findings, "spill", CHECK_FIX, "free space on its file system",
				   "%s: no space is left", folder);
	err = try_direct_io(folder);
	if (err == -EINVAL)
		return add_finding(findings, "spill", CHECK_FIX,
				   "use a folder on ext4 or XFS, or allow the page cache (--spill-allow buffered)",
				   "%s: no direct I/O", folder);
	if (err)
		return add_finding(findings, "spill", CHECK_FIX, "use a folder on ext4 or XFS",
				   "'%s': cannot create a file: %s", folder, strerror(-err));
	if (is_rotational(found.st_dev))
		return add_finding(findings, "spill", CHECK_FIX,
				   "use a folder on an NVMe disk", "%s is on a rotational disk, according to the kernel",
				   folder);
	return add_finding(findings, "spill", CHECK_OK, NULL, "%s: direct I/O", folder);
}

int check_spill(json_t *findings, const struct spill_folders *folders)
{
	int err = 0;
	size_t i;

	for (i = 0; !err && i < folders->count; i++)
		err = check_folder(findings, folders->paths[i]);
	return err;
}

/* Returns the kind of an accelerator or NVMe disk from its PCI class, or NULL for other devices. */
static const char *device_kind(uint64_t class, uint64_t vendor)
{
	switch (class >> 8) {
	case 0x0108:
		return "NVMe";
	case 0x0300:
	case 0x0302:
		return vendor == NVIDIA ? "GPU" : NULL;
	case 0x1200:
		return "accelerator";
	}
	return NULL;
}

static uint64_t pci_hex(const char *device, const char *name)
{
	char path[PATH_MAX], text[32];

	snprintf(path, sizeof(path), PCI_DEVICES "/%s/%s", device, name);
	return sysfile_read(path, text, sizeof(text)) ? 0 : strtoull(text, NULL, 16);
}

static int check_device(json_t *findings, const char *kind, const char *device, bool has_nodes)
{
	char path[PATH_MAX], type[32], node[16] = "?";
	uint64_t width = 0, widest = 0;

	snprintf(path, sizeof(path), PCI_DEVICES "/%s/numa_node", device);
	if (!sysfile_read(path, node, sizeof(node)))
		node[strcspn(node, "\n")] = '\0';
	snprintf(path, sizeof(path), PCI_DEVICES "/%s/iommu_group/type", device);
	if (!sysfile_read(path, type, sizeof(type)) && !strncmp(type, "DMA", 3))
		return add_finding(findings, "IOMMU", CHECK_FIX,
				   "boot with iommu=pt on the kernel's command line",
				   "%s %s: the IOMMU translates the addresses of each transfer (%.*s)", kind,
				   device, (int)strcspn(type, "\n"), type);
	if (has_nodes && !strcmp(node, "-1"))
		return add_finding(findings, "device", CHECK_FIX,
				   "enable NUMA (SRAT) in the firmware; in a VM, configure the device's node",
				   "%s %s: the kernel does not know its node", kind, device);
	if (!sysfile_value(&width, PCI_DEVICES "/%s/current_link_width", device) &&
	    !sysfile_value(&widest, PCI_DEVICES "/%s/max_link_width", device) && width < widest)
		return add_finding(findings, "device", CHECK_FIX,
				   "reseat the card, or use a slot with all lanes",
				   "%s %s: %" PRIu64 " of %" PRIu64 " lanes", kind, device, width,
				   widest);
	return add_finding(findings, "device", CHECK_OK, NULL, "%s %s: node %s, %" PRIu64 " lanes",
			   kind, device, node, width);
}

static bool has_several_nodes(void)
{
	return !access("/sys/devices/system/node/node1", F_OK);
}

int check_devices(json_t *findings)
{
	bool has_nodes = has_several_nodes();
	struct dirent **devices;
	int count = scandir(PCI_DEVICES, &devices, NULL, alphasort), i, err = 0;

	for (i = 0; i < count; i++) {
		const char *name = devices[i]->d_name;
		const char *kind = *name == '.' ? NULL :
				   device_kind(pci_hex(name, "class"), pci_hex(name, "vendor"));

		if (kind && !err)
			err = check_device(findings, kind, name, has_nodes);
		free(devices[i]);
	}
	if (count >= 0)
		free(devices);
	return err;
}

int check_balancing(json_t *findings)
{
	uint64_t value;

	if (!has_several_nodes() || sysfile_value(&value, "/proc/sys/kernel/numa_balancing"))
		return 0;
	if (value)
		return add_finding(findings, "NUMA balancing", CHECK_FIX,
				   "as root: sysctl kernel.numa_balancing=0",
				   "the kernel unmaps pages to learn which node uses them");
	return add_finding(findings, "NUMA balancing", CHECK_OK, NULL, "off");
}

/* Docker's default seccomp profile forbids mbind(), which places memory of the memfd backend. */
int check_placement(json_t *findings)
{
	if (!has_several_nodes())
		return 0;
	if (syscall(SYS_mbind, NULL, 0UL, MPOL_DEFAULT, NULL, 0UL, 0U))
		return add_finding(findings, "placement", CHECK_FIX,
				   "docker run --cap-add SYS_NICE, or use the driver",
				   "the kernel chooses the nodes of memfd's memory, because mbind is forbidden (%s)",
				   strerror(errno));
	return add_finding(findings, "placement", CHECK_OK, NULL, "mbind is permitted");
}

static bool begins_a_variable(const char *prefix)
{
	extern char **environ;
	char **variable;

	for (variable = environ; *variable; variable++)
		if (!strncmp(*variable, prefix, strlen(prefix)))
			return true;
	return false;
}

/*
 * Returns true if XLA_FLAGS enables the flag, which is off by default. As in XLA, the last value
 * counts.
 */
static bool has_xla_flag(const char *flag)
{
	const char *flags = getenv("XLA_FLAGS"), *value = NULL;

	while (flags && (flags = strstr(flags, flag))) {
		flags += strlen(flag);
		value = flags;
	}
	return value && strncmp(value, "=false", strlen("=false")) && strncmp(value, "=0", 2);
}

static bool is_variable(const char *setting, size_t length)
{
	const char *name;
	unsigned int knob;

	for (knob = 0; knob < KNOB_VARIABLES; knob++) {
		name = knob_name(knob, ACTMEM_NAMES_VARIABLES);
		if (strlen(name) == length && !strncmp(name, setting, length))
			return true;
	}
	return false;
}

/* Checks the value of a variable. Does not check names and folders. */
static int check_variable(json_t *findings, enum knob knob)
{
	struct reader reader = READER(ACTMEM_NAMES_VARIABLES);
	struct actmem_nodes nodes;
	struct knobs knobs = { 0 };

	if (knob == KNOB_NODES)
		nodes_read(&nodes, &reader);
	else if (knob == KNOB_SPILL)
		knobs_read_directories(&knobs, &reader);
	else if (knob_table[knob].kind != KNOB_TEXT)
		reader_value(&reader, knob);
	knobs_forget(&knobs);
	if (!*reader.error)
		return 0;
	return add_finding(findings, "variables", CHECK_FIX,
			   "correct or unset the variable; actmem(1) lists all of them", "%s",
			   reader.error);
}

/* Checks the variables of actmem. */
static int check_variables(json_t *findings)
{
	unsigned int knob;
	size_t i, length;
	int err = 0;

	for (knob = 0; knob < KNOB_VARIABLES && !err; knob++)
		err = check_variable(findings, knob);
	for (i = 0; environ[i] && !err; i++) {
		length = strcspn(environ[i], "=");
		if (!strncmp(environ[i], "ACTMEM_", 7) && !is_variable(environ[i], length))
			err = add_finding(findings, "variables", CHECK_NOTE, NULL,
					  "%.*s is no variable of actmem", (int)length, environ[i]);
	}
	return err;
}

/* Checks the variables of actmem, and the settings of XLA and PyTorch in this environment. */
int check_environment(json_t *findings)
{
	const char *cap = getenv("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB");
	const char *torch = getenv("PYTORCH_ALLOC_CONF") ?: getenv("PYTORCH_CUDA_ALLOC_CONF");
	int err = check_variables(findings);

	if (err)
		return err;
	if (cap)
		err = add_finding(findings, "XLA", CHECK_OK, NULL,
				  "XLA uses at most %s GB of pinned host memory for a device", cap);
	else if (begins_a_variable("XLA_") || begins_a_variable("JAX_"))
		err = add_finding(findings, "XLA", CHECK_FIX,
				  "export XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB=N, or offload with actmem.jax, which has no such limit",
				  "XLA uses at most 64 GiB of pinned host memory for a device");
	if (!err && has_xla_flag(PIPELINED))
		err = add_finding(findings, "XLA", CHECK_FIX,
				  "remove " PIPELINED " from XLA_FLAGS, or do not use JAX 0.11.2",
				  "JAX 0.11.2 computes wrong gradients on GPUs with " PIPELINED);
	if (!err && torch && !strstr(torch, "pinned_max_round_threshold_mb"))
		err = add_finding(findings, "PyTorch", CHECK_FIX,
				  "add pinned_max_round_threshold_mb:1024,pinned_max_cached_size_mb:1024 to PYTORCH_ALLOC_CONF, as actmem run does by default",
				  "PyTorch rounds pinned memory up to powers of two");
	return err;
}

int check_container(json_t *findings)
{
	if (!getenv("KUBERNETES_SERVICE_HOST"))
		return 0;
	return add_finding(findings, "pod", CHECK_NOTE, NULL,
			   "a pod cannot set its limit of locked memory: the node's user_limit_bytes applies; the pod needs /dev/actmem");
}
