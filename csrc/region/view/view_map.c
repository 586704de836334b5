/* SPDX-License-Identifier: BSD-3-Clause
 * The mappings of views: pieces of a file in turns at neighbouring addresses, and what is put over
 * them when they are lost. */
#include "base/atomics.h"
#include "base/rlimit.h"
#include "region/view/view_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A mapping of so many ones at a time: a process has 65530 of them. */
#define ONES_BYTES (UINT64_C(2) << 20)

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* --- all ones -------------------------------------------------------------------------------- */

static uint32_t ones_fd; /* + 1; CAS, once */

static int fill_ones(int fd)
{
	uint8_t some[4096];

	memset(some, 0xff, sizeof(some));
	for (uint64_t at = 0; at < ONES_BYTES; at += sizeof(some)) {
		const ssize_t written = pwrite(fd, some, sizeof(some), (off_t)at);

		if (written != (ssize_t)sizeof(some))
			return written < 0 ? -errno : -ENOSPC;
	}
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) ? -errno : 0;
}

/* Makes the file that nupa_view_cover maps: 0 or -errno. */
static int prepare_ones(void)
{
	uint32_t none = 0;
	int fd, rc;

	if (nupa_load_acquire(&ones_fd))
		return 0;
	if (!nupa_limit_allows_file(ONES_BYTES))
		return -errno;
	fd = memfd_create("nupa-ones", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	rc = fill_ones(fd);
	if (rc || !nupa_cas_seq(&ones_fd, &none, (uint32_t)fd + 1))
		close(fd);
	return rc;
}

/* Replaces a mapping in one call: who loads there finds the one or the other, or waits.  Not by
 * mmap, which to TSan is a store to all of it. */
static bool replace(uint8_t *at, uint64_t bytes, int protection, int flags, int fd)
{
	return syscall(SYS_mmap, at, bytes, protection,
		       flags | MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0) != -1;
}

static bool cover_with_ones(uint8_t *at, uint64_t bytes)
{
	const int fd = (int)nupa_load_acquire(&ones_fd) - 1;
	uint64_t part;

	for (uint64_t done = 0; done < bytes; done += part) {
		part = least(bytes - done, ONES_BYTES);
		if (!replace(at + done, part, PROT_READ | PROT_WRITE, 0, fd))
			return false;
	}
	return true;
}

void nupa_view_cover(uint8_t *at, uint64_t bytes)
{
	/* The program has used up its mappings: it may end by a signal now, but never sees memory
	 * of others. */
	if (!cover_with_ones(at, bytes) && !replace(at, bytes, PROT_NONE, MAP_ANONYMOUS, -1))
		abort();
}

/* --- turns ------------------------------------------------------------------------------------ */

/* Neighbouring bytes of a plan that are neighbours in the file, too, from *done* on. */
struct run {
	uint64_t offset, bytes;
};

static uint64_t turn_offset(const struct nupa_view_plan *plan, uint64_t turn)
{
	return plan->pieces[turn % plan->n_pieces] + turn / plan->n_pieces * plan->granularity;
}

static struct run run_at(const struct nupa_view_plan *plan, uint64_t done)
{
	uint64_t turn = done / plan->granularity;
	struct run run = { .offset = turn_offset(plan, turn) };

	do
		run.bytes += least(plan->granularity, plan->bytes - done - run.bytes);
	while (done + run.bytes < plan->bytes &&
	       turn_offset(plan, ++turn) == run.offset + run.bytes);
	return run;
}

static uint32_t count_runs(const struct nupa_view_plan *plan)
{
	uint32_t runs = 0;

	for (uint64_t done = 0; done < plan->bytes && runs <= NUPA_VIEW_MAPPINGS_MAX; runs++)
		done += run_at(plan, done).bytes;
	return runs;
}

/* --- mappings -------------------------------------------------------------------- */

static uint8_t *map_anonymous(uint64_t bytes, int protection)
{
	void *at =
	    mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* The addresses first, so that nothing comes between the pieces. */
static int map_home(struct nupa_view *view, int fd, uint64_t file_off,
		    const struct nupa_view_plan *plan)
{
	struct run run;

	view->home = map_anonymous(view->mapped, PROT_NONE);
	if (!view->home)
		return -errno;
	for (uint64_t done = 0; done < plan->bytes; done += run.bytes) {
		run = run_at(plan, done);
		if (mmap(view->home + done, run.bytes, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, (off_t)(file_off + run.offset)) == MAP_FAILED)
			return -errno;
	}
	return 0;
}

int nupa_view_map(struct nupa_view *view, int fd, uint64_t file_off,
		  const struct nupa_view_plan *plan)
{
	int rc = prepare_ones();

	if (rc)
		return rc;
	if (count_runs(plan) > NUPA_VIEW_MAPPINGS_MAX)
		return -E2BIG;
	rc = map_home(view, fd, file_off, plan);
	if (rc)
		return rc;
	view->at = view->home;
	if (!plan->software)
		return 0;
	view->at = map_anonymous(view->mapped, PROT_READ | PROT_WRITE);
	view->twin = map_anonymous(view->mapped, PROT_READ | PROT_WRITE);
	if (!view->at || !view->twin)
		return -ENOMEM;
	nupa_view_fill(view);
	return 0;
}

void nupa_view_unmap(struct nupa_view *view)
{
	if (view->at && view->at != view->home)
		munmap(view->at, view->mapped);
	if (view->home)
		munmap(view->home, view->mapped);
	if (view->twin)
		munmap(view->twin, view->mapped);
}
