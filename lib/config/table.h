/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The table of knobs (options that users set). No other file lists the variables ACTMEM_* and their
 * values. Error messages, the section ENVIRONMENT of actmem(1), and `actmem run --help` come from
 * this table.
 *
 * A row is (ID, name in C, option of `actmem run`, argument of Python, option of
 * `actmem replay`, fields of struct knob_info). "" means that the knob has no such name.
 */
#ifndef LIB_CONFIG_TABLE_H
#define LIB_CONFIG_TABLE_H

#define KNOB_TABLE(f)									\
	f(BACKEND, "backend", "--backend", "backend=", "", .kind = KNOB_WORD,		\
	  .words = "auto, driver, memfd", .initial = "auto", .parts = PART_OPEN)	\
	f(PAGES, "pages", "--pages", "pages=", "", .kind = KNOB_WORD,			\
	  .words = "2M, thp, 4K, 1G", .first = 1, .parts = PART_OPEN)			\
	f(NODES, "nodes", "--nodes", "nodes=", "", .kind = KNOB_TEXT,			\
	  .words = "a list such as 0,2-3 of nodes below 1024",				\
	  .parts = PART_OPEN | PART_MALLOC)						\
	f(POLICY, "policy", "--policy", "policy=", "ACTMEM_POLICY", .kind = KNOB_WORD,	\
	  .words = "bind, preferred, interleave", .first = 1,				\
	  .parts = PART_OPEN | PART_MALLOC)						\
	f(ALLOW, "allow", "--allow", "allow=", "", .kind = KNOB_WORDS,			\
	  .words = "thp, 4k, node, unlocked, 2m, any", .parts = PART_OPEN)		\
	f(NAME, "heap_name", "--name", "name=", "ACTMEM_NAME", .kind = KNOB_TEXT,	\
	  .words = "a name or a path", .parts = PART_OPEN)				\
	f(HEAP_GROW, "grow_bytes", "--heap-grow", "heap_grow=", "--budget",		\
	  .kind = KNOB_SIZE, .least = 1, .most = INT64_MAX,				\
	  .about = "Default: 64M; 16M for CUDA.", .parts = PART_PYTHON | PART_CUDA)	\
	f(HEAP_LIMIT, "limit_bytes", "--heap-limit", "heap_limit=", "--budget",		\
	  .kind = KNOB_SIZE, .about = "0: no limit.", .parts = PART_PYTHON | PART_CUDA)	\
	f(BUDGET, "budget_bytes", "--budget", "budget=", "--budget",			\
	  .kind = KNOB_SIZE, .about = "0: no budget.", .parts = PART_PYTHON)		\
	f(SPILL, "spill_paths", "--spill", "spill=", "--spill", .kind = KNOB_TEXT,	\
	  .words = "1 to 64 directories with a ':' between them", .parts = PART_PYTHON)	\
	f(SPILL_LIMIT, "spill_limit_bytes", "--spill-limit", "spill_limit=", "",	\
	  .kind = KNOB_SIZE, .least = 2 << 20, .or_zero = true,				\
	  .about = "0: no limit.", .parts = PART_PYTHON)				\
	f(SPILL_ALLOW, "flags", "--spill-allow", "spill_allow=", "",			\
	  .kind = KNOB_WORDS, .words = "memory, buffered", .first = 1,			\
	  .parts = PART_PYTHON)								\
	f(DEVICE_RING, "", "--device-ring", "device_ring=", "", .kind = KNOB_SIZE,	\
	  .least = 128 << 10, .initial = "512M", .parts = PART_PYTHON)			\
	f(STRICT, "", "--strict", "", "", .kind = KNOB_SWITCH,				\
	  .about = "1: worse memory than the program asked for is an error.",		\
	  .parts = PART_LIBRARY | PART_PYTHON | PART_CUDA)				\
	f(CUDA, "", "", "", "", .kind = KNOB_SWITCH,					\
	  .about = "*actmem run* sets it to 0 if it is 0 already, or with *--no-cuda*; otherwise to 1. If it is not set, the preload leaves CUDA alone.", \
	  .parts = PART_PRELOAD)							\
	f(CUDA_MIN, "", "--cuda-min", "", "", .kind = KNOB_SIZE, .least = 4096,		\
	  .initial = "1M", .parts = PART_CUDA)						\
	f(CUDA_KEEP, "", "", "", "", .kind = KNOB_SIZE, .initial = "4G",		\
	  .about = "How many bytes each device's heap keeps registered after *cuMemFreeHost*, for later requests. Beyond this, unnamed regions without a block in use are closed.", \
	  .parts = PART_CUDA)								\
	f(MALLOC, "", "--malloc", "", "", .kind = KNOB_SWITCH,				\
	  .about = "Unless it is 1, the preload leaves malloc alone.", .parts = PART_PRELOAD) \
	f(MALLOC_MIN, "", "", "", "", .kind = KNOB_SIZE, .least = 4096, .initial = "256K", \
	  .about = "Blocks of at least this length come from the pool.", .parts = PART_MALLOC) \
	f(MALLOC_DECAY, "", "", "", "", .kind = KNOB_NUMBER, .words = "never",		\
	  .unit = "seconds", .most = 365 * 24 * 3600, .initial = "10",			\
	  .about = "How long the pool keeps freed bytes.", .parts = PART_MALLOC)	\
	f(OFFLOAD, "", "--offload", "", "", .kind = KNOB_SWITCH,			\
	  .about = "0: the option has no effect.", .parts = PART_START)			\
	f(JAX_REPORT, "", "--report", "", "", .kind = KNOB_SWITCH, .parts = PART_START)	\
	f(JAX_GENERATIONS, "", "", "", "", .kind = KNOB_NUMBER, .unit = "passes",	\
	  .initial = "2",								\
	  .about = "How many forward passes of a checkpointed function may be unfinished. If there is one more, the blocks of the oldest pass are reclaimed. 0: no limit.", \
	  .parts = PART_START)								\
	f(UPDATE_THREADS, "", "", "", "", .kind = KNOB_NUMBER, .unit = "threads",	\
	  .most = 8192,									\
	  .about = "How many threads of each NUMA node compute the updates of an optimizer on the host. 0, the default: one for each core that the process may use.", \
	  .parts = PART_PYTHON)								\
	f(QUIET, "", "--quiet", "", "", .kind = KNOB_SWITCH,				\
	  .parts = PART_LIBRARY | PART_START)						\
	f(REPORTED, "", "", "", "", .kind = KNOB_SWITCH,				\
	  .about = "*actmem run* sets it to 1 after it has reported which memory the program will get.", \
	  .parts = PART_LIBRARY)							\
	f(VERBOSE, "", "--verbose", "", "", .kind = KNOB_SWITCH,			\
	  .about = "The preload reports on stderr when the program's first memory for CUDA comes from regions.", \
	  .parts = PART_PRELOAD)							\
	f(LIBDIR, "", "", "", "", .kind = KNOB_TEXT, .words = "a folder",		\
	  .about = "The folder of libactmem, if that is not the folder of the Python module. *actmem run* sets it in the source tree.", \
	  .parts = PART_START)

