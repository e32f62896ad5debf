/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the next dlsym() and dlvsym() after those of dlsym.S, and identifies libraries.
 *
 * This file cannot find the two functions by calling dlsym(), because that would call the preload's
 * dlsym(). So this file searches the libraries that the loader has mapped, with the same hash
 * tables as the loader. Sanitizers replace functions of the C library, and call dlsym() before
 * these replacements work. So this file calls no function of the C library until it has found the
 * two functions.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "preload/symbols.h"

/* Only glibc has these symbols. The preload must also load with other C libraries. */
#pragma weak _r_debug
#pragma weak dladdr1
#pragma weak gnu_get_libc_version
const char *gnu_get_libc_version(void);

/*
 * Only musl has this symbol. In musl's list of libraries, the structs begin with the same fields as
 * glibc's.
 */
extern const struct r_debug *_dl_debug_addr __attribute__((weak));

#ifdef __x86_64__
void *first_dlsym(void *handle, const char *name);
void *first_dlvsym(void *handle, const char *name, const char *version);
#endif

struct table {
	const ElfW(Sym) *symbols;
	const char *names;
	const uint32_t *gnu_hash;
	const uint32_t *hash;
};

struct symbol_search {
	void *dlsym, *dlvsym;
};

/* The dynamic section of this library. */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

/*
 * Converts an entry of a dynamic section to a pointer. Entries are offsets if the loader did not
 * relocate them, as in the vDSO.
 */
static const void *relocate(ElfW(Addr) base, ElfW(Addr) value)
{
	return (const void *)(value < base ? base + value : value);
}

static void read_table(struct table *table, ElfW(Addr) base, const ElfW(Dyn) *entry)
{
	*table = (struct table){ 0 };
	for (; entry->d_tag != DT_NULL; entry++) {
		const void *at = relocate(base, entry->d_un.d_ptr);

		if (entry->d_tag == DT_SYMTAB)
			table->symbols = at;
		else if (entry->d_tag == DT_STRTAB)
			table->names = at;
		else if (entry->d_tag == DT_GNU_HASH)
			table->gnu_hash = at;
		else if (entry->d_tag == DT_HASH)
			table->hash = at;
	}
}

static bool is_same(const char *one, const char *other)
{
	while (*one && *one == *other)
		one++, other++;
	return *one == *other;
}

static bool is_function(const struct table *table, uint32_t i, const char *name)
{
	const ElfW(Sym) *symbol = &table->symbols[i];

	return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
	       is_same(table->names + symbol->st_name, name);
}

/*
 * Searches the table of DT_GNU_HASH. The table begins with four numbers: the number of buckets, the
 * index of the first symbol in the buckets, the number of words in a Bloom filter, and the filter's
 * shift. The filter, the buckets and the chains follow these numbers. Returns 0 if the name is not
 * found.
 */
static uint32_t find_by_gnu_hash(const struct table *table, const char *name)
{
	const uint32_t *head = table->gnu_hash, buckets = head[0], first = head[1];
	const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(head + 4) + head[2]);
	const uint32_t *chain = bucket + buckets;
	uint32_t wanted = 5381, i;
	const char *at;

	for (at = name; *at; at++)
		wanted = wanted * 33 + (unsigned char)*at;
	i = buckets ? bucket[wanted % buckets] : 0;
	if (i < first)
		return 0;
	for (;; i++) {
		if ((chain[i - first] | 1) == (wanted | 1) && is_function(table, i, name))
			return i;
		if (chain[i - first] & 1)
			return 0;
	}
}

static uint32_t find_by_hash(const struct table *table, const char *name)
{
	const uint32_t buckets = table->hash[0], *bucket = table->hash + 2;
	const uint32_t *chain = bucket + buckets;
	uint32_t wanted = 0, i;
	const char *at;

	for (at = name; *at; at++) {
		wanted = (wanted << 4) + (unsigned char)*at;
		wanted = (wanted ^ (wanted >> 24 & 0xf0)) & 0x0fffffff;
	}
	for (i = buckets ? bucket[wanted % buckets] : 0; i; i = chain[i])
		if (is_function(table, i, name))
			return i;
	return 0;
}

static void *find_function(const struct table *table, ElfW(Addr) base, const char *name)
{
	uint32_t i = 0;

	if (!table->symbols || !table->names)
		return NULL;
	if (table->gnu_hash)
		i = find_by_gnu_hash(table, name);
	else if (table->hash)
		i = find_by_hash(table, name);
	return i ? (void *)(base + table->symbols[i].st_value) : NULL;
}

static const ElfW(Dyn) *dynamic_of(const struct dl_phdr_info *object)
{
	int i;

	for (i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const ElfW(Dyn) *)(object->dlpi_addr +
						   object->dlpi_phdr[i].p_vaddr);
	return NULL;
}

static void set_first(void **place, void *found)
{
	if (!*place)
		*place = found;
}

