// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Reads and writes the file of udev rules that keep settings. Rejects a file with other rules. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "machine/machine.h"
#include "saved.h"
#include "settings.h"

#define FOLDER		"/etc/udev/rules.d"
#define UNIT		"actmem-pool@"
#define DEVICE_ADDED	"SUBSYSTEM==\"misc\", KERNEL==\"actmem\", ACTION==\"add\", "

static const char header[] =
	"# Limits and pools of actmem, whenever its module is loaded: written by\n"
	"# 'actmem limit --save' and 'actmem pool --save'.\n";

/* The parts of a rule. */
#define HAS_SUBSYSTEM	(1u << 0)
#define HAS_KERNEL	(1u << 1)
#define HAS_ACTION	(1u << 2)
#define HAS_TAG		(1u << 3)
#define HAS_UNIT	(1u << 4)
#define HAS_SETTING	(1u << 5)
#define HAS_MATCHES	(HAS_SUBSYSTEM | HAS_KERNEL | HAS_ACTION)

/*
 * Parses a condition or an assignment at *@text, and advances *@text past it. Returns HAS_* bits,
 * or 0 for an unknown part.
 */
static unsigned int parse_part(struct saved *saved, const char **text)
{
	static const struct {
		const char *format;
		unsigned int has;
	} words[] = {
		{ "SUBSYSTEM == \"misc\"%n", HAS_SUBSYSTEM },
		{ "KERNEL == \"actmem\"%n", HAS_KERNEL },
		{ "ACTION == \"add\"%n", HAS_ACTION },
		{ "TAG += \"systemd\"%n", HAS_TAG },
	};
	unsigned int node, has = HAS_SETTING;
	char value[32];
	uint64_t *bytes;
	int length = 0;
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		sscanf(*text, words[i].format, &length);
		*text += length;
		if (length)
			return words[i].has;
	}
	node = 0;
	if (sscanf(*text, "ATTR{user_limit_bytes} = \"%31[^\"]\"%n", value, &length) == 1 && length)
		bytes = &saved->user_limit;
	else if (sscanf(*text, "ATTR{node%u/limit_bytes} = \"%31[^\"]\"%n", &node, value,
			&length) == 2 && length && node < ACTMEM_NODES_MAX)
		bytes = &saved->node_limits[node];
	else if (sscanf(*text, "ATTR{node%u/pool_bytes} = \"%31[^\"]\"%n", &node, value,
			&length) == 2 && length && node < ACTMEM_NODES_MAX)
		bytes = &saved->pools[node];
	else if (sscanf(*text, "ENV{SYSTEMD_WANTS} += \"" UNIT "%u:%31[^.\"].service\"%n", &node,
			value, &length) == 2 && length && node < ACTMEM_NODES_MAX) {
		bytes = &saved->pools[node];
		has |= HAS_UNIT;
	} else {
		return 0;
	}
	*text += length;
	return setting_from_text(value, bytes != &saved->pools[node], bytes) ? has : 0;
}

/* Parses a rule. Returns false for a rule that print_rules() would not write. */
static bool parse_rule(struct saved *saved, const char *text)
{
	unsigned int has = 0, part;

	for (;;) {
		text += strspn(text, " \t,");
		if (!*text)
			break;
		part = parse_part(saved, &text);
		if (!part)
			return false;
		has |= part;
	}
	return (has & HAS_MATCHES) == HAS_MATCHES && has & HAS_SETTING &&
	       !(has & HAS_TAG) == !(has & HAS_UNIT);
}

/* Parses the lines of @file, and copies its comments to @comments unchanged. */
static bool parse_lines(struct saved *saved, FILE *file, FILE *comments)
{
	bool is_good = true;
	unsigned int number = 0;
	size_t size = 0;
	char *line = NULL;

	while (is_good && getline(&line, &size, file) >= 0) {
		number++;
		line[strcspn(line, "\n")] = '\0';
		if (line[strspn(line, " \t")] == '#')
			fprintf(comments, "%s\n", line);
		else if (line[strspn(line, " \t")])
			is_good = parse_rule(saved, line);
	}
	if (!is_good)
		warnx(SAVED_FILE ":%u is not a rule that 'actmem' writes; nothing is saved; move it to another file of " FOLDER,
		      number);
	else if (ferror(file))
		warn("cannot read " SAVED_FILE);
	is_good = is_good && !ferror(file);
	free(line);
	return is_good;
}

static void clear_saved(struct saved *saved)
{
	*saved = (struct saved){ .user_limit = NO_LIMIT };
	memset(saved->node_limits, 0xff, sizeof(saved->node_limits));
}

static bool read_saved(struct saved *saved, FILE *comments)
{
	int fd = open(SAVED_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	bool is_good;

	clear_saved(saved);
	if (fd < 0 && errno == ENOENT) {
		fputs(header, comments);
		return true;
	}
	if (!file) {
		warnx("cannot read " SAVED_FILE ": %s",
		      errno == ELOOP ? "it is a symbolic link" : strerror(errno));
		if (fd >= 0)
			close(fd);
		return false;
	}
	is_good = parse_lines(saved, file, comments);
	fclose(file);
	return is_good;
}

static void print_rules(const struct saved *saved, FILE *out)
{
	unsigned int node;

	if (saved->user_limit != NO_LIMIT)
		fprintf(out, DEVICE_ADDED "ATTR{user_limit_bytes}=\"%s\"\n",
			SETTING_TEXT(saved->user_limit));
	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		if (saved->node_limits[node] != NO_LIMIT)
			fprintf(out, DEVICE_ADDED "ATTR{node%u/limit_bytes}=\"%s\"\n", node,
				SETTING_TEXT(saved->node_limits[node]));
	}
	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		if (saved->pools[node])
			fprintf(out, DEVICE_ADDED "TAG+=\"systemd\", ENV{SYSTEMD_WANTS}+=\"" UNIT
				"%u:%s.service\"\n", node, SETTING_TEXT(saved->pools[node]));
	}
}

