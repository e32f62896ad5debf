/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Metrics over HTTP, by libmicrohttpd. */
#ifndef ACTMEM_SERVE_H
#define ACTMEM_SERVE_H

/*
 * Answers requests for /metrics at @address, as 127.0.0.1:19475 or [::1]:19475, until
 * SIGTERM or SIGINT. An enum exit_status: told why.
 */
int serve_metrics(const char *address);

#endif
