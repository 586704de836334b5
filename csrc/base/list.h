/* SPDX-License-Identifier: BSD-3-Clause
 * Doubly linked lists, the kernel's kind: the links lie in the items. */
#ifndef NUPA_LIST_H
#define NUPA_LIST_H

#include <stdbool.h>
#include <stddef.h>

#ifndef container_of
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#endif

struct nupa_list {
	struct nupa_list *next, *prev;
};

static inline void nupa_list_init(struct nupa_list *list)
{
	list->next = list->prev = list;
}

static inline bool nupa_list_empty(const struct nupa_list *list)
{
	return list->next == list;
}

static inline void nupa_list_add(struct nupa_list *list, struct nupa_list *item)
{
	item->prev = list->prev;
	item->next = list;
	list->prev->next = item;
	list->prev = item;
}

static inline void nupa_list_del(struct nupa_list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	nupa_list_init(item);
}

/* Takes the first off; NULL: there is none. */
static inline struct nupa_list *nupa_list_pop(struct nupa_list *list)
{
	struct nupa_list *first = list->next;

	if (first == list)
		return NULL;
	nupa_list_del(first);
	return first;
}

#endif
