/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the test programs share. They run unchanged on both backends; the
 * environment (ACTMEM_BACKEND, ACTMEM_PAGES) says on which and with which pages.
 */
#ifndef TESTS_COMMON_H
#define TESTS_COMMON_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "actmem.h"
#include "tap.h"

#define MIB		(1ULL << 20)
#define LENGTH		(8 * MIB)

struct usage {
	unsigned int descriptors;
	unsigned int mappings;		/* of regions */
};

/* Opens what the environment asks for, or bails out. */
struct actmem *open_or_bail(void);

/* A region of LENGTH bytes, or bails out. */
struct actmem_region *region_or_bail(struct actmem *am, const char *name);

/* As actmem_region_create(), with these options alone. */
int create_region(struct actmem *am, uint64_t length, uint32_t flags,
		  struct actmem_region **region);

char *memory_or_bail(struct actmem_region *region);
struct actmem_counters counters_of(struct actmem *am);
uint64_t fallbacks(struct actmem *am);

/* Its figures of nodes are the same array at each call. */
struct actmem_region_info info_or_bail(struct actmem_region *region);
uint64_t bytes_on_nodes(const struct actmem_region_info *info);

/* What the environment asks for, DEFAULT replaced. */
enum actmem_pages pages_wanted(void);
bool on_driver(struct actmem *am);
uint64_t page_bytes_wanted(void);

/* What this process holds now; asserts that it is the same as @before. */
struct usage usage_now(void);
void same_usage(struct usage before);

/* Asserts that everything that can return to 0 has. */
void counters_are_zero(struct actmem *am);

/*
 * All that a program returns: its tests one after the other, with a handle, of which nothing
 * is left; and the end of that alone.
 */
#define RUN_TESTS(...)	run_tests((void (*[])(struct actmem *am)){ __VA_ARGS__, NULL })
int run_tests(void (**tests)(struct actmem *am));
int end_tests(struct actmem *am, struct usage before);

/* The same for root, with a file system of the program's own, see mount_own(). */
#define RUN_MOUNTED_TESTS(...)	\
	run_mounted_tests((void (*[])(struct actmem *am)){ __VA_ARGS__, NULL })
int run_mounted_tests(void (**tests)(struct actmem *am));
extern const char *mount_folder;

pthread_t start_thread(void *(*body)(void *context), void *context);

/* Root too locks no more than that from now on, where what is locked counts. */
bool lower_memlock(uint64_t bytes);
bool memlock_counts(struct actmem *am);

/* Whether the machine has a region of that name, of whatever process. */
bool region_is_listed(const char *name);

/* Whether each of @length bytes, at least one, is this one. */
bool all_bytes(const void *memory, uint64_t length, unsigned char byte);

/* Nodes that have memory and that this task may use. */
struct actmem_nodes usable_nodes(void);
bool has_node(const struct actmem_nodes *nodes, unsigned int node);
void add_node(struct actmem_nodes *nodes, unsigned int node);

/* All bytes of a node, rounded up to more than it can give. */
uint64_t node_total(unsigned int node);

/* The node of a page of this process, by the kernel's own word. */
int node_of(void *address);

/* Waits for @child; true if it exited with 0. */
bool child_passed(pid_t child);

/* Runs @body in a child; true if it returned true. */
bool in_child(bool (*body)(void *context), void *context);

/* Whether a call refused a forked child its parent's handle, in words. */
bool refused(int returned);

/*
 * A child in @body, which is to end by kill_and_wait() alone, when it has written the
 * byte to @begun that it is given; bails out if it ends before that.
 */
pid_t begin_child(void (*body)(void *context, int begun), void *context);

/* Whether it had not ended before. */
bool kill_and_wait(pid_t child);

/* Such a child that keeps what @hold opens, and ends at once if that returns false. */
pid_t holder(bool (*hold)(void *context), void *context);

/* Ends the program, all skipped, for other users than root. */
void skip_without_root(void);

/*
 * Root mounts a file system for named regions, of MOUNT_BYTES, that nobody else
 * sees; tells its folder. Asserts at the end that nothing is left in it.
 */
#define MOUNT_BYTES	(40 * MIB)
const char *mount_own(struct actmem *am);
void unmount_own(const char *folder);
unsigned int count_files(const char *folder);

#endif /* TESTS_COMMON_H */
