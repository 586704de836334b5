/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the files behind region.h. */
#ifndef NUPA_REGION_INTERNAL_H
#define NUPA_REGION_INTERNAL_H

#include "base/atomics.h"
#include "region/pool.h"
#include "region/region.h"
#include "region/slot_life.h"
#include "segment/layout/region_layout.h"
#include "segment/slot/slot.h"

struct nupa_regions {
	struct nupa_region_header *header;
	struct nupa_region_row *rows;
	struct nupa_region_mapping *mappings;
	uint32_t n_rows, n_mappings;         /* places */
	uint32_t rows_limit, mappings_limit; /* those that may be in use, checked */
};

/* The table; make: also if there is none yet.  -ENOENT: there is none; -EOPNOTSUPP: SOFTWARE. */
int nupa_regions(struct nupa_fabric *fabric, bool make, struct nupa_regions *t);

/* --- rows: region_row.c ------------------------------------------------------------------ */

/* From the claim that was seen to another state; owner: this process, if the state needs an owner.
 * False: the claim has changed, and *seen* is the new one. */
bool nupa_region_step(struct nupa_fabric *fabric, struct nupa_region_row *row, uint64_t *seen,
		      uint32_t state);
/* The claim once no process is changing the row.  0, or -EAGAIN after some ms. */
int nupa_region_settled(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
			uint64_t *claim);
/* The body under that claim: 0; -EAGAIN: it has changed; -EUCLEAN: it cannot be. */
int nupa_region_load(const struct nupa_fabric *fabric, struct nupa_region_row *row, uint64_t claim,
		     struct nupa_region_body *body);
/* By who has the claim. */
void nupa_region_store(struct nupa_region_row *row, const struct nupa_region_body *body);
/* Whether the body can be: of hosts, sizes and pieces that there are. */
bool nupa_region_sound(const struct nupa_fabric *fabric, const struct nupa_region_body *body);
/* The row of that id under our claim, CHANGING; or, if it was revoked already, not ours, with
 * REVOKED in *claim*.  -ESTALE; -EUCLEAN; -EAGAIN. */
int nupa_region_hold(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id,
		     struct nupa_region_body *body, uint64_t *claim);
/* Waits while another process finishes it, until the memory is free or that process has died. */
void nupa_region_await_end(const struct nupa_fabric *fabric, const struct nupa_region_row *row);
/* As nupa_region_get and nupa_region_find, in a table. */
int nupa_region_get_in(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		       struct nupa_region_info *out);
int nupa_region_find_in(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id,
			struct nupa_region_info *out);
/* The contents of a body. */
void nupa_region_tell(const struct nupa_region_body *body, struct nupa_region_info *out);
/* Tells all windows that a row has been revoked. */
void nupa_region_announce(const struct nupa_regions *t);
static inline bool nupa_region_shares(const struct nupa_region_body *body, uint32_t host)
{
	return host == body->host || body->share[host / 64] >> host % 64 & 1;
}
static inline bool nupa_region_exclusive(const struct nupa_region_body *body)
{
	return !(body->share[0] | body->share[1] | body->share[2] | body->share[3]);
}

/* A limit that says which places of a table may be in use: at least *n*. */
void nupa_region_raise(uint32_t *limit, uint32_t n);

/* --- owners: region_owner.c -------------------------------------------------------------- */

/* Fills the owner in: the attachment *slot*, or this process, or with pid 0 the host. */
int nupa_region_own(struct nupa_fabric *fabric, uint32_t slot, uint32_t pid,
		    struct nupa_region_body *body);
bool nupa_region_owned(const struct nupa_fabric *fabric, const struct nupa_region_body *body);
bool nupa_region_window_owned(const struct nupa_fabric *fabric,
			      const struct nupa_region_mapping *mapping, uint64_t claim);
/* This process in a claim. */
uint32_t nupa_region_claimant(const struct nupa_fabric *fabric);
/* Whether who has the claim is there; one of another kernel or pid namespace is. */
bool nupa_region_claimant_alive(const struct nupa_fabric *fabric, uint64_t claim);

/* --- extents: extents.c ------------------------------------------------------------------ */

/* The word of a region that is published over the extent; 0: there is none. */
uint32_t nupa_region_pin(struct nupa_fabric *fabric, uint32_t extent);
void nupa_extents_free(struct nupa_fabric *fabric, uint32_t first, uint32_t n);
/* From *seen* to FREE: extents given back, the place clean.  False: another process does that. */
bool nupa_region_finish(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
			uint64_t seen);

/* --- windows: region_map.c ----------------------------------------------------------------- */

/* How many windows of living processes a region has.  Takes back those of the dead. */
uint32_t nupa_region_windows(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t id);
/* Whether a host has one that the body does not let. */
bool nupa_region_mapped_beyond(struct nupa_fabric *fabric, const struct nupa_regions *t,
			       const struct nupa_region_body *body);
/* A place that says which window of *info* it is, OPEN.  -ENFILE: all are taken; -EOPNOTSUPP: this
 * process has no attachment to the host, and several machines share the fabric. */
int nupa_region_take_place(struct nupa_fabric *fabric, const struct nupa_regions *t,
			   const struct nupa_region_info *info, uint32_t host, uint32_t *index,
			   uint64_t *claim);
/* By what a process knows its place; whether that is one of its own. */
uint32_t nupa_region_place(uint64_t claim, uint32_t index);
bool nupa_region_own_place(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t place,
			   uint32_t *index, uint64_t *claim);
/* Whether it is taken by a living process, and the question is answered by yes. */
typedef bool nupa_region_question(const struct nupa_fabric *fabric,
				  const struct nupa_region_mapping *mapping, uint64_t what);
bool nupa_region_place_open(struct nupa_fabric *fabric, struct nupa_region_mapping *mapping,
			    nupa_region_question *asks, uint64_t what);
/* Tells all who wait for windows or followers. */
void nupa_region_let_go(const struct nupa_regions *t);
/* Waits until *is_so*: 0, or -ETIMEDOUT. */
typedef bool nupa_region_condition(struct nupa_fabric *fabric, const struct nupa_regions *t,
				   uint64_t what);
int nupa_region_await(struct nupa_fabric *fabric, const struct nupa_regions *t,
		      nupa_region_condition *is_so, uint64_t what);
/* A revoked region has no windows left. */
nupa_region_condition nupa_region_is_left;
/* Takes back the windows of dead processes. */
void nupa_region_reap_windows(struct nupa_fabric *fabric, const struct nupa_regions *t);

/* --- death: region_reap.c ------------------------------------------------------------------ */

/* Frees regions of dead owners, or makes them orphans if others share them; ends windows of dead
 * processes. */
void nupa_region_reap(struct nupa_fabric *fabric);

/* --- quotas: region_quota.c ---------------------------------------------------------------- */

/* Charges a row, which is ours, for its owner's extents: 0 or -EDQUOT. */
int nupa_region_charge(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		       uint32_t host, uint32_t extents);

#endif
