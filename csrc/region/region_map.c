/* SPDX-License-Identifier: BSD-3-Clause
 * Windows, as the table of regions counts them.  Each has a place of its own.  Its process frees
 * the place, or the process that finds the former dead. */
#include "region/region_internal.h"
#include "segment/control/share.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_S 5
#define LOOK_NS 20000000 /* a window's process may die without a word */

/* A process's handle of a window: place and 20 bits of the claim's changes, never 0. */
#define HANDLE(claim, index) ((NUPA_CLAIM_EPOCH(claim) & 0xfffff) << 12 | (index))
_Static_assert(NUPA_REGION_MAPPINGS_MAX <= 1u << 12, "12 bits");

static bool pass(const struct nupa_fabric *fabric, uint32_t port, uint32_t *downs)
{
	if (port >= fabric->geometry.n_ports)
		return false;
	/* The count first: a port that went down and up in between was counted before it was up. */
	*downs += nupa_load_seq(&fabric->ports[port].link_downed);
	return nupa_load_seq(&fabric->ports[port].state) == NUPA_PORT_ACTIVE;
}

bool nupa_region_linked(const struct nupa_fabric *fabric, uint32_t host, uint32_t home,
			uint32_t *downs)
{
	const uint32_t n_hosts = fabric->geometry.n_hosts;
	const struct nupa_route *route;
	uint32_t port;
	bool up;

	*downs = 0;
	if (host >= n_hosts || home >= n_hosts)
		return false;
	port = fabric->hosts[host].port;
	up = pass(fabric, port, downs);
	if (port >= fabric->geometry.n_ports ||
	    !pass(fabric, nupa_load_relaxed(&fabric->ports[port].peer), downs))
		up = false;
	if (host == home)
		return up;
	/* Less the two at either end: the memory is at the switch, not beyond the link of *home*.
	 */
	route = &fabric->routes[(size_t)host * n_hosts + home];
	for (uint32_t i = 2; i + 2 < route->hops && i < NUPA_HOPS_MAX; i++)
		up = pass(fabric, route->port[i], downs) && up;
	return up;
}

static bool step(struct nupa_fabric *fabric, struct nupa_region_mapping *mapping, uint64_t *seen,
		 uint32_t state)
{
	const uint32_t owner = state == NUPA_MAPPING_FREE ? 0 : nupa_region_claimant(fabric);
	const uint64_t next = NUPA_CLAIM(owner, NUPA_CLAIM_EPOCH(*seen) + 1, state);

	if (!nupa_cas_seq(&mapping->claim, seen, next))
		return false;
	*seen = next;
	return true;
}

uint32_t nupa_region_slot(struct nupa_fabric *fabric, uint32_t host)
{
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++) {
		const uint64_t claim = nupa_slot_claim(&fabric->slots[i]);

		if (NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
		    NUPA_CLAIM_OWNER(claim) == nupa_fabric_owner(fabric) &&
		    nupa_load_relaxed(&fabric->slots[i].host) == host)
			return i;
	}
	return 0;
}

static int take(struct nupa_fabric *fabric, const struct nupa_regions *t,
		const struct nupa_region_info *info, uint32_t host, uint32_t *index,
		uint64_t *claim)
{
	const uint32_t slot = nupa_fabric_machines(fabric) ? nupa_region_slot(fabric, host) : 0;

	if (nupa_fabric_machines(fabric) && !slot)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < t->n_mappings; i++) {
		struct nupa_region_mapping *mapping = &t->mappings[i];

		*claim = nupa_load_seq(&mapping->claim);
		if (NUPA_CLAIM_STATE(*claim) != NUPA_MAPPING_FREE ||
		    !step(fabric, mapping, claim, NUPA_MAPPING_TAKING))
			continue;
		nupa_region_raise(&t->header->mappings_limit, i + 1);
		nupa_store_relaxed(&mapping->id, info->id);
		nupa_store_relaxed(&mapping->host, host);
		nupa_store_relaxed(&mapping->home, info->home);
		nupa_store_relaxed(&mapping->links, info->links);
		nupa_store_relaxed(&mapping->start_time,
				   nupa_process_start_time((uint32_t)getpid()));
		nupa_store_relaxed(&mapping->slot, slot);
		nupa_store_relaxed(&mapping->epoch,
				   slot ? NUPA_CLAIM_EPOCH(nupa_slot_claim(&fabric->slots[slot]))
					: 0);
		*index = i;
		/* R4, R5: seq_cst, before row and ports are looked at. */
		return step(fabric, mapping, claim, NUPA_MAPPING_OPEN) ? 0 : -EAGAIN;
	}
	return -ENFILE;
}

