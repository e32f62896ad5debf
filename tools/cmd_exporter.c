// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * actmem exporter: metrics for Prometheus, over HTTP or in a file for node_exporter.
 *
 * The exporter loads libmicrohttpd only when needed: that library loads TLS, which would slow down
 * the start of all other subcommands. One thread answers all requests, so no two requests collect
 * metrics at the same time.
 */
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HAVE_MICROHTTPD
#include <microhttpd.h>
#endif
#include "metrics.h"
#include "tool.h"

#define DEFAULT_ADDRESS	"127.0.0.1:19475"

static const char help[] =
	"Reports this machine to Prometheus: the driver, nodes, pools and limits, and, for each\n"
	"process, its counters and its memory by backend and page size. All values are collected\n"
	"anew for each request. SIGTERM ends the exporter. Only root sees other users' processes.\n"
	"\n"
	"  -l, --listen=ADDRESS  serve /metrics over HTTP at this address, such as [::1]:19475.\n"
	"                        Default: 127.0.0.1:19475\n"
	"  -t, --textfile=PATH   write the metrics once to this file, for the textfile collector\n"
	"                        of node_exporter, and exit. If PATH is -, write to standard\n"
	"                        output\n"
	"  -h, --help            print this";

/*
 * Gives the unnamed file the name @path. First links it under a temporary name, because linkat()
 * cannot replace a file, but rename() can.
 */
static int name_file(int fd, const char *path)
{
	char beside[PATH_MAX], place[32];

	if (snprintf(beside, sizeof(beside), "%s.%d", path, getpid()) >= (int)sizeof(beside))
		return -ENAMETOOLONG;
	snprintf(place, sizeof(place), "/proc/self/fd/%d", fd);
	if ((unlink(beside) && errno != ENOENT) ||
	    linkat(AT_FDCWD, place, AT_FDCWD, beside, AT_SYMLINK_FOLLOW))
		return -errno;
	if (rename(beside, path)) {
		int err = -errno;

		unlink(beside);
		return err;
	}
	return 0;
}

/*
 * Creates a regular file, or replaces one. Refuses to replace a device or a link, such as /dev/null
 * or /dev/stdout. The file gets its name only when it is complete, so a killed process leaves no
 * partial file.
 */
static int write_file(const char *path, const char *text, size_t length)
{
	struct stat found;
	char folder[PATH_MAX];
	char *slash;
	FILE *file;
	int fd, err;

	if (!lstat(path, &found) && !S_ISREG(found.st_mode))
		return -EEXIST;
	if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
		return -ENAMETOOLONG;
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	fd = open(slash ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
	file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file)
		return -errno;
	err = fchmod(fd, 0644) || fwrite(text, 1, length, file) != length || fflush(file) ?
	      -errno : name_file(fd, path);
	fclose(file);
	return err;
}

static int write_metrics(const char *path)
{
	size_t length;
	char *text = metrics_read(&length);
	int err = 0;

	if (!text)
		return STATUS_FAILED;
	if (!strcmp(path, "-"))
		fwrite(text, 1, length, stdout);
	else
		err = write_file(path, text, length);
	free(text);
	if (err)
		warnx("cannot write %s: %s", path, err == -EOPNOTSUPP ?
		      "its file system has no O_TMPFILE; choose another folder" : err == -EEXIST ?
		      "it is not a regular file; choose another path, or - for standard output" :
		      strerror(-err));
	return err ? STATUS_FAILED : STATUS_OK;
}

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
		warnx("cannot load libmicrohttpd: %s; install it (in Debian, libmicrohttpd12), or use --textfile",
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
	warnx("%s lacks functions that HTTP needs; use --textfile", LIBRARY);
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

static enum MHD_Result answer_request(void *context, struct MHD_Connection *connection,
				      const char *url, const char *method, const char *version,
				      const char *upload, size_t *upload_size, void **request)
{
	size_t length;
	char *text;

	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return send_text(connection, 405, "only GET and HEAD are supported\n");
	if (strcmp(url, "/metrics"))
		return send_text(connection, strcmp(url, "/") ? 404 : 200,
				 "actmem exporter: see /metrics\n");
	text = metrics_read(&length);
	if (!text)
		return send_text(connection, 500, "cannot read the metrics; see the exporter's log\n");
	return send_reply(connection, 200, "text/plain; version=0.0.4; charset=utf-8", text, length);
}

/* Splits an address such as 127.0.0.1:80 or [::1]:80 in place. Refuses a port above 65535. */
static bool split_address(char *address, const char **host, const char **port)
{
	char *colon = strrchr(address, ':');

	if (!colon || colon == address || !colon[1])
		return false;
	/* getaddrinfo() takes the port modulo 65536. */
	if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
	    atoi(colon + 1) > UINT16_MAX)
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
		warnx("--listen is '%s', but must be an address and a port up to 65535, such as 127.0.0.1:19475",
		      address);
		usage_hint();
		return -1;
	}
	err = getaddrinfo(host, port, &hints, &found);
	if (err) {
		warnx("cannot resolve '%s' (--listen): %s", address, gai_strerror(err));
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

/* Prints the address, because the kernel chooses the port if the user asked for port 0. */
static void print_address(int fd)
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

static int serve_metrics(const char *address)
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
	print_address(fd);
	sigwait(&ends, &signal);
	http.stop_daemon(daemon);
	return STATUS_OK;
}

#else

static int serve_metrics(const char *address)
{
	warnx("this command was built without libmicrohttpd, so it cannot serve HTTP; use --textfile");
	return STATUS_FAILED;
}

#endif

int cmd_exporter(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "textfile", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *address = NULL, *path = NULL;
	int option;

	ignore_closed_pipes();
	while ((option = getopt_long(argc, argv, "l:t:h", options, NULL)) != -1) {
		switch (option) {
		case 'l':
			address = optarg;
			break;
		case 't':
			path = optarg;
			break;
		case 'h':
			printf("Usage: %s [OPTION]...\n\n%s\n", program_invocation_short_name,
			       help);
			return STATUS_OK;
		default:
			return usage_hint();
		}
	}
	if (optind < argc) {
		warnx("unexpected argument '%s'", argv[optind]);
		return usage_hint();
	}
	if (address && path) {
		warnx("--listen and --textfile cannot be used together");
		return usage_hint();
	}
	return path ? write_metrics(path) : serve_metrics(address ?: DEFAULT_ADDRESS);
}
