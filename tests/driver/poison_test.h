/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of failing memory share: where a page really is, and the ways to
 * have it reported.
 */
#ifndef POISON_TEST_H
#define POISON_TEST_H

#include <setjmp.h>
#include <signal.h>

#include "frame_test.h"

#define CORRUPT_PFN	"/sys/kernel/debug/hwpoison/corrupt-pfn"

#define MCE	"/sys/kernel/debug/mce-inject"
/* Of a bank of the processor's: valid, enabled, with address and where in it to look. */
#define MCE_VALID	(1ULL << 63 | 1ULL << 60 | 1ULL << 59 | 1ULL << 58)
#define MCE_UNCORRECTED	(1ULL << 61)
/* The memory controller has failed to read. */
#define MCE_MEMORY_READ	0x90
/* The address is a physical one, of a small page. */
#define MCE_PHYSICAL	(2 << 6 | 12)

/* Has the kernel mark a small page, and tell nobody. */
static inline void mark_frame(uint64_t frame)
{
	char text[32];

	snprintf(text, sizeof(text), "%#llx", (unsigned long long)frame);
	put(CORRUPT_PFN, text);
}

static inline int set_mce(const char *name, unsigned long long value)
{
	char path[64], text[32];

	snprintf(path, sizeof(path), MCE "/%s", name);
	snprintf(text, sizeof(text), "%#llx", value);
	return put(path, text);
}

/* The kernel reports it to whoever wants to know, in its own time. */
static inline int report_mce(uint64_t frame, unsigned long long status)
{
	return put(MCE "/flags", "sw\n") ?: set_mce("addr", frame * SMALL) ?:
	       set_mce("misc", MCE_PHYSICAL) ?:
	       set_mce("status", MCE_VALID | MCE_MEMORY_READ | status) ?: set_mce("bank", 1);
}

static inline long poisoned_pages(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? -1 : (long)(now.poisoned_bytes / PAGE_BYTES);
}

/* Of all nodes, in regions or not. */
static inline long all_poisoned_pages(void)
{
	return node_sum("poisoned_bytes") / (long)PAGE_BYTES;
}

/*
 * Has the small page reported as one in which the processor has found an error, and
 * waits until the driver has dealt with that. 0 if it has.
 */
static inline int fail_frame(uint64_t frame)
{
	long before = all_poisoned_pages();
	int tries, err = report_mce(frame, MCE_UNCORRECTED);

	for (tries = 0; !err && all_poisoned_pages() == before; tries++) {
		if (tries == 3000)
			return -ETIMEDOUT;
		usleep(10000);
	}
	return err;
}

/* The same of the small page at @memory, which is mapped. */
static inline int fail_page(const char *memory)
{
	return fail_frame(frame_of(memory));
}

static sigjmp_buf after_signal;
static siginfo_t signal_told;

static inline void jump(int number, siginfo_t *told, void *context)
{
	(void)number;
	(void)context;
	signal_told = *told;
	siglongjmp(after_signal, 1);
}

/* The si_code of the SIGBUS that touching raises, 0 if it raises none. */
static inline int touch(volatile char *address, bool write)
{
	struct sigaction action = { .sa_sigaction = jump, .sa_flags = SA_SIGINFO }, old;
	int code = 0;

	sigaction(SIGBUS, &action, &old);
	if (sigsetjmp(after_signal, 1))
		code = signal_told.si_code;
	else if (write)
		*address = 1;
	else
		(void)*address;
	sigaction(SIGBUS, &old, NULL);
	return code;
}

#endif
