/* SPDX-License-Identifier: BSD-3-Clause
 * How many lines of the fast channel were written.  There is no counter: the tags of a ring say it
 * (ring.h, I2).  Lines of closed rings are added to the flows. */
#include "segment/ring/lines.h"

#include "base/atomics.h"
#include "segment/layout/geometry.h"
#include "segment/ring/wire.h"
#include "segment/slot/slot.h"

#include <errno.h>
#include <stddef.h>

static int read_tag(struct nupa_fabric *fabric, uint64_t ring, uint32_t i, uint32_t *tag)
{
	return nupa_fabric_read(fabric,
				ring + sizeof(struct nupa_ring_header) +
				    (uint64_t)i * sizeof(struct nupa_msg) +
				    offsetof(struct nupa_msg, tag),
				tag, sizeof(*tag));
}

/* The lines that were written since it was opened: lines that are a lap ahead of the others come
 * first.  Its owner may write more meanwhile. */
static int read_tail(struct nupa_fabric *fabric, uint64_t ring, uint64_t *tail)
{
	const uint32_t n_lines = fabric->geometry.ring_lines;
	uint32_t first, tag, low = 1, high = n_lines;
	int rc = read_tag(fabric, ring, 0, &first);

	*tail = 0;
	if (rc || !first)
		return rc;
	while (low < high) { /* the first line that is behind line 0 */
		const uint32_t middle = low + (high - low) / 2;

		rc = read_tag(fabric, ring, middle, &tag);
		if (rc)
			return rc;
		if (tag == first)
			low = middle + 1;
		else
			high = middle;
	}
	*tail = (uint64_t)(first - 1) * n_lines + low;
	return 0;
}

int nupa_lines_add_ring(struct nupa_fabric *fabric, uint32_t slot, uint32_t peer,
			struct nupa_flow *flows)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	const uint64_t ring =
	    nupa_arena_offset(fabric, slot) + map.rings_off + (uint64_t)peer * map.ring_stride;
	const uint64_t n_lines = fabric->geometry.ring_lines;
	struct nupa_ring_header header;
	struct nupa_flow *flow;
	uint64_t tail;
	int rc = nupa_fabric_read(fabric, ring, &header, sizeof(header));

	/* The host that it leads to. */
	if (rc || !header.consumer || header.consumer > fabric->geometry.n_hosts)
		return rc;
	rc = read_tail(fabric, ring, &tail);
	if (rc || !tail)
		return rc;
	flow = &flows[header.consumer - 1];
	nupa_store_relaxed(&flow->lines_first,
			   flow->lines_first + (tail < n_lines ? tail : n_lines));
	nupa_store_relaxed(&flow->lines_again,
			   flow->lines_again + (tail < n_lines ? 0 : tail - n_lines));
	return 0;
}

void nupa_lines_add_rings(struct nupa_fabric *fabric, uint32_t slot, struct nupa_flow *flows)
{
	for (uint32_t peer = 1; peer < fabric->geometry.n_slots; peer++)
		if (nupa_load_relaxed(&fabric->slots[slot].contact[peer]))
			(void)nupa_lines_add_ring(fabric, slot, peer, flows);
}

static struct nupa_lines_info lines_info(const struct nupa_fabric *fabric,
					 const struct nupa_flow *flow)
{
	const uint64_t n_lines = fabric->geometry.ring_lines;
	const uint64_t again = nupa_load_relaxed(&flow->lines_again);

	/* A look lets the producer go on for a lap at most. */
	return (struct nupa_lines_info){ .first = nupa_load_relaxed(&flow->lines_first),
					 .again = again,
					 .looks = again / n_lines + (again % n_lines != 0) };
}

int nupa_fabric_lines(struct nupa_fabric *fabric, uint32_t slot, struct nupa_lines_info *by_host)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	struct nupa_flow flows[NUPA_HOSTS_MAX];
	int rc;

	if (slot == 0 || slot >= sb->n_slots)
		return -EINVAL;
	rc =
	    nupa_fabric_read(fabric, nupa_arena_offset(fabric, slot) + nupa_arena_map(sb).flows_off,
			     flows, sb->n_hosts * sizeof(flows[0]));
	if (rc)
		return rc;
	if (NUPA_CLAIM_STATE(nupa_slot_fetch(fabric, slot)) == NUPA_SLOT_LIVE)
		nupa_lines_add_rings(fabric, slot, flows);
	for (uint32_t host = 0; host < sb->n_hosts; host++)
		by_host[host] = lines_info(fabric, &flows[host]);
	return 0;
}

int nupa_fabric_past_lines(struct nupa_fabric *fabric, uint32_t from, uint32_t to,
			   struct nupa_lines_info *lines)
{
	const struct nupa_flow *flow;

	if (from >= fabric->geometry.n_hosts || to >= fabric->geometry.n_hosts)
		return -EINVAL;
	flow = nupa_past_flow(fabric, from, to);
	nupa_past_fetch(fabric, from, flow, sizeof(*flow));
	*lines = lines_info(fabric, flow);
	return 0;
}
