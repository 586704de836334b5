/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the files behind view.h. */
#ifndef NUPA_VIEW_INTERNAL_H
#define NUPA_VIEW_INTERNAL_H

#include "region/view/view.h"

#include <pthread.h>

#define NUPA_VIEW_MAPPINGS_MAX 32768u /* of one view; a process has 65530, vm.max_map_count */

struct nupa_view_watcher;

struct nupa_view {
	uint8_t *at;   /* the program's window */
	uint8_t *home; /* the memory: `at` itself, or what is behind a cache */
	uint8_t *twin; /* of a cache: what its lines held when they were fetched; else NULL */
	uint64_t bytes;
	uint64_t mapped;       /* in whole pages */
	uint32_t lost;         /* enum nupa_view_loss; stored once */
	pthread_mutex_t lines; /* of a cache: flush and invalidate, one at a time */
	/* view_list.c, under its lock. */
	struct nupa_view *next;
	struct nupa_view_watcher *watcher; /* of a region: who revokes it; else NULL */
	/* Of a region. */
	struct nupa_fabric *fabric; /* also of the pool: what is mapped */
	uint64_t region;
	uint32_t mapping;
	uint32_t host, home_host, links; /* nupa_region_linked */
};

/* view_map.c: the mappings of a view that has its plan: 0 or -errno. */
int nupa_view_map(struct nupa_view *view, int fd, uint64_t file_off,
		  const struct nupa_view_plan *plan);
void nupa_view_unmap(struct nupa_view *view);
/* Puts all ones over [at, +bytes), whole pages, at once for each of its bytes. */
void nupa_view_cover(uint8_t *at, uint64_t bytes);

/* view_lines.c: fetches all lines of a cache for the first time. */
void nupa_view_fill(struct nupa_view *view);

/* view_list.c: all views of this process have it from now on; of a region: it is watched.  0, or
 * -errno of what that takes. */
int nupa_view_enlist(struct nupa_view *view);

#endif
