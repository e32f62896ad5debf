// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Serves the metrics over HTTP. It loads libmicrohttpd only when needed: that library loads TLS,
 * which would slow down the start of all other subcommands. Its one thread answers requests one
 * after the other, so that only one of them reads the machine at a time.
 */
#include <dlfcn.h>
#include <err.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef HAVE_MICROHTTPD
#include <microhttpd.h>
#endif
#include "metrics.h"
#include "serve.h"
#include "tool.h"

#ifdef HAVE_MICROHTTPD

#define LIBRARY		"libmicrohttpd.so.12"
#define BACKLOG		16
#define CONNECTIONS_MAX	32U
#define TIMEOUT_S	3U

static struct {
	__typeof__(&MHD_start_daemon) start_daemon;
	__typeof__(&MHD_stop_daemon) stop_daemon;
	__typeof__(&MHD_create_response_from_buffer) create_response_from_buffer;
	__typeof__(&MHD_add_response_header) add_response_header;
	__typeof__(&MHD_queue_response) queue_response;
	__typeof__(&MHD_destroy_response) destroy_response;
} http;

static bool load_library(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		warnx("HTTP needs libmicrohttpd (%s); install it (Debian's libmicrohttpd12), or use --textfile",
		      dlerror());
		return false;
	}
	http.start_daemon = dlsym(library, "MHD_start_daemon");
	http.stop_daemon = dlsym(library, "MHD_stop_daemon");
	http.create_response_from_buffer = dlsym(library, "MHD_create_response_from_buffer");
	http.add_response_header = dlsym(library, "MHD_add_response_header");
	http.queue_response = dlsym(library, "MHD_queue_response");
	http.destroy_response = dlsym(library, "MHD_destroy_response");
	if (http.start_daemon && http.stop_daemon && http.create_response_from_buffer &&
	    http.add_response_header && http.queue_response && http.destroy_response)
		return true;
	warnx("%s lacks what HTTP needs", LIBRARY);
	return false;
}

/* Sends @text, which is from malloc(), and frees it. */
static enum MHD_Result send_reply(struct MHD_Connection *connection, unsigned int status,
				  const char *type, char *text, size_t length)
{
	struct MHD_Response *response;
	enum MHD_Result result;

	response = text ? http.create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE)
			: NULL;
	if (!response) {
		free(text);
		return MHD_NO;
	}
	http.add_response_header(response, "Content-Type", type);
	result = http.queue_response(connection, status, response);
	http.destroy_response(response);
	return result;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned int status,
				 const char *words)
{
	return send_reply(connection, status, "text/plain; charset=utf-8", strdup(words),
			  strlen(words));
}

static enum MHD_Result answer_request(void *context, struct MHD_Connection *connection, const char *url,
				      const char *method, const char *version, const char *upload,
				      size_t *upload_size, void **request)
{
	size_t length;
	char *text;

	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return send_text(connection, 405, "only GET and HEAD\n");
	if (strcmp(url, "/metrics"))
		return send_text(connection, strcmp(url, "/") ? 404 : 200,
				 "actmem exporter: see /metrics\n");
	text = metrics_read(&length);
	if (!text)
		return send_text(connection, 500, "cannot read: see the exporter's log\n");
	return send_reply(connection, 200, "text/plain; version=0.0.4; charset=utf-8", text, length);
}

/* Splits an address such as 127.0.0.1:80 or [::1]:80 in place. */
static bool split_address(char *address, const char **host, const char **port)
{
	char *colon = strrchr(address, ':');

	if (!colon || colon == address || !colon[1])
		return false;
	*colon = '\0';
	*port = colon + 1;
	*host = address;
	if (*address == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		(*host)++;
	}
	return **host;
}

static int listen_there(const struct addrinfo *found)
{
	const int on = 1;
	int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);

	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG)) {
		close(fd);
		return -1;
	}
	return fd;
}

/*
 * Returns a listening socket. On failure, prints the error message, sets *@status and returns -1.
 */
static int listen_at(const char *address, int *status)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	char text[256];
	const char *host, *port;
	struct addrinfo *found;
	int err, fd;

	*status = STATUS_USAGE;
	if (snprintf(text, sizeof(text), "%s", address) >= (int)sizeof(text) ||
	    !split_address(text, &host, &port)) {
		warnx("'%s' is no address as 127.0.0.1:19475 (--listen)", address);
		usage_hint();
		return -1;
	}
	err = getaddrinfo(host, port, &hints, &found);
	if (err) {
		warnx("'%s' is no address: %s (--listen)", address, gai_strerror(err));
		usage_hint();
		return -1;
	}
	*status = STATUS_FAILED;
	fd = listen_there(found);
	if (fd < 0)
		warn("cannot listen at %s", address);
	freeaddrinfo(found);
	return fd;
}

/* Prints the address, because the kernel chooses the port if it is 0. */
static void tell_address(int fd)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getsockname(fd, (struct sockaddr *)&name, &length) ||
	    getnameinfo((struct sockaddr *)&name, length, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	printf(strchr(host, ':') ? "http://[%s]:%s/metrics\n" : "http://%s:%s/metrics\n", host,
	       port);
	fflush(stdout);
}

int serve_metrics(const char *address)
{
	struct MHD_Daemon *daemon;
	int fd, status, signal;
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	fd = listen_at(address, &status);
	if (fd < 0)
		return status;
	if (!load_library()) {
		close(fd);
		return STATUS_FAILED;
	}
	daemon = http.start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL,
				   answer_request, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
				   MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
				   MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S, MHD_OPTION_END);
	if (!daemon) {
		warn("cannot serve at %s", address);
		close(fd);
		return STATUS_FAILED;
	}
	tell_address(fd);
	sigwait(&ends, &signal);
	http.stop_daemon(daemon);
	return STATUS_OK;
}

#else

int serve_metrics(const char *address)
{
	warnx("this command was built without libmicrohttpd, and has no HTTP: use --textfile");
	return STATUS_FAILED;
}

#endif
