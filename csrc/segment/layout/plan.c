/* SPDX-License-Identifier: BSD-3-Clause
 * The plan of a new segment: defaults for what is not given, the limit of each size, and the fit
 * into a device's memory. */
#include "base/explain.h"
#include "segment/layout/geometry.h"
#include "segment/layout/qpn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define SLOTS_DEFAULT 256u
#define RING_LINES_DEFAULT 1024u
#define DMA_BYTES_DEFAULT (1u << 20)
#define MR_ENTRIES_DEFAULT NUPA_MR_MAX
#define EXTENT_BYTES_DEFAULT (64u << 10)
/* 1 GiB beside the CXL devices that a fabric has by default: 512 MiB for each host and 512 MiB of
 * dynamic capacity (nupa/cxl/site/fabric_switch.py). */
#define POOL_BYTES_DEFAULT(hosts) ((UINT64_C(3) << 29) + (hosts) * (UINT64_C(1) << 29))

/* Of a segment in a device's memory: it is as small as that. */
#define MACHINES_RING_LINES_DEFAULT 512u
#define MACHINES_DMA_BYTES_DEFAULT (512u << 10) /* frames of the netdev take a quarter each */
#define MACHINES_QP_ENTRIES_DEFAULT 1024u
#define MACHINES_MR_ENTRIES_DEFAULT 4096u
#define MACHINES_SLOTS_DEFAULT 64u /* at most, and no more than leave room for a pool */

static bool power_of_two(uint64_t value)
{
	return value != 0 && (value & (value - 1)) == 0;
}

struct limit {
	const char *name;
	uint64_t value, min, max;
	bool power;
};

static int check_limits(const struct limit *limits, size_t n, char *why, size_t why_bytes)
{
	for (size_t i = 0; i < n; i++) {
		const struct limit *l = &limits[i];

		if (l->value < l->min || l->value > l->max)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "%s is %" PRIu64 ": choose %" PRIu64 " to %" PRIu64,
					    l->name, l->value, l->min, l->max);
		if (l->power && !power_of_two(l->value))
			return nupa_explain(-EINVAL, why, why_bytes,
					    "%s is %" PRIu64 ": choose a power of two", l->name,
					    l->value);
	}
	return 0;
}

static uint64_t default_pool(const struct nupa_superblock *sb)
{
	const uint64_t most = (uint64_t)sb->extent_bytes * NUPA_EXTENTS_MAX;
	const uint64_t wanted = POOL_BYTES_DEFAULT(sb->n_hosts);

	return wanted < most ? wanted : most;
}

static void take_defaults(struct nupa_superblock *sb, const struct nupa_config *c)
{
	const bool machines = c->flags & NUPA_SEGMENT_MACHINES;

	sb->n_slots = c->slots ? c->slots : machines ? MACHINES_SLOTS_DEFAULT : SLOTS_DEFAULT;
	sb->ring_lines = c->ring_lines ? c->ring_lines
			 : machines    ? MACHINES_RING_LINES_DEFAULT
				       : RING_LINES_DEFAULT;
	sb->dma_bytes = c->dma_bytes ? c->dma_bytes
			: machines   ? MACHINES_DMA_BYTES_DEFAULT
				     : DMA_BYTES_DEFAULT;
	sb->qp_entries = c->qp_entries ? c->qp_entries
			 : machines    ? MACHINES_QP_ENTRIES_DEFAULT
				       : nupa_qp_most(sb);
	sb->mr_entries = c->mr_entries ? c->mr_entries
			 : machines    ? MACHINES_MR_ENTRIES_DEFAULT
				       : MR_ENTRIES_DEFAULT;
	sb->extent_bytes = c->extent_bytes ? c->extent_bytes : EXTENT_BYTES_DEFAULT;
	sb->pool_bytes = c->pool_bytes ? c->pool_bytes : machines ? 0 : default_pool(sb);
}

/* The whole is given: the pool has what the rest leaves, a quarter at least if the number of slots
 * is ours to choose. */
static int fit(struct nupa_superblock *sb, bool choose_slots, char *why, size_t why_bytes)
{
	const uint64_t bytes = sb->segment_bytes;

	for (;;) {
		uint64_t rest;

		/* Extents have their words before the pool: laid out for the most there can be, the
		 * rest only shrinks. */
		sb->n_extents = (uint32_t)(bytes / sb->extent_bytes);
		nupa_geometry_lay_out(sb);
		rest = sb->pool_off + sb->n_hosts * NUPA_CM_TABLE_BYTES + nupa_regions_bytes(sb) +
		       nupa_control_map(sb).bytes;
		if (rest + (choose_slots ? bytes / 4 : sb->extent_bytes) <= bytes) {
			sb->pool_bytes = (bytes - rest) / sb->extent_bytes * sb->extent_bytes;
			sb->n_extents = (uint32_t)(sb->pool_bytes / sb->extent_bytes);
			nupa_geometry_lay_out(sb);
			sb->segment_bytes = bytes;
			return 0;
		}
		if (!choose_slots || sb->n_slots == NUPA_SLOTS_MIN)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "%" PRIu64 " bytes hold no fabric of %u slots with "
					    "rings of %u lines and %u bytes: choose more memory",
					    bytes, sb->n_slots, sb->ring_lines, sb->dma_bytes);
		sb->n_slots--;
	}
}

