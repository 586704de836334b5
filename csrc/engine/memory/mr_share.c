/* SPDX-License-Identifier: BSD-3-Clause
 * Regions whose pages are promoted (promote.h), so that peers load and store.  Around a fork all
 * memory has to be the program's own.
 *
 *   I1  No page is promoted, or made private, while a peer may write to it by a system call: the
 *       call would continue to write to the old page.
 *
 * So a region that such writes may reach, a *bare* one, keeps its pages as they are.  Its promoted
 * pages stay promoted (it has the ranges), and the rest is not promoted for others. */
#include "engine/memory/mr.h"

#include <errno.h>
#include <stdlib.h>

#define REACHED                                                                                    \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |             \
	 IBV_ACCESS_MW_BIND)

uint32_t nupa_forks;

/* Of all engines.  Taken below an engine's lock. */
static pthread_mutex_t bare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nupa_list bare = { &bare, &bare };
static uint32_t n_bare;
static uint32_t keepers; /* as long as there are any, nothing becomes private */
static bool all_away;    /* a fork: no peer writes to anything */

/* More than one looks through at each registration: then any is taken to overlap. */
#define BARE_MAX 1024u

static bool overlaps_bare(const struct nupa_mr_pages *pages)
{
	uintptr_t from = pages->va & ~(uintptr_t)(NUPA_PAGE_BYTES - 1);
	uintptr_t last = (pages->va + pages->length - 1) | (NUPA_PAGE_BYTES - 1);

	if (n_bare > BARE_MAX)
		return true;
	for (struct nupa_list *at = bare.next; at != &bare; at = at->next) {
		const struct nupa_mr_pages *other =
		    container_of(at, struct nupa_mr_pages, bare_link);

		if (other->va <= last && other->va + (other->length - 1) >= from)
			return true;
	}
	return false;
}

static bool is_whole(const struct nupa_mr_pages *pages)
{
	const struct nupa_shared_range *range = &pages->ranges[0];

	return pages->n == 1 && range->va <= pages->va &&
	       range->va + range->bytes >= pages->va + pages->length;
}

/* Whether peers may reach pages of it that are this process's own. */
static bool is_reached(const struct nupa_mr *mr)
{
	/* Nor is a dma-buf written to by peers' system calls. */
	return (mr->kind == NUPA_MR_MEMORY || mr->kind == NUPA_MR_ON_DEMAND) && !mr->dmabuf &&
	       mr->access & REACHED && mr->length;
}

/* Peers reach memory that is not promoted, or not in one piece, by the other movers. */
static void take(struct nupa_engine *engine, const struct nupa_mr *mr)
{
	bool wanted = mr->kind == NUPA_MR_MEMORY && (engine->forced_mover == NUPA_MOVER_NONE ||
						     engine->forced_mover == NUPA_MOVER_SHARED);
	struct nupa_mr_pages *pages = mr->pages;
	int n;

	*pages = (struct nupa_mr_pages){ .va = (uintptr_t)mr->va, .length = mr->length };
	pthread_mutex_lock(&bare_lock);
	if (wanted && (all_away || !overlaps_bare(pages)))
		n = nupa_promote(mr->va, mr->length, pages->ranges, NUPA_MR_RANGES);
	else
		n = nupa_promote_find(mr->va, mr->length, pages->ranges, NUPA_MR_RANGES);
	pages->n = n > 0 ? n : 0;
	pages->whole = wanted && is_whole(pages);
	if (!pages->whole) {
		pages->bare = true;
		pages->keeper = n < 0 || n == NUPA_MR_RANGES || mr->length > NUPA_PROMOTE_MAX_BYTES;
		keepers += pages->keeper;
		nupa_list_add(&bare, &pages->bare_link);
		n_bare++;
	}
	pthread_mutex_unlock(&bare_lock);
	if (pages->whole)
		nupa_store_release(&engine->slot->shared_fd, (uint32_t)nupa_promote_fd() + 1);
}

static void give_back(struct nupa_mr_pages *pages)
{
	if (!pages->bare && !pages->n)
		return;
	pthread_mutex_lock(&bare_lock);
	if (pages->bare) {
		nupa_list_del(&pages->bare_link);
		n_bare--;
		keepers -= pages->keeper;
		pages->bare = pages->keeper = false;
	}
	if (keepers && !all_away)
		pages->n = 0; /* never given back */
	pthread_mutex_unlock(&bare_lock);
	nupa_promote_release(pages->ranges, pages->n);
	pages->n = 0;
}

/* Again, if a fork before the lock was taken has made it private. */
int nupa_mr_share_and_lock(struct nupa_engine *engine, struct nupa_mr *mr)
{
	mr->pages = NULL;
	if (is_reached(mr)) {
		mr->pages = malloc(sizeof(*mr->pages));
		if (!mr->pages)
			return ENOMEM;
	}
	for (;;) {
		uint32_t forks = nupa_load_acquire(&nupa_forks);

		if (mr->pages)
			take(engine, mr);
		nupa_engine_lock(engine);
		if (!mr->pages || !mr->pages->n || forks == nupa_load_relaxed(&nupa_forks))
			return 0;
		nupa_engine_unlock(engine);
		give_back(mr->pages);
	}
}

void nupa_mr_unshare(struct nupa_mr_pages *pages)
{
	if (pages)
		give_back(pages);
	free(pages);
}

uint64_t nupa_mr_shared_offset(struct nupa_mr *mr)
{
	const struct nupa_mr *region = mr;

	if (mr->kind == NUPA_MR_WINDOW) /* only asked of bound ones */
		region = container_of(mr, struct nupa_mw, mr)->bound;
	if (!region->pages || !region->pages->whole)
		return UINT64_MAX;
	return region->pages->ranges[0].file_off +
	       ((uintptr_t)mr->va - region->pages->ranges[0].va);
}

/* --- forks --------------------------------------------------------------------------- */

/* The locks of all engines are held from the one to the other.  So no request is refused while a
 * key is away: it waits. */

void nupa_mr_hide_all(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];

		if (!mr || !(mr->access & REACHED || mr->pages) || !mr->known)
			continue;
		nupa_mr_withdraw(engine, i);
		mr->away = true;
	}
}

void nupa_mr_share_all(struct nupa_engine *engine)
{
	pthread_mutex_lock(&bare_lock);
	all_away = true;
	pthread_mutex_unlock(&bare_lock);
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];

		if (!mr || !mr->pages || !mr->pages->n)
			continue;
		give_back(mr->pages);
		take(engine, mr);
	}
	pthread_mutex_lock(&bare_lock);
	all_away = false;
	pthread_mutex_unlock(&bare_lock);
}

void nupa_mr_show_all(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];
		struct nupa_mr_entry *entry = &engine->mr_entries[i];

		if (!mr || !mr->away)
			continue;
		mr->away = false;
		nupa_store_relaxed(&entry->shared_off, nupa_mr_shared_offset(mr));
		nupa_mr_publish(engine, mr);
	}
}

/* The ranges are of the parent's memfd. */
void nupa_mr_forget_in_child(struct nupa_engine *engine)
{
	for (uint32_t i = 0; i < engine->mr_limit; i++) {
		struct nupa_mr *mr = engine->mrs[i];

		if (mr && mr->pages)
			*mr->pages = (struct nupa_mr_pages){ 0 };
	}
	pthread_mutex_init(&bare_lock, NULL);
	nupa_list_init(&bare);
	n_bare = keepers = 0;
}