int nupa_region_take_place(struct nupa_fabric *fabric, const struct nupa_regions *t,
			   const struct nupa_region_info *info, uint32_t host, uint32_t *index,
			   uint64_t *claim)
{
	int rc = take(fabric, t, info, host, index, claim);

	if (rc != -ENFILE)
		return rc;
	nupa_region_reap_windows(fabric, t);
	return take(fabric, t, info, host, index, claim);
}

uint32_t nupa_region_place(uint64_t claim, uint32_t index)
{
	return HANDLE(claim, index);
}

bool nupa_region_own_place(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t place,
			   uint32_t *index, uint64_t *claim)
{
	*index = place & 0xfff;
	if (*index >= t->mappings_limit)
		return false;
	*claim = nupa_load_seq(&t->mappings[*index].claim);
	return NUPA_CLAIM_STATE(*claim) == NUPA_MAPPING_OPEN && HANDLE(*claim, *index) == place &&
	       NUPA_CLAIM_OWNER(*claim) == nupa_region_claimant(fabric);
}

void nupa_region_let_go(const struct nupa_regions *t)
{
	nupa_fetch_add_seq(&t->header->let_go, 1);
	syscall(SYS_futex, &t->header->let_go, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The last window finishes what was revoked. */
static void finish_revoked(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id)
{
	const uint32_t index = (uint32_t)id & 0xffff;
	uint64_t claim;

	if (index >= t->rows_limit)
		return;
	claim = nupa_load_seq(&t->rows[index].claim);
	if (NUPA_CLAIM_STATE(claim) != NUPA_REGION_REVOKED ||
	    nupa_load_relaxed(&t->rows[index].body.id) != id)
		return;
	if (!nupa_region_windows(fabric, t, id))
		(void)nupa_region_finish(fabric, t, index, claim);
}

static bool release(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		    uint64_t claim)
{
	struct nupa_region_mapping *mapping = &t->mappings[index];
	const uint64_t id = nupa_load_relaxed(&mapping->id);

	if (!step(fabric, mapping, &claim, NUPA_MAPPING_FREE))
		return false;
	finish_revoked(fabric, t, id);
	nupa_region_let_go(t);
	return true;
}

/* The region, LIVE, and that *host* may map it, and reaches it. */
static int look(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id,
		uint32_t host, struct nupa_region_info *out)
{
	int rc;

	rc = nupa_region_find_in(fabric, t, id, out);
	if (rc)
		return rc;
	if (out->state != NUPA_REGION_LIVE)
		return -ESTALE;
	if (host != out->host && !(out->share[host / 64] >> host % 64 & 1))
		return -EACCES;
	if (!nupa_tenants_share(fabric, host, out->host, out->tag))
		return -EPERM;
	return nupa_region_linked(fabric, host, out->home, &out->links) ? 0 : -ENETDOWN;
}

/* Published memory may not be backed yet (I4). */
static int back(struct nupa_fabric *fabric, const struct nupa_region_info *info)
{
	int rc = 0;

	for (uint32_t i = 0; info->published && i < info->ways && !rc; i++)
		rc = nupa_region_back(fabric, info->pieces[i], info->bytes / info->ways);
	return rc;
}

int nupa_region_map_begin(struct nupa_fabric *fabric, uint64_t id, uint32_t host,
			  struct nupa_region_info *out, uint32_t *mapping)
{
	struct nupa_regions t;
	uint32_t index = 0, links;
	uint64_t claim = 0;
	int rc;

	if (host >= fabric->geometry.n_hosts)
		return -EINVAL;
	rc = nupa_regions(fabric, false, &t);
	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	rc = look(fabric, &t, id, host, out); /* a window that fails disturbs no process */
	if (rc)
		return rc;
	links = out->links;
	rc = nupa_region_take_place(fabric, &t, out, host, &index, &claim);
	if (rc)
		return rc;
	rc = look(fabric, &t, id, host, out);
	if (!rc && out->links != links) /* down meanwhile, and up again */
		rc = -ENETDOWN;
	if (!rc)
		rc = back(fabric, out);
	if (rc) {
		(void)release(fabric, &t, index, claim);
		return rc;
	}
	*mapping = HANDLE(claim, index);
	return 0;
}

int nupa_region_map_end(struct nupa_fabric *fabric, uint32_t mapping)
{
	struct nupa_regions t;
	uint32_t index;
	uint64_t claim;

	if (nupa_regions(fabric, false, &t) ||
	    !nupa_region_own_place(fabric, &t, mapping, &index, &claim) ||
	    !release(fabric, &t, index, claim))
		return -EINVAL;
	return 0;
}

/* --- counted --------------------------------------------------------------------------- */

/* Whether the window's process lives; it is taken back if not. */
static bool is_open(struct nupa_fabric *fabric, struct nupa_region_mapping *mapping, uint64_t claim)
{
	if (nupa_region_window_owned(fabric, mapping, claim))
		return true;
	/* One that has changed meanwhile is looked at again by who needs to know. */
	return !step(fabric, mapping, &claim, NUPA_MAPPING_FREE);
}

bool nupa_region_place_open(struct nupa_fabric *fabric, struct nupa_region_mapping *mapping,
			    nupa_region_question *asks, uint64_t what)
{
	/* R4, R5: the claim first, which was stored after all else. */
	const uint64_t claim = nupa_load_seq(&mapping->claim);

	return NUPA_CLAIM_STATE(claim) == NUPA_MAPPING_OPEN && asks(fabric, mapping, what) &&
	       is_open(fabric, mapping, claim);
}

static bool is_window_of(const struct nupa_fabric *fabric,
			 const struct nupa_region_mapping *mapping, uint64_t id)
{
	(void)fabric;
	return nupa_load_relaxed(&mapping->id) == id;
}

uint32_t nupa_region_windows(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id)
{
	/* Others may have come since t was read. */
	const uint32_t limit = nupa_load_seq(&t->header->mappings_limit);
	uint32_t n = 0;

	for (uint32_t i = 0; i < limit && i < t->n_mappings; i++) {
		struct nupa_region_mapping *mapping = &t->mappings[i];

		n += nupa_region_place_open(fabric, mapping, is_window_of, id);
	}
	return n;
}

uint32_t nupa_region_windows_of(struct nupa_fabric *fabric, uint64_t id,
				struct nupa_region_window *out, uint32_t max)
{
	struct nupa_regions t;
	uint32_t n = 0;

	if (nupa_regions(fabric, false, &t))
		return 0;
	for (uint32_t i = 0; i < t.mappings_limit; i++) {
		struct nupa_region_mapping *mapping = &t.mappings[i];
		const uint64_t claim = nupa_load_seq(&mapping->claim);

		if (!nupa_region_place_open(fabric, mapping, is_window_of, id))
			continue;
		if (n < max)
			out[n] = (struct nupa_region_window){
				.host = nupa_load_relaxed(&mapping->host),
				.pid = NUPA_CLAIM_PID(claim),
			};
		n++;
	}
	return n;
}

bool nupa_region_mapped_beyond(struct nupa_fabric *fabric, const struct nupa_regions *t,
			       const struct nupa_region_body *body)
{
	const uint32_t limit = nupa_load_seq(&t->header->mappings_limit);

	for (uint32_t i = 0; i < limit && i < t->n_mappings; i++) {
		struct nupa_region_mapping *mapping = &t->mappings[i];
		const uint64_t claim = nupa_load_seq(&mapping->claim);
		const uint32_t host = nupa_load_relaxed(&mapping->host);

		if (NUPA_CLAIM_STATE(claim) == NUPA_MAPPING_OPEN &&
		    nupa_load_relaxed(&mapping->id) == body->id &&
		    (host >= NUPA_HOSTS_MAX || !nupa_region_shares(body, host)) &&
		    is_open(fabric, mapping, claim))
			return true;
	}
	return false;
}

void nupa_region_reap_windows(struct nupa_fabric *fabric, const struct nupa_regions *t)
{
	for (uint32_t i = 0; i < t->mappings_limit; i++) {
		struct nupa_region_mapping *mapping = &t->mappings[i];
		const uint64_t claim = nupa_load_seq(&mapping->claim);

		if (NUPA_CLAIM_STATE(claim) != NUPA_MAPPING_FREE)
			(void)is_open(fabric, mapping, claim);
	}
}

bool nupa_region_is_left(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id)
{
	return !nupa_region_windows(fabric, t, id);
}

int nupa_region_await(struct nupa_fabric *fabric, const struct nupa_regions *t,
		      nupa_region_condition *is_so, uint64_t what)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	struct timespec now, until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += AWAIT_S;
	for (;;) {
		const uint32_t seen = nupa_load_seq(&t->header->let_go);

		if (is_so(fabric, t, what))
			return 0;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > until.tv_sec ||
		    (now.tv_sec == until.tv_sec && now.tv_nsec > until.tv_nsec))
			return -ETIMEDOUT;
		syscall(SYS_futex, &t->header->let_go, FUTEX_WAIT, seen, &look, NULL, 0);
	}
}