static int plan_machines(struct nupa_superblock *sb, const struct nupa_config *c, char *why,
			 size_t why_bytes)
{
	int rc;

	if (c->pool_bytes)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "pool_bytes is %" PRIu64 ": in a device's memory the pool has "
				    "what is left, so leave it out",
				    c->pool_bytes);
	sb->segment_bytes = c->segment_bytes;
	rc = fit(sb, !c->slots, why, why_bytes);
	if (rc || !(sb->flags & NUPA_SEGMENT_SOFTWARE) || sb->n_slots > sb->n_hosts)
		return rc;
	return nupa_explain(-EINVAL, why, why_bytes,
			    "%u slots for %u hosts: where memory is not coherent each host needs "
			    "one of its own, so choose more memory",
			    sb->n_slots - 1, sb->n_hosts);
}

static int plan_file(struct nupa_superblock *sb, char *why, size_t why_bytes)
{
	if (sb->pool_bytes % sb->extent_bytes)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "pool_bytes is %" PRIu64
				    ": choose a multiple of extent_bytes, %u",
				    sb->pool_bytes, sb->extent_bytes);
	if (sb->pool_bytes / sb->extent_bytes > NUPA_EXTENTS_MAX)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "pool_bytes %" PRIu64 " is %" PRIu64
				    " extents, the most is %u: choose larger extent_bytes",
				    sb->pool_bytes, sb->pool_bytes / sb->extent_bytes,
				    NUPA_EXTENTS_MAX);
	sb->n_extents = (uint32_t)(sb->pool_bytes / sb->extent_bytes);
	nupa_geometry_lay_out(sb);
	return 0;
}

static int check_machines(const struct nupa_superblock *sb, char *why, size_t why_bytes)
{
	const struct nupa_trunk_area *area = &sb->trunk;

	if (area->machines < 2 || area->machines > NUPA_MACHINES_MAX)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "a trunk joins %u machines: choose 2 to %u", area->machines,
				    NUPA_MACHINES_MAX);
	if (area->machine >= area->machines)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "this is machine %u of %u: choose 0 to %u", area->machine,
				    area->machines, area->machines - 1);
	for (uint32_t i = 0; i < area->machines; i++) {
		const uint32_t first = area->first_slot[i];
		const uint32_t end = i + 1 < area->machines ? area->first_slot[i + 1] : sb->n_slots;

		if ((i == 0 && first != 1) || first >= end)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "machine %u has slots %u to before %u: each needs one, "
					    "the first begins at 1, and there are %u",
					    i, first, end, sb->n_slots - 1);
	}
	for (uint32_t host = 0; host < sb->n_hosts; host++)
		if (area->host_machine[host] >= area->machines)
			return nupa_explain(-EINVAL, why, why_bytes,
					    "host %u is on machine %u: choose 0 to %u", host,
					    area->host_machine[host], area->machines - 1);
	return 0;
}

static int plan_trunk(struct nupa_superblock *sb, const struct nupa_config *c, char *why,
		      size_t why_bytes)
{
	struct nupa_trunk_area *area = &sb->trunk;

	area->machine = c->machine;
	area->machines = c->machines;
	memcpy(area->first_slot, c->machine_slots, sizeof(area->first_slot));
	memcpy(area->host_machine, c->host_machine, sizeof(area->host_machine));
	return check_machines(sb, why, why_bytes);
}

int nupa_geometry_plan(const struct nupa_config *config, uint32_t n_hosts, uint32_t n_ports,
		       struct nupa_superblock *sb, char *why, size_t why_bytes)
{
	static const struct nupa_config none;
	const struct nupa_config *c = config ? config : &none;
	const bool machines = c->flags & NUPA_SEGMENT_MACHINES;
	int rc;

	sb->layout_version = NUPA_LAYOUT_VERSION;
	sb->flags = c->flags;
	sb->n_hosts = n_hosts;
	sb->n_ports = n_ports;
	take_defaults(sb, c);

	const struct limit limits[] = {
		{ "hosts", n_hosts, 1, NUPA_HOSTS_MAX, false },
		{ "ports", n_ports, 1, NUPA_PORTS_MAX, false },
		{ "flags", sb->flags, 0,
		  machines ? NUPA_SEGMENT_MACHINES | NUPA_SEGMENT_SOFTWARE
			   : NUPA_SEGMENT_AUTO | NUPA_SEGMENT_TRUNK,
		  false },
		{ "slots", sb->n_slots, NUPA_SLOTS_MIN, NUPA_SLOTS_MAX, false },
		{ "ring_lines", sb->ring_lines, NUPA_RING_LINES_MIN, NUPA_RING_LINES_MAX, true },
		{ "dma_bytes", sb->dma_bytes, NUPA_DMA_BYTES_MIN, NUPA_DMA_BYTES_MAX, true },
		{ "qp_entries", sb->qp_entries, 1, nupa_qp_most(sb), false },
		{ "mr_entries", sb->mr_entries, 1, NUPA_MR_MAX, false },
		{ "extent_bytes", sb->extent_bytes, NUPA_EXTENT_BYTES_MIN, NUPA_EXTENT_BYTES_MAX,
		  true },
		{ "pool_bytes", sb->pool_bytes, machines ? 0 : sb->extent_bytes,
		  NUPA_POOL_BYTES_MAX, false },
		{ "segment_bytes", c->segment_bytes, machines ? NUPA_PAGE_BYTES : 0,
		  machines ? (uint64_t)sb->extent_bytes * NUPA_EXTENTS_MAX : 0, false },
	};

	rc = check_limits(limits, sizeof(limits) / sizeof(limits[0]), why, why_bytes);
	if (rc)
		return rc;
	rc = machines ? plan_machines(sb, c, why, why_bytes) : plan_file(sb, why, why_bytes);
	if (!rc && sb->flags & NUPA_SEGMENT_TRUNK)
		rc = plan_trunk(sb, c, why, why_bytes);
	return rc;
}
