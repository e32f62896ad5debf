/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Metrics over HTTP, by libmicrohttpd. */
#ifndef ACTMEM_SERVE_H
#define ACTMEM_SERVE_H

/*
 * Answers requests for /metrics at @address, such as 127.0.0.1:19475 or [::1]:19475, until SIGTERM
 * or SIGINT. Returns an enum exit_status after printing any error message.
 */
int serve_metrics(const char *address);

#endif
