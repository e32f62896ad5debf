// SPDX-License-Identifier: GPL-2.0
/*
 * Does a large folio keep one count of all its mappings? Where it does,
 * folio_mapcount() is inline. The other way to count is that of kernels which
 * count a mapping of the whole in each page too; those in between have
 * neither, and are refused.
 */
#include <linux/mm.h>

int probe(struct folio *folio);
int probe(struct folio *folio)
{
#if PROBE
	return atomic_read(&folio->_large_mapcount) + folio_mapcount(folio);
#else
	return atomic_read(folio_mapcount_ptr(folio)) + __page_mapcount(&folio->page);
#endif
}
