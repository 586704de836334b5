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

/* The first line from low on, below high, whose tag is another; high: there is none. */
static int find_other(struct nupa_fabric *fabric, uint64_t ring, uint32_t low, uint32_t high,
		      uint32_t tag, uint32_t *found)
{
	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;
		uint32_t there;
		int rc = read_tag(fabric, ring, middle, &there);

		if (rc)
			return rc;
		if (there == tag)
			low = middle + 1;
		else
			high = middle;
	}
	*found = low;
	return 0;
}

/* A ring in its present size (ring.h I6): in the lap in which it came to it, it began at `from`. */
struct size {
	uint32_t lines, from, lap;
};

/* The lines that were written in its present size: lines that are a lap ahead of the others come
 * first.  Its owner may write more meanwhile. */
static int read_tail(struct nupa_fabric *fabric, uint64_t ring, const struct size *size,
		     uint64_t *tail)
{
	uint32_t first, behind;
	int rc = read_tag(fabric, ring, 0, &first);
	const uint32_t laps = first - 1 - size->lap;

	*tail = 0;
	if (rc || (!first && !size->from))
		return rc;
	if (size->from && (int32_t)laps <= 0) { /* line 0 is of the former size */
		rc = find_other(fabric, ring, size->from, size->lines, size->lap + 1, &behind);
		if (!rc)
			*tail = behind - size->from;
		return rc;
	}
	rc = find_other(fabric, ring, 1, size->lines, first, &behind);
	if (!rc)
		*tail = (uint64_t)laps * size->lines + behind - size->from;
	return rc;
}

static bool read_size(const struct nupa_ring_header *header, uint32_t ring_lines, struct size *size)
{
	*size = (struct size){ header->lines, header->grown_after ? header->lines / 2 : 0,
			       header->grown_lap };
	if (!size->lines)
		*size = (struct size){ ring_lines, 0, 0 };
	return size->lines <= ring_lines;
}

/* Nothing is added while the ring grows: another look finds its lines. */
int nupa_lines_add_ring(struct nupa_fabric *fabric, uint32_t slot, uint32_t peer,
			struct nupa_flow *flows)
{
	const struct nupa_arena_map map = nupa_arena_map(&fabric->geometry);
	const uint64_t ring =
	    nupa_arena_offset(fabric, slot) + map.rings_off + (uint64_t)peer * map.ring_stride;
	struct nupa_ring_header header, later;
	uint64_t tail, total, first;
	struct nupa_flow *flow;
	struct size size;
	int rc = nupa_fabric_read(fabric, ring, &header, sizeof(header));

	if (rc || !header.consumer || header.consumer > fabric->geometry.n_hosts ||
	    !read_size(&header, fabric->geometry.ring_lines, &size))
		return rc;
	rc = read_tail(fabric, ring, &size, &tail);
	if (!rc)
		rc = nupa_fabric_read(fabric, ring, &later, sizeof(later));
	if (rc || later.lines != header.lines || later.pair != header.pair)
		return rc;
	total = header.grown_after + tail;
	first = size.from + tail < size.lines ? size.from + tail : size.lines;
	flow = &flows[header.consumer - 1]; /* of the host that it leads to */
	nupa_store_relaxed(&flow->lines_first, flow->lines_first + first);
	nupa_store_relaxed(&flow->lines_again, flow->lines_again + total - first);
	return 0;
}

void nupa_lines_add_rings(struct nupa_fabric *fabric, uint32_t slot, struct nupa_flow *flows)
{
	for (uint32_t peer = 1; peer < fabric->geometry.n_slots; peer++)
		if (nupa_load_relaxed(nupa_contact(fabric, slot, peer)))
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