/* Searches @library for the functions that were not found yet. */
static void search_library(struct symbol_search *search, const struct link_map *library)
{
	struct table table;

	read_table(&table, library->l_addr, library->l_ld);
	set_first(&search->dlsym, find_function(&table, library->l_addr, "dlsym"));
	set_first(&search->dlvsym, find_function(&table, library->l_addr, "dlvsym"));
}

static const struct link_map *first_library(void)
{
	if (&_r_debug)
		return _r_debug.r_map;
	return &_dl_debug_addr && _dl_debug_addr ? _dl_debug_addr->r_map : NULL;
}

bool is_glibc(void)
{
	return &_r_debug && dladdr1 && gnu_get_libc_version;
}

static void *no_dlsym(void *handle, const char *name)
{
	return NULL;
}

static void *no_dlvsym(void *handle, const char *name, const char *version)
{
	return NULL;
}

static void say_none_found(void)
{
	static const char line[] =
		"actmem: the preload found no dlsym() of the C library, so lookups fail; run the program without the preload\n";

	if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
		return;
}

/*
 * The loader's list has the libraries in the order in which the loader searches them. If this
 * library was loaded without LD_PRELOAD, after the program's start, the libraries to search are
 * before this library in the list.
 *
 * This function reads the list without the loader's lock. This is safe because the program has only
 * one thread when it starts, and the libraries at the beginning of the list are never unloaded.
 */
void symbols_find_next(void)
{
	const struct link_map *first = first_library(), *library, *ours;
	struct symbol_search found = { NULL, NULL };

	for (ours = first; ours && ours->l_ld != _DYNAMIC; ours = ours->l_next)
		;
	for (library = ours ? ours->l_next : NULL; library && !(found.dlsym && found.dlvsym);
	     library = library->l_next)
		search_library(&found, library);
	for (library = first; library && library != ours && !(found.dlsym && found.dlvsym);
	     library = library->l_next)
		search_library(&found, library);
	/* C libraries other than glibc have no dlvsym(). */
	if (!found.dlsym || (!found.dlvsym && is_glibc()))
		say_none_found();
	set_first(&found.dlsym, (void *)no_dlsym);
	set_first(&found.dlvsym, (void *)no_dlvsym);
	__atomic_store_n((void **)&next_dlsym, found.dlsym, __ATOMIC_RELEASE);
	__atomic_store_n((void **)&next_dlvsym, found.dlvsym, __ATOMIC_RELEASE);
}

bool symbols_come_first(const char *name)
{
	const struct link_map *library = first_library();
	struct table table;

	for (; library && library->l_ld != _DYNAMIC; library = library->l_next) {
		read_table(&table, library->l_addr, library->l_ld);
		if (find_function(&table, library->l_addr, name))
			return false;
	}
	return library;
}

#ifndef __x86_64__

/*
 * On architectures other than x86-64, programs call the C library's dlsym(), so the preload does
 * not see when a program looks up CUDA's functions.
 */
static void *first_dlsym(void *handle, const char *name)
{
	symbols_find_next();
	return next_dlsym(handle, name);
}

static void *first_dlvsym(void *handle, const char *name, const char *version)
{
	symbols_find_next();
	return next_dlvsym(handle, name, version);
}

#endif

void *(*next_dlsym)(void *handle, const char *name) = first_dlsym;
void *(*next_dlvsym)(void *handle, const char *name, const char *version) = first_dlvsym;

struct link_map *library_of(const void *address)
{
	struct link_map *library;
	Dl_info info;

	if (!dladdr1 || !dladdr1(address, &info, (void **)&library, RTLD_DL_LINKMAP))
		return NULL;
	return library;
}

static const char *soname_in(ElfW(Addr) base, const ElfW(Dyn) *entry)
{
	const char *names = NULL;
	ElfW(Addr) name = 0;

	for (; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_STRTAB)
			names = relocate(base, entry->d_un.d_ptr);
		else if (entry->d_tag == DT_SONAME)
			name = entry->d_un.d_val;
	}
	return names && name ? names + name : "";
}

const char *library_soname(const struct link_map *library)
{
	return soname_in(library->l_addr, library->l_ld);
}

struct wanted_symbol {
	const char *soname;
	const void *dynamic;
};

static int is_wanted_object(struct dl_phdr_info *object, size_t size, void *data)
{
	const ElfW(Dyn) *dynamic = dynamic_of(object);
	struct wanted_symbol *wanted = data;

	if (!dynamic || strcmp(soname_in(object->dlpi_addr, dynamic), wanted->soname))
		return 0;
	wanted->dynamic = dynamic;
	return 1;
}

struct link_map *library_loaded(const char *soname)
{
	struct wanted_symbol wanted = { soname, NULL };

	/*
	 * Do not call library_of() in the callback: the loader holds a lock during the callback,
	 * and library_of() takes a second lock. Elsewhere the loader takes these two locks in the
	 * opposite order, so a deadlock would be possible.
	 */
	return dl_iterate_phdr(is_wanted_object, &wanted) ? library_of(wanted.dynamic) : NULL;
}
