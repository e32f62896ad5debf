/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Makes system calls of the library fail. The calls are wrapped by the linker
 * (--wrap) and reach the kernel unless a test says otherwise.
 */
#ifndef UNIT_FAULTS_H
#define UNIT_FAULTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "actmem.h"
#include "actmem_queue.h"

/* The @nth wrapped call from now on (1: the next) fails as that call may. */
void fail_nth(unsigned int nth);

/* Whether that call was reached; disarms it. */
bool fail_nth_was_reached(void);

/*
 * Has each wrapped call that @run makes fail in turn, one a run, until it makes no further
 * one. @run stops at its first failure, undoes what it did (after fail_nothing(), if that is
 * not to fail too), and returns the error. Asserts that an error has words, that nothing is
 * held after a run, that more than @least runs end with an error, and the last with none.
 */
void fail_each(int (*run)(void *context), void *context, unsigned int least);

/* The @nth call of this name from now on fails with this errno. */
void fail_call(const char *call, unsigned int nth, int error);

/* Every call of this name fails so from now on. */
void fail_every(const char *call, int error);

/*
 * Every call of "fallocate", "punch", "memfd_create", "madvise" or "register_buffer" takes
 * so much longer from now on; and how many of these threads of that name have begun.
 * SLOW_HELD: until it is let go, one at a time.
 */
#define SLOW_HELD	UINT32_MAX
void slow_call(const char *call, unsigned int pause_us);
void let_slow_call(void);
unsigned int slow_calls_of(const char *thread);

/* Disks have so many bytes left to allocate, in all that is asked for from now on. */
void limit_disk(uint64_t bytes);

/* The calls are the kernel's again, and as fast as they are. */
void fail_nothing(void);

/*
 * /dev/actmem opens as a descriptor of nothing, and ioctl() on it asks @ioctl,
 * which returns 0 or an errno. NULL: the real ones.
 */
void fake_device(int (*ioctl)(int fd, unsigned long request, void *argument));

/* Threads may run on so many CPUs; 0: the truth. */
void fake_cpus(unsigned int count);

/* move_pages() says that every page is on this node; -1: the truth. */
void fake_node(int node);

/* Hugetlb memfds are refused, or are of small pages and so never short; HUGETLB_REAL: the truth. */
enum hugetlb { HUGETLB_REAL, HUGETLB_NONE, HUGETLB_PLENTY };
void fake_hugetlb(enum hugetlb hugetlb);

/* Where the tests of names have their files. */
#define NAMES_FOLDER	"/dev/shm"
#define NAMES_PREFIX	NAMES_FOLDER "/actmem-unit"

/* Every file system says that it is of this type; 0: the truth. */
void fake_file_system(long type);

/*
 * Of the transfers of a queue, whatever its engine, from the @first on (1: the
 * next) @count end with @result: bytes, instead of what they did, or a negative errno, and
 * then they have moved nothing.
 */
void fail_transfers(unsigned int first, unsigned int count, int result);

/* Transfers are asked to do no more than the half of what they should. */
void shorten_transfers(bool shorten);

/* Transfers of an engine that has workers begin only when they are let go again. */
void hold_transfers(bool hold);

/* How many of them are held, that is, were under way at a time. */
unsigned int held_transfers(void);

/* Those that a ring begins from now on end only when they are cancelled: the disk hangs. */
void hang_transfers(bool hang);

/* The next checksum is made when @meanwhile has returned. */
void before_checksum(void (*meanwhile)(void));

/* The next submission to a ring that does not wait is made when @meanwhile has returned. */
void before_submit(void (*meanwhile)(void));

struct holdings {
	unsigned int descriptors;
	unsigned int mappings;
};

/* What this process holds: descriptors, and mappings of memfds and of files in NAMES_FOLDER. */
struct holdings held_now(void);
void assert_same_held(struct holdings before);

/* As actmem_open(): memfds of such pages, and of those that every machine has. */
int open_memfd(struct actmem **am, enum actmem_pages pages, uint32_t allow);
int open_small(struct actmem **am);

/* As actmem_region_create(), with these options alone. */
int create_region(struct actmem *am, uint64_t length, uint32_t flags,
		  struct actmem_region **region);

/* Makes a heap, takes a block of it and gives all back; the first error. */
int live_of_heap(struct actmem *am, uint64_t grow_bytes);

/* As actmem_file_open(): one path, on a file system with direct I/O or without. */
int open_file_at(struct actmem_queue *queue, const char *path, uint32_t flags, uint64_t length,
		 struct actmem_file **file);

/* Asserts a negative errno and that the words have @part in them. */
void assert_fails(int got, int error, const char *part);

#endif /* UNIT_FAULTS_H */
