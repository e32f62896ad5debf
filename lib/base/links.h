/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Doubly linked lists whose links are embedded in the items. A list head is a link, too. An empty
 * list points to itself, as does an item that is on no list.
 */
#ifndef LIB_BASE_LINKS_H
#define LIB_BASE_LINKS_H

#include <stdbool.h>
#include <stddef.h>

struct link {
	struct link *next, *previous;
};

/* Returns the struct of @type whose @field is this link. */
#define link_item(link, type, field)	\
	((type *)(void *)((char *)(link) - offsetof(type, field)))

static inline void link_init(struct link *link)
{
	link->next = link;
	link->previous = link;
}

/* Returns true if a list is empty, or if an item is on no list. */
static inline bool link_is_alone(const struct link *link)
{
	return link->next == link;
}

static inline void link_insert_before(struct link *place, struct link *link)
{
	link->next = place;
	link->previous = place->previous;
	place->previous->next = link;
	place->previous = link;
}

static inline void link_prepend(struct link *list, struct link *link)
{
	link_insert_before(list->next, link);
}

static inline void link_append(struct link *list, struct link *link)
{
	link_insert_before(list, link);
}

static inline void link_remove(struct link *link)
{
	link->next->previous = link->previous;
	link->previous->next = link->next;
	link_init(link);
}

#endif /* LIB_BASE_LINKS_H */