/*
 * Values of variables, for error messages: (ID, ID of the variable, value, names as in KNOB_TABLE).
 */
#define KNOB_VALUES(f)									\
	f(ALLOW_2M, ALLOW, "2m", "ACTMEM_ALLOW_2M", "--allow 2m", "allow=\"2m\"", "")	\
	f(ALLOW_THP, ALLOW, "thp", "ACTMEM_ALLOW_THP", "--allow thp", "allow=\"thp\"", "") \
	f(ALLOW_4K, ALLOW, "4k", "ACTMEM_ALLOW_4K", "--allow 4k", "allow=\"4k\"", "")	\
	f(ALLOW_THP_4K, ALLOW, "thp,4k", "ACTMEM_ALLOW_THP, ACTMEM_ALLOW_4K",		\
	  "--allow thp,4k", "allow=\"thp,4k\"", "")					\
	f(ALLOW_NODE, ALLOW, "node", "ACTMEM_ALLOW_NODE", "--allow node", "allow=\"node\"", "") \
	f(ALLOW_UNLOCKED, ALLOW, "unlocked", "ACTMEM_ALLOW_UNLOCKED", "--allow unlocked", \
	  "allow=\"unlocked\"", "")							\
	f(SPILL_ALLOW_BUFFERED, SPILL_ALLOW, "buffered", "ALLOW_BUFFERED",		\
	  "--spill-allow buffered", "spill_allow=\"buffered\"", "--allow-buffered")	\
	f(SPILL_ALLOW_MEMORY, SPILL_ALLOW, "memory", "ALLOW_MEMORY",			\
	  "--spill-allow memory", "spill_allow=\"memory\"", "--allow-memory")		\
	f(STRICT_ON, STRICT, "1", "STRICT", "--strict", "", "ACTMEM_STRICT=1")

#endif /* LIB_CONFIG_TABLE_H */
