/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem_queue.h>
#include <stdio.h>

int main(void)
{
	struct actmem_queue *queue;
	struct actmem *am;

	if (actmem_open(&am, NULL) || actmem_queue_create(am, NULL, &queue)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	puts(actmem_queue_describe(queue));
	actmem_queue_destroy(queue);
	return actmem_close(am) != 0;
}
