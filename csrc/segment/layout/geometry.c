/* SPDX-License-Identifier: BSD-3-Clause
 * Where each part of a segment lies. */
#include "segment/layout/geometry.h"

#include "segment/layout/control_layout.h"
#include "segment/layout/rate_layout.h"
#include "segment/layout/region_layout.h"
#include "segment/layout/resource_layout.h"

#include <stdbool.h>

static uint64_t pad_to(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

struct nupa_arena_map nupa_arena_map(const struct nupa_superblock *sb)
{
	struct nupa_arena_map map;

	map.flows_off = 0;
	map.hw_off = sb->n_hosts * sizeof(struct nupa_flow);
	map.qps_off = pad_to(map.hw_off + sizeof(struct nupa_hw_counters), NUPA_PAGE_BYTES);
	map.mrs_off =
	    map.qps_off + pad_to(sb->qp_entries * sizeof(struct nupa_qp_entry), NUPA_PAGE_BYTES);
	map.mcast_off =
	    map.mrs_off + pad_to(sb->mr_entries * sizeof(struct nupa_mr_entry), NUPA_PAGE_BYTES);
	map.xrcds_off =
	    map.mcast_off + NUPA_MCAST_MEMBERSHIPS_MAX * sizeof(struct nupa_mcast_entry);
	map.net_off =
	    map.xrcds_off + pad_to(NUPA_XRCD_MAX * sizeof(struct nupa_xrcd_entry), NUPA_PAGE_BYTES);
	map.resources_off = map.net_off + pad_to(sizeof(struct nupa_net_counters), NUPA_PAGE_BYTES);
	map.trace_off = map.resources_off +
			pad_to(sizeof(struct nupa_resource_header) +
				   nupa_resource_rows(sb) * sizeof(struct nupa_resource_row),
			       NUPA_PAGE_BYTES);
	map.rings_off = map.trace_off + pad_to(sizeof(struct nupa_trace_header) + NUPA_TRACE_BYTES,
					       NUPA_PAGE_BYTES);
	map.ring_stride =
	    pad_to(sizeof(struct nupa_ring_header) +
		       (uint64_t)sb->ring_lines * NUPA_CACHE_LINE_BYTES + sb->dma_bytes,
		   NUPA_PAGE_BYTES);
	return map;
}

uint64_t nupa_contacts_off(const struct nupa_superblock *sb)
{
	return sb->slots_off + sb->n_slots * sizeof(struct nupa_slot);
}

uint32_t nupa_contact_words(const struct nupa_superblock *sb)
{
	return (uint32_t)(pad_to(sb->n_slots * sizeof(uint32_t), NUPA_CACHE_LINE_BYTES) /
			  sizeof(uint32_t));
}

uint64_t nupa_past_flows_off(const struct nupa_superblock *sb)
{
	return pad_to(sb->extents_off + sb->n_extents * sizeof(uint32_t), NUPA_CACHE_LINE_BYTES);
}

uint64_t nupa_past_hw_off(const struct nupa_superblock *sb)
{
	return nupa_past_flows_off(sb) +
	       (uint64_t)sb->n_hosts * sb->n_hosts * sizeof(struct nupa_flow);
}

uint64_t nupa_cm_backed_off(const struct nupa_superblock *sb)
{
	return nupa_past_hw_off(sb) + sb->n_hosts * sizeof(struct nupa_hw_counters);
}

uint64_t nupa_group_flows_off(const struct nupa_superblock *sb)
{
	return pad_to(nupa_cm_backed_off(sb) + sb->n_hosts * sizeof(uint32_t),
		      NUPA_CACHE_LINE_BYTES);
}

uint64_t nupa_rates_off(const struct nupa_superblock *sb)
{
	return pad_to(nupa_group_flows_off(sb) + sb->n_ports * sizeof(struct nupa_group_flow),
		      NUPA_CACHE_LINE_BYTES);
}

uint64_t nupa_cm_table_off(const struct nupa_superblock *sb, uint32_t host)
{
	return sb->pool_off + sb->pool_bytes + host * NUPA_CM_TABLE_BYTES;
}

uint64_t nupa_regions_off(const struct nupa_superblock *sb)
{
	return nupa_cm_table_off(sb, sb->n_hosts);
}

uint32_t nupa_region_rows(const struct nupa_superblock *sb)
{
	return sb->flags & NUPA_SEGMENT_MACHINES ? NUPA_REGIONS_MACHINES_MAX : NUPA_REGIONS_MAX;
}

uint32_t nupa_region_mappings(const struct nupa_superblock *sb)
{
	return sb->flags & NUPA_SEGMENT_MACHINES ? NUPA_REGION_MAPPINGS_MACHINES_MAX
						 : NUPA_REGION_MAPPINGS_MAX;
}

uint64_t nupa_regions_bytes(const struct nupa_superblock *sb)
{
	return pad_to(sizeof(struct nupa_region_header) +
			  nupa_region_rows(sb) * sizeof(struct nupa_region_row) +
			  nupa_region_mappings(sb) * sizeof(struct nupa_region_mapping),
		      NUPA_PAGE_BYTES);
}

uint64_t nupa_control_off(const struct nupa_superblock *sb)
{
	return nupa_regions_off(sb) + nupa_regions_bytes(sb);
}

struct nupa_control_map nupa_control_map(const struct nupa_superblock *sb)
{
	const bool machines = sb->flags & NUPA_SEGMENT_MACHINES;
	struct nupa_control_map map = {
		.tenants = machines ? NUPA_TENANTS_MACHINES_MAX : NUPA_TENANTS_MAX,
		.partitions = machines ? NUPA_PARTITIONS_MACHINES_MAX : NUPA_PARTITIONS_MAX,
		.members = machines ? NUPA_MEMBERS_MACHINES_MAX : NUPA_MEMBERS_MAX,
		.events = machines ? NUPA_EVENTS_MACHINES_MAX : NUPA_EVENTS_MAX,
	};

	map.tenants_off = sizeof(struct nupa_control_header);
	map.partitions_off = map.tenants_off + map.tenants * sizeof(struct nupa_tenant_row);
	map.members_off = map.partitions_off + map.partitions * sizeof(struct nupa_partition_row);
	map.events_off = map.members_off + map.members * sizeof(struct nupa_member_row);
	map.bytes =
	    pad_to(map.events_off + map.events * sizeof(struct nupa_event_row), NUPA_PAGE_BYTES);
	return map;
}

void nupa_geometry_lay_out(struct nupa_superblock *sb)
{
	struct nupa_arena_map arena = nupa_arena_map(sb);
	uint64_t n_routes = (uint64_t)sb->n_hosts * sb->n_hosts;

	sb->hosts_off = sizeof(*sb);
	sb->ports_off = sb->hosts_off + sb->n_hosts * sizeof(struct nupa_host);
	sb->routes_off = sb->ports_off + sb->n_ports * sizeof(struct nupa_port);
	sb->controls_off =
	    pad_to(sb->routes_off + n_routes * sizeof(struct nupa_route), NUPA_CACHE_LINE_BYTES);
	sb->slots_off = pad_to(sb->controls_off + sb->n_hosts * sizeof(struct nupa_host_control),
			       NUPA_PAGE_BYTES);
	sb->extents_off = nupa_contacts_off(sb) +
			  (uint64_t)sb->n_slots * nupa_contact_words(sb) * sizeof(uint32_t);
	sb->arenas_off = pad_to(
	    nupa_rates_off(sb) + NUPA_RATES_MAX * sizeof(struct nupa_rate_entry), NUPA_PAGE_BYTES);
	sb->arena_bytes = arena.rings_off + sb->n_slots * arena.ring_stride;
	sb->pool_off =
	    pad_to(sb->arenas_off + (sb->n_slots - 1) * sb->arena_bytes, sb->extent_bytes);
	sb->segment_bytes = nupa_control_off(sb) + nupa_control_map(sb).bytes;
}
