// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reports threads that wait for a GPU; see device_wait.h. The lock is the innermost one, and no
 * thread holds it in a call that waits.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "actmem_runtime.h"
#include "xla/device_wait.h"

#define WORDS	256		/* longer than the text that is shown */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct actmem *teller;
static struct device_wait *waits;	/* that @teller reports */

static void add_wait(struct device_wait *wait)
{
	wait->next = waits;
	wait->link = &waits;
	if (waits)
		waits->link = &wait->next;
	waits = wait;
}

static void remove_wait(struct device_wait *wait)
{
	actmem_device_wait_end(teller, wait->told);
	*wait->link = wait->next;
	if (wait->next)
		wait->next->link = wait->link;
	wait->link = NULL;
}

void device_wait_begin(struct device_wait *wait, uint32_t device, uint64_t bytes,
		       const char *what, const char *where)
{
	char words[WORDS];

	snprintf(words, sizeof(words), "GPU %" PRIu32 ": %s%s%s", device, what,
		 where ? " " : "", where ? where : "");
	wait->link = NULL;
	pthread_mutex_lock(&lock);
	if (teller) {
		wait->told = actmem_device_wait_begin(teller, bytes, words);
		add_wait(wait);
	}
	pthread_mutex_unlock(&lock);
}

void device_wait_end(struct device_wait *wait)
{
	pthread_mutex_lock(&lock);
	if (wait->link)
		remove_wait(wait);
	pthread_mutex_unlock(&lock);
}

void device_waits_by(struct actmem *am)
{
	pthread_mutex_lock(&lock);
	while (waits)
		remove_wait(waits);
	teller = am;
	pthread_mutex_unlock(&lock);
}
