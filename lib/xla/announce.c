/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Announced blocks. A token identifies a block. Tokens of a GPU's blocks are in the GPU's memory,
 * so the host must wait to read them. Therefore a program announces which blocks a layer will take,
 * before the layer takes them. The host then waits only once for all tokens of the layer; see
 * saved.h.
 *
 * The layer's calls of actmem_take depend on the announcement (actmem_tie; see call.h), so each
 * call runs after its announcement. A block is a candidate for a call if no other call has taken
 * the block yet, and if its announcement has the execution, device, site and number of the call. If
 * there is exactly one candidate, the call takes this block. In an unrolled loop, the next
 * iteration may also have announced its blocks. With two candidates, the host must read the token
 * from the device. Announcing a block that is not in the table is an error. If this error were
 * ignored, the only candidate for a call might be the block of another iteration.
 */
#include <string.h>

#include "xla/generation.h"
#include "xla/saved.h"
#include "xla/site.h"
#include "xla/table.h"

static struct saved *announced;

int saved_announce(uint64_t token, const struct origin *taker, uint32_t number, char *words)
{
	struct saved *block;
	int error = saved_check(words);

	if (error)
		return error;
	pthread_mutex_lock(&saved_lock);
	block = table_find(token);
	if (!block) {
		error = saved_explain_missing(token, words);
	} else if (block->examples == 1) {
		/*
		 * If another execution announced the block, that execution has failed and will take
		 * nothing.
		 */
		saved_unannounce(block);
		block->taker_run = taker->run;
		block->taker_number = number;
		block->announced_next = announced;
		block->announced_link = &announced;
		if (announced)
			announced->announced_link = &block->announced_next;
		announced = block;
	}
	pthread_mutex_unlock(&saved_lock);
	return error;
}

static bool is_for(const struct saved *block, const struct origin *taker, uint32_t number)
{
	const struct site *site = block->generation->site;

	return block->taker_run == taker->run && block->taker_number == number &&
	       block->device == taker->device && block->is_gpu == taker->is_gpu &&
	       site->name_length == taker->site_length &&
	       !memcmp(site->name, taker->site, taker->site_length);
}

uint64_t saved_announced(const struct origin *taker, uint32_t number, bool *is_staged)
{
	const struct saved *block, *found = NULL;
	unsigned int count = 0;
	uint64_t token = 0;

	if (!taker->site)
		return 0;
	pthread_mutex_lock(&saved_lock);
	for (block = announced; block; block = block->announced_next) {
		if (!is_for(block, taker, number))
			continue;
		found = block;
		count++;
	}
	if (count == 1) {
		token = found->token;
		*is_staged = !!found->staged;
	}
	pthread_mutex_unlock(&saved_lock);
	return token;
}
