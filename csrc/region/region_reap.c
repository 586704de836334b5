/* SPDX-License-Identifier: BSD-3-Clause
 * The end of regions whose owner died. */
#include "region/region_internal.h"

static void reap_live(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index,
		      uint64_t claim)
{
	struct nupa_region_row *row = &t->rows[index];
	struct nupa_region_body body;

	if (nupa_region_load(fabric, row, claim, &body) || body.orphan ||
	    nupa_region_owned(fabric, &body))
		return;
	if (!body.published && !nupa_region_exclusive(&body)) {
		if (!nupa_region_step(fabric, row, &claim, NUPA_REGION_CHANGING))
			return;
		nupa_store_release(&row->body.orphan, 1);
		(void)nupa_region_step(fabric, row, &claim, NUPA_REGION_LIVE);
		return;
	}
	if (!nupa_region_step(fabric, row, &claim, NUPA_REGION_REVOKED))
		return;
	nupa_region_announce(t);
	if (!nupa_region_windows(fabric, t, body.id))
		(void)nupa_region_finish(fabric, t, index, claim);
}

static void reap_row(struct nupa_fabric *fabric, const struct nupa_regions *t, uint32_t index)
{
	struct nupa_region_row *row = &t->rows[index];
	uint64_t claim = nupa_load_acquire(&row->claim);

	switch (NUPA_CLAIM_STATE(claim)) {
	case NUPA_REGION_CHANGING:
		if (!nupa_region_claimant_alive(fabric, claim) &&
		    nupa_region_step(fabric, row, &claim, NUPA_REGION_LIVE))
			reap_live(fabric, t, index, claim);
		break;
	case NUPA_REGION_LIVE:
		reap_live(fabric, t, index, claim);
		break;
	case NUPA_REGION_MAKING:
	case NUPA_REGION_FREEING:
		if (!nupa_region_claimant_alive(fabric, claim))
			(void)nupa_region_finish(fabric, t, index, claim);
		else /* its memory is what is wanted, perhaps */
			nupa_region_await_end(fabric, row);
		break;
	case NUPA_REGION_REVOKED:
		if (!nupa_region_windows(fabric, t, nupa_load_relaxed(&row->body.id)))
			(void)nupa_region_finish(fabric, t, index, claim);
		break;
	default:
		break;
	}
}

void nupa_region_reap(struct nupa_fabric *fabric)
{
	struct nupa_regions t;

	if (nupa_regions(fabric, false, &t))
		return;
	nupa_region_reap_windows(fabric, &t);
	for (uint32_t i = 0; i < t.rows_limit; i++)
		reap_row(fabric, &t, i);
}
