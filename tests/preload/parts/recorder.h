/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#ifndef PRELOAD_RECORDER_H
#define PRELOAD_RECORDER_H

#define RECORDS_MAX	4096

struct record {
	char name[64];
	int version;
	unsigned long long flags;
	void *function;			/* of the answer; NULL: there is none */
};

struct recorded {
	unsigned int count;
	struct record records[RECORDS_MAX];
};

#endif /* PRELOAD_RECORDER_H */
