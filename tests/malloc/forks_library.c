/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <pthread.h>
#include <stdlib.h>

#include "forks_library.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void library_lock(void)
{
	pthread_mutex_lock(&mutex);
}

void library_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

__attribute__((constructor)) static void start(void)
{
	if (pthread_atfork(library_lock, library_unlock, library_unlock))
		abort();
}
