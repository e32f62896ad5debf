/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Tries the fallbacks of the memfd backend one after another: smaller pages on the requested nodes
 * before pages on other nodes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/memfd/pages.h"
#include "region/memfd/steps.h"

/* Changes @attempt to the next fallback that @request allows. Returns false if there is none. */
static bool next_fallback(const struct region_request *request, struct region_request *attempt)
{
	unsigned int node = request_node(request);

	if (attempt->pages == ACTMEM_PAGES_1G && request->allow & ACTMEM_ALLOW_2M) {
		attempt->pages = ACTMEM_PAGES_2M;
		return true;
	}
	if (pages_are_hugetlb(attempt->pages) && request->allow & ACTMEM_ALLOW_THP) {
		attempt->pages = ACTMEM_PAGES_THP;
		return true;
	}
	if (attempt->pages != ACTMEM_PAGES_4K && request->allow & ACTMEM_ALLOW_4K) {
		attempt->pages = ACTMEM_PAGES_4K;
		return true;
	}
	if (attempt->policy == ACTMEM_PLACE_PREFERRED || !(request->allow & ACTMEM_ALLOW_NODE))
		return false;
	attempt->pages = request->pages;
	attempt->policy = ACTMEM_PLACE_PREFERRED;
	memset(&attempt->nodes, 0, sizeof(attempt->nodes));
	if (node < ACTMEM_NODES_MAX)
		node_set(&attempt->nodes, node);
	return true;
}

bool steps_are_left(const struct region_request *attempt)
{
	struct region_request next = *attempt;

	return next_fallback(attempt, &next);
}

/* Appends this thread's error message to @history, unless @history already ends with it. */
static void append_history(char history[ERROR_TEXT_MAX])
{
	size_t used = strlen(history), length = strlen(fail_words());

	if (length && used >= length && !strcmp(history + used - length, fail_words()))
		return;
	snprintf(history + used, ERROR_TEXT_MAX - used, "%s%s", used ? "; then " : "",
		 fail_words());
}

int steps_make(int (*make)(const struct region_request *request, struct backing *backing),
	       const struct region_request *request, struct backing *backing)
{
	struct region_request attempt = *request;
	char history[ERROR_TEXT_MAX] = "", shortages[ERROR_TEXT_MAX] = "";
	unsigned int steps;
	int error;

	for (;;) {
		error = make(&attempt, backing);
		if (!error)
			break;
		append_history(history);
		if (error != -EOPNOTSUPP)
			append_history(shortages);
		if ((error != -ENOMEM && error != -EOPNOTSUPP) || !next_fallback(request, &attempt))
			break;
	}
	/* If the last attempt failed for lack of pages, do not report unsupported page sizes. */
	if (error)
		return fail(-error, "%s", error == -EOPNOTSUPP ? history : shortages);
	if (backing->fallbacks)
		append_history(history);
	steps = (attempt.pages != request->pages) + (attempt.policy != request->policy);
	backing->fallbacks += steps;
	backing->elsewhere = attempt.policy != request->policy;
	if (backing->fallbacks)
		fail(0, "%s%s%s%s", history, steps ? "; used " : "",
		     steps ? page_names[attempt.pages] : "",
		     attempt.policy != request->policy ? " on any node instead" :
		     steps ? " instead" : "");
	return 0;
}
