// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Reads and writes the driver's settings in sysfs, and explains failures. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/base.h"
#include "machine/machine.h"
#include "settings.h"

bool settings_take(struct settings_options *options, int option, const char *value)
{
	switch (option) {
	case 'n':
		if (nodes_parse(value, &options->nodes) && !nodes_empty(&options->nodes))
			return true;
		warnx("--nodes is '%s', but must be a list of nodes such as 0,2-3", value);
		return false;
	case 's':
		options->is_saved = true;
		return true;
	default:
		if (options->value) {
			warnx("unexpected argument '%s'", value);
			return false;
		}
		options->value = value;
		return true;
	}
}

bool setting_from_text(const char *text, bool may_be_max, uint64_t *bytes)
{
	if (may_be_max && !strcmp(text, "max")) {
		*bytes = NO_LIMIT;
		return true;
	}
	return size_from_text(text, bytes) && *bytes % HUGE_PAGE_BYTES == 0;
}

bool setting_take(const char *text, bool may_be_max, uint64_t *bytes)
{
	if (setting_from_text(text, may_be_max, bytes))
		return true;
	warnx("'%s' is not a valid size: use a multiple of 2M such as 64G%s", text,
	      may_be_max ? ", or max" : "");
	return false;
}

const char *setting_text(char text[32], uint64_t bytes)
{
	static const char units[][2] = { "", "K", "M", "G", "T" };
	unsigned int unit = 0;

	if (bytes == NO_LIMIT)
		return strcpy(text, "max");
	while (bytes && bytes % 1024 == 0 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, 32, "%" PRIu64 "%s", bytes, units[unit]);
	return text;
}

const char *setting_name(char name[64], unsigned int node, const char *file)
{
	snprintf(name, 64, "node%u/%s", node, file);
	return name;
}

void settings_nodes(struct actmem_nodes *nodes)
{
	unsigned int node;
	char path[64];

	memset(nodes, 0, sizeof(*nodes));
	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		snprintf(path, sizeof(path), DRIVER_SYSFS "/node%u", node);
		if (!access(path, F_OK))
			node_set(nodes, node);
	}
}

bool settings_are_there(const struct actmem_nodes *nodes)
{
	struct actmem_nodes there;
	unsigned int node;

	if (access(DRIVER_SYSFS, F_OK)) {
		warnx("the driver is not loaded (" DRIVER_SYSFS ": %s); load its module, as root: modprobe actmem",
		      strerror(errno));
		return false;
	}
	settings_nodes(&there);
	for_each_node(node, nodes) {
		if (node_is_set(&there, node))
			continue;
		warnx("this machine has no node %u, only %s; change --nodes", node,
		      NODES_TEXT(&there));
		return false;
	}
	return true;
}

int setting_read(const char *name, uint64_t *bytes)
{
	return sysfile_value(bytes, DRIVER_SYSFS "/%s", name);
}

int limit_write(const char *path, uint64_t bytes)
{
	char text[32];
	ssize_t length;
	int fd, err;

	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	length = bytes == NO_LIMIT ? sprintf(text, "max") : sprintf(text, "%" PRIu64, bytes);
	err = write(fd, text, (size_t)length) == length ? 0 : -errno;
	close(fd);
	return err;
}

int setting_write(const char *name, uint64_t bytes)
{
	char path[128];

	snprintf(path, sizeof(path), DRIVER_SYSFS "/%s", name);
	return limit_write(path, bytes);
}

void setting_tell(const char *name, int err)
{
	const char *remedy = err == -EACCES || err == -EPERM ? ": run this command as root" :
			     err == -EROFS ? ": run this command outside of the container" :
			     err == -ENOENT ? ": the loaded module has no such file; load the module of this version" :
			     "";

	warnx("cannot set " DRIVER_SYSFS "/%s: %s%s", name, strerror(-err), remedy);
}

uint64_t file_bytes_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) ? RLIM_INFINITY : limit.rlim_cur;
}

bool setting_to_save(const char *name, const uint64_t *given, uint64_t *bytes)
{
	int err = given ? 0 : setting_read(name, bytes);

	if (given)
		*bytes = *given;
	if (err)
		warnx("cannot read " DRIVER_SYSFS "/%s: %s", name, strerror(-err));
	return !err;
}