/* Replaces the file completely or not at all, even if the machine crashes. */
static int replace_file(const char *text, size_t length)
{
	char path[] = SAVED_FILE ".XXXXXX";
	int err = 0, fd = mkostemp(path, O_CLOEXEC);
	ssize_t done;

	if (fd < 0)
		return -errno;
	done = write(fd, text, length);
	if (done != (ssize_t)length)
		err = done < 0 ? -errno : -ENOSPC;
	if (!err && (fchmod(fd, 0644) || fsync(fd)))
		err = -errno;
	if (close(fd) && !err)
		err = -errno;
	if (!err && rename(path, SAVED_FILE))
		err = -errno;
	if (err)
		unlink(path);
	return err;
}

static int remove_file(void)
{
	return unlink(SAVED_FILE) && errno != ENOENT ? -errno : 0;
}

static bool tell_unwritten(int err)
{
	warnx("cannot write " SAVED_FILE ": %s; nothing is saved%s", strerror(-err),
	      err == -EACCES ? ": run this command as root" :
	      err == -EROFS ? ": /etc is read-only; change the image that this machine boots" :
	      err == -ENOENT ? ": udev, which would apply the settings, is not installed" : "");
	return false;
}

/* The folders below which systemd looks for its files. */
static const char *const prefixes[] = { "/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib" };

/* Returns true if the file lists the module. Each line is a module or a comment. */
static bool names_the_module(const char *path)
{
	FILE *file = fopen(path, "re");
	bool is_named = false;
	char line[64], word[16];

	while (file && !is_named && fgets(line, sizeof(line), file))
		is_named = sscanf(line, " %15s", word) == 1 && !strcmp(word, "actmem");
	if (file)
		fclose(file);
	return is_named;
}

/*
 * Warns if nothing loads the module at boot. This is not an error: the administrator may load
 * it in another way.
 */
static void tell_unloaded(void)
{
	bool is_named = names_the_module("/etc/modules");
	glob_t files = { 0 };
	char pattern[64];
	size_t i;

	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		snprintf(pattern, sizeof(pattern), "%s/modules-load.d/*.conf", prefixes[i]);
		glob(pattern, i ? GLOB_APPEND : 0, NULL, &files);
	}
	for (i = 0; i < files.gl_pathc && !is_named; i++)
		is_named = names_the_module(files.gl_pathv[i]);
	globfree(&files);
	if (!is_named)
		warnx("saved, but nothing in /etc/modules-load.d loads the module at boot; as root: echo actmem >/etc/modules-load.d/actmem.conf");
}

/*
 * Locks the folder against other processes that change the file. Returns a descriptor, which
 * holds the lock until it is closed, or -errno.
 */
static int lock_rules(void)
{
	int fd = open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && !flock(fd, LOCK_EX))
		return fd;
	if (fd >= 0)
		close(fd);
	return -errno;
}

/* Returns true if the unit is installed. A rule that names a missing unit silently does nothing. */
static bool unit_is_installed(void)
{
	char path[64];
	size_t i;

	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		snprintf(path, sizeof(path), "%s/systemd/system/" UNIT ".service", prefixes[i]);
		if (!access(path, F_OK))
			return true;
	}
	return false;
}

static bool pools_can_be_saved(void)
{
	if (access("/run/systemd/system", F_OK)) {
		warnx("pools cannot be saved, because this machine does not run systemd (there is no /run/systemd/system); let its init run 'actmem pool --nodes N SIZE'");
		return false;
	}
	if (unit_is_installed())
		return true;
	warnx("pools cannot be saved, because systemd has no unit " UNIT ".service; install this command with make install or its package");
	return false;
}

bool saved_can_change(bool of_pools)
{
	struct saved *saved = malloc(sizeof(*saved));
	FILE *comments = fopen("/dev/null", "w");
	bool is_good = false;

	if (!saved || !comments)
		warn("cannot read " SAVED_FILE);
	else if (access(FOLDER, W_OK))
		tell_unwritten(-errno);
	else
		is_good = (!of_pools || pools_can_be_saved()) && read_saved(saved, comments);
	if (comments)
		fclose(comments);
	free(saved);
	return is_good;
}

bool saved_change(bool (*change)(struct saved *saved, const void *context), const void *context)
{
	struct saved *saved = malloc(sizeof(*saved));
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);
	int folder = lock_rules(), err = folder < 0 ? folder : 0;
	bool is_good = false;

	if (!saved || !out)
		err = -ENOMEM;
	if (err) {
		tell_unwritten(err);
		goto out;
	}
	if (!read_saved(saved, out) || !change(saved, context))
		goto out;
	print_rules(saved, out);
	if (fflush(out))
		err = -ENOMEM;
	if (!err && strcmp(text, header) && length > file_bytes_limit()) {
		warnx("cannot write " SAVED_FILE ": it needs %zu bytes, but RLIMIT_FSIZE of this command is %" PRIu64 "; nothing is saved; raise it with `ulimit -f`",
		      length, file_bytes_limit());
		goto out;
	}
	if (!err)
		err = strcmp(text, header) ? replace_file(text, length) : remove_file();
	is_good = !err || tell_unwritten(err);
	if (is_good && fsync(folder)) {
		warn(SAVED_FILE " is written, but a crash may undo that: cannot sync " FOLDER);
		is_good = false;
	}
	if (is_good && strcmp(text, header))
		tell_unloaded();
out:
	if (out)
		fclose(out);
	if (folder >= 0)
		close(folder);
	free(text);
	free(saved);
	return is_good;
}
