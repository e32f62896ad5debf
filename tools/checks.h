/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The checks of `actmem doctor`. Each check adds its findings to a JSON array: {"check", "state",
 * "finding", "fix"}. State "ok" needs no change. State "fix" means that something costs speed or
 * will fail, and that @fix repairs it. State "note" is for information only.
 */
#ifndef ACTMEM_CHECKS_H
#define ACTMEM_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>

#define CHECK_OK	"ok"
#define CHECK_FIX	"fix"
#define CHECK_NOTE	"note"

/* Adds a finding. @fix may be NULL. Returns 0 or -ENOMEM. */
__attribute__((format(printf, 5, 6)))
int add_finding(json_t *findings, const char *check, const char *state, const char *fix,
		const char *format, ...);

/* The folders to spill to, from --spill or ACTMEM_SPILL. */
struct spill_folders {
	char **paths;
	size_t count;
};

/*
 * Check memory: the driver, pages, limits and the pool (checks_memory.c). The caller reads the
 * facts (facts.h) once for all checks.
 */
int check_driver(json_t *findings, const json_t *driver, bool *is_usable);
int check_pages(json_t *findings, const json_t *nodes, bool has_driver);
int check_pools(json_t *findings, const json_t *nodes, bool has_driver);
int check_memlock(json_t *findings, const json_t *driver, bool has_driver);
int check_cgroup(json_t *findings);
int check_surplus(json_t *findings);

/* Check devices, files and the environment of the process (checks_devices.c). */
int check_io_uring(json_t *findings);
int check_spill(json_t *findings, const struct spill_folders *folders);
int check_devices(json_t *findings);
int check_balancing(json_t *findings);
int check_placement(json_t *findings);
int check_environment(json_t *findings);
int check_container(json_t *findings);

#endif
