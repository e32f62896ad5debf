// SPDX-License-Identifier: GPL-2.0
/* How is a file without a page cache spliced into a pipe? */
#include <linux/fs.h>
#include <linux/splice.h>

extern const struct file_operations probe;
const struct file_operations probe = {
#if PROBE
	.splice_read = copy_splice_read,
#else
	.splice_read = generic_file_splice_read,
#endif
};
