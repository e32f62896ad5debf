/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the benchmarks share. Each measurement is ours against a peer that does
 * the same work without actmem: rounds of the two in turn, in the same process.
 * A line of JSON for each goes to standard output, see bench_run(); report.py
 * makes the figures of it.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>

#define PAGE_BYTES	((size_t)2 << 20)
#define ROUNDS_MAX	256

/**
 * struct contest - one measurement
 * @bench: its name
 * @peer_name: what it is compared with
 * @unit: "ms", or "GiB/s" of @bytes
 * @bytes: what either side makes, copies or transfers in one round
 * @rounds: of each, at most ROUNDS_MAX
 * @ours: one round of it; returns seconds, or a negative number where it failed
 * @peer: the same of the peer
 * @aim: the ratio that ours should reach; 0: 1
 */
struct contest {
	const char *bench;
	const char *peer_name;
	const char *unit;
	size_t bytes;
	int rounds;
	double (*ours)(const struct contest *contest);
	double (*peer)(const struct contest *contest);
	double aim;
};

/* Given --smoke: small sizes and few rounds, to see that the program runs. */
extern bool bench_is_smoke;

/* @operand: what a word other than --smoke names, NULL if there is to be none. */
const char *bench_begin(int argc, char **argv, const char *operand);

/* The figure, or the other one in a smoke run. */
size_t bench_size(size_t bytes, size_t smoke_bytes);

/* 0, or 1 where a round failed. */
int bench_run(const struct contest *contest);

/* Says that this kernel or driver cannot do what is to be measured. */
void bench_leave_out(const char *bench, const char *why);

double bench_seconds(void);

/* Says what failed, with errno in words; a negative number of seconds. */
double bench_fail(const char *what);

/* Only on the processors of this node; of all nodes if it is negative. */
void bench_run_on(int node);

int bench_processors(void);

/* A region of the node, made by the library as a program's is: the descriptor, or -1. */
int bench_region(int node, size_t bytes);

/* A file of hugetlb pages. bench_reserve() has to have reserved them: -1 if not. */
int bench_hugetlb(size_t bytes);

/* Reserves hugetlb pages of the node, and only those; 0 or -1. */
int bench_reserve(int node, size_t bytes);

/* Sets the node's pool, and waits until it is full; 0 or -1. */
int bench_pool(int node, size_t bytes);

/* Maps a file with its pages there, or NULL. */
void *bench_map(int fd, size_t bytes, int flags);

/* Writes a byte to each page. */
void bench_touch(void *memory, size_t bytes);

#endif
