/* SPDX-License-Identifier: BSD-3-Clause
 * Views made and ended: of a file, of pool memory, of a region. */
#include "region/view/view.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/backing.h"
#include "region/region.h"
#include "segment/segment_internal.h"
#include "region/view/view_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLAN_BYTES_MAX (UINT64_C(1) << 46) /* half of an address space */

static uint64_t round_to_pages(uint64_t bytes)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

/* --- plans ----------------------------------------------------------------------- */

/* How much there is of the file that a plan's pieces lie in, and its name in messages. */
struct room {
	uint64_t bytes;
	const char *name;
};

/* The bytes of one of the pieces, which are neighbours. */
static uint64_t piece_bytes(const struct nupa_view_plan *plan, uint32_t piece)
{
	const uint64_t turns = plan->bytes / plan->granularity;

	return (turns - piece + plan->n_pieces - 1) / plan->n_pieces * plan->granularity;
}

static int check_pages(const struct nupa_view_plan *plan, char *why, size_t why_bytes)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (plan->granularity % page && plan->n_pieces > 1)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "its pieces take turns of %" PRIu64
				    " bytes, and a mapping has pages of %" PRIu64
				    ": use read and write of the host's bus instead of a window, "
				    "or interleave it by %" PRIu64 " bytes",
				    plan->granularity, page, page);
	if (plan->bytes % page)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "it has %" PRIu64 " bytes, and a mapping has pages of %" PRIu64,
				    plan->bytes, page);
	for (uint32_t i = 0; i < plan->n_pieces; i++)
		if (plan->pieces[i] % page)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "its piece %u is at %#" PRIx64
					    ", and a mapping has pages of %" PRIu64,
					    i, plan->pieces[i], page);
	return 0;
}

static int check_plan(struct nupa_view_plan *plan, struct room room, char *why, size_t why_bytes)
{
	if (plan->n_pieces == 1)
		plan->granularity = plan->bytes;
	if (plan->bytes == 0 || plan->bytes > PLAN_BYTES_MAX || plan->granularity == 0 ||
	    plan->bytes % plan->granularity || plan->n_pieces == 0 ||
	    plan->n_pieces > plan->bytes / plan->granularity)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "%u pieces that take turns of %" PRIu64
				    " bytes cannot have %" PRIu64 " bytes",
				    plan->n_pieces, plan->granularity, plan->bytes);
	for (uint32_t i = 0; i < plan->n_pieces; i++) {
		const uint64_t own = piece_bytes(plan, i);

		if (own > room.bytes || plan->pieces[i] > room.bytes - own)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "its piece %u, %" PRIu64 " bytes at %#" PRIx64
					    ", is not inside of the %s, which has %" PRIu64
					    " bytes",
					    i, own, plan->pieces[i], room.name, room.bytes);
	}
	return check_pages(plan, why, why_bytes);
}

static int explain_mapping(int rc, char *why, size_t why_bytes)
{
	if (rc == -E2BIG)
		return nupa_explain(rc, why, why_bytes,
				    "it takes more than %u mappings: map less of it at a time, or "
				    "interleave it by larger turns",
				    NUPA_VIEW_MAPPINGS_MAX);
	return nupa_explain(rc, why, why_bytes, "it cannot be mapped: %s", strerror(-rc));
}

/* --- made ------------------------------------------------------------------------ */

static void drop(struct nupa_view *view)
{
	nupa_view_unmap(view);
	if (view->fabric)
		nupa_fabric_put(view->fabric);
	pthread_mutex_destroy(&view->lines);
	free(view);
}

/* Of a region, whose place in the table is *mapping*. */
struct window {
	const struct nupa_region_info *info;
	uint32_t mapping, host;
};

/* Maps what a good plan says.  fabric NULL: of a file.  window NULL: of no region. */
static int make(struct nupa_fabric *fabric, int fd, const struct nupa_view_plan *plan,
		const struct window *window, struct nupa_view **out, char *why, size_t why_bytes)
{
	struct nupa_view *view = calloc(1, sizeof(*view));
	int rc;

	if (!view)
		return explain_mapping(-ENOMEM, why, why_bytes);
	pthread_mutex_init(&view->lines, NULL);
	view->fabric = fabric ? nupa_fabric_get(fabric) : NULL;
	view->bytes = plan->bytes;
	view->mapped = round_to_pages(plan->bytes);
	if (window) {
		view->region = window->info->id;
		view->home_host = window->info->home;
		view->links = window->info->links;
		view->mapping = window->mapping;
		view->host = window->host;
	}
	rc = nupa_view_map(view, fd, fabric ? fabric->geometry.pool_off : 0, plan);
	if (!rc)
		rc = nupa_view_enlist(view);
	if (rc) {
		drop(view);
		return explain_mapping(rc, why, why_bytes);
	}
	*out = view;
	return 0;
}

