// SPDX-License-Identifier: GPL-2.0
/*
 * Is the index of a page of hugetlb in small pages, as that of all others? Where
 * it is in pages of its own size, a function makes small ones of it, which is not
 * exported.
 */
#include <linux/hugetlb.h>
#include <linux/pagemap.h>

#if PROBE
static pgoff_t hugetlb_basepage_index(struct page *page)
{
	return 0;
}
#endif

pgoff_t probe(struct page *page);
pgoff_t probe(struct page *page)
{
	return hugetlb_basepage_index(page);
}