int nupa_view_of_file(int fd, const struct nupa_view_plan *wish, struct nupa_view **out, char *why,
		      size_t why_bytes)
{
	struct nupa_view_plan plan = *wish;
	struct stat status;
	int rc;

	if (fstat(fd, &status))
		return nupa_explain(-errno, why, why_bytes, "descriptor %d: %s", fd,
				    strerror(errno));
	if (!S_ISREG(status.st_mode))
		return nupa_explain(-EINVAL, why, why_bytes, "descriptor %d is not a file", fd);
	rc = check_plan(&plan, (struct room){ (uint64_t)status.st_size, "file" }, why, why_bytes);
	/* All of it is there, so that no access needs memory that there is not. */
	for (uint32_t i = 0; i < plan.n_pieces && !rc; i++) {
		rc = nupa_back_file(fd, plan.pieces[i], piece_bytes(&plan, i));
		if (rc)
			return explain_mapping(rc, why, why_bytes);
	}
	return rc ? rc : make(NULL, fd, &plan, NULL, out, why, why_bytes);
}

int nupa_view_of_pool(struct nupa_fabric *fabric, const struct nupa_view_plan *wish,
		      struct nupa_view **out, char *why, size_t why_bytes)
{
	struct nupa_view_plan plan = *wish;
	int rc;

	rc =
	    check_plan(&plan, (struct room){ fabric->geometry.pool_bytes, "pool" }, why, why_bytes);
	for (uint32_t i = 0; i < plan.n_pieces && !rc; i++) {
		rc = nupa_region_back(fabric, plan.pieces[i], piece_bytes(&plan, i));
		if (rc)
			return explain_mapping(rc, why, why_bytes);
	}
	return rc ? rc : make(fabric, fabric->fd, &plan, NULL, out, why, why_bytes);
}

/* --- of regions ------------------------------------------------------------------ */

static int explain_begin(int rc, uint32_t host, char *why, size_t why_bytes)
{
	if (rc == -EACCES)
		return nupa_explain(rc, why, why_bytes,
				    "it is not shared with host %u: its owner shares it", host);
	if (rc == -EPERM)
		return nupa_explain(
		    -EACCES, why, why_bytes,
		    "it belongs to another tenant than host %u: `nupa host ls` lists "
		    "tenants, `nupa partition join PARTITION device:TAG` gives a tenant "
		    "the memory of a tag",
		    host);
	if (rc == -ESTALE)
		return nupa_explain(rc, why, why_bytes, "it is gone: it was freed, or taken away");
	if (rc == -ENETDOWN)
		return nupa_explain(rc, why, why_bytes,
				    "a link between host %u and its memory is down: `nupa show` "
				    "lists ports, `nupa port` takes one up",
				    host);
	return nupa_explain(rc, why, why_bytes, "it cannot be mapped: %s", strerror(-rc));
}

static int map_region(struct nupa_fabric *fabric, const struct window *window,
		      struct nupa_view **out, char *why, size_t why_bytes)
{
	const struct nupa_region_info *info = window->info;
	struct nupa_view_plan plan = {
		.pieces = info->pieces,
		.n_pieces = info->ways,
		.software = info->coherence == NUPA_COHERENT_SOFTWARE,
		.granularity = info->granularity,
		/* The rest of its last extent is its own. */
		.bytes = info->published ? info->bytes : round_to_pages(info->bytes),
	};
	int rc;

	if (info->ways > sizeof(info->pieces) / sizeof(info->pieces[0]))
		return nupa_explain(-EINVAL, why, why_bytes, "its row is damaged");
	rc =
	    check_plan(&plan, (struct room){ fabric->geometry.pool_bytes, "pool" }, why, why_bytes);
	if (!rc)
		rc = make(fabric, fabric->fd, &plan, window, out, why, why_bytes);
	if (!rc)
		(*out)->bytes = info->bytes;
	return rc;
}

int nupa_view_of_region(struct nupa_fabric *fabric, uint64_t region, uint32_t host,
			struct nupa_view **out, char *why, size_t why_bytes)
{
	struct nupa_region_info info;
	struct window window = { .info = &info, .host = host };
	int rc;

	if (nupa_load_acquire(&fabric->picture))
		return nupa_explain(-ESTALE, why, why_bytes,
				    "this fabric was opened, and attached to, by another process: "
				    "open it again");
	rc = nupa_region_map_begin(fabric, region, host, &info, &window.mapping);
	if (rc)
		return explain_begin(rc, host, why, why_bytes);
	rc = map_region(fabric, &window, out, why, why_bytes);
	if (rc)
		(void)nupa_region_map_end(fabric, window.mapping);
	return rc;
}

/* --- seen and ended -------------------------------------------------------------- */

void *nupa_view_at(const struct nupa_view *view)
{
	return view->at;
}

uint64_t nupa_view_bytes(const struct nupa_view *view)
{
	return view->bytes;
}

bool nupa_view_is_software(const struct nupa_view *view)
{
	return view->twin != NULL;
}

uint32_t nupa_view_lost(const struct nupa_view *view)
{
	return nupa_load_acquire(&view->lost);
}

void nupa_view_free(struct nupa_view *view)
{
	nupa_view_close(view);
	drop(view);
}
