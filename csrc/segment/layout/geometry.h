/* SPDX-License-Identifier: BSD-3-Clause
 * Where each part of a segment lies, and whether what it says of itself is true.
 * Plain arithmetic on private memory: no file, no mapping. */
#ifndef NUPA_GEOMETRY_H
#define NUPA_GEOMETRY_H

#include "segment/layout/layout.h"

/* The three tables that never change after creation. */
struct nupa_tables {
	const struct nupa_host *hosts;
	const struct nupa_port *ports;
	const struct nupa_route *routes;
};

/* Takes the defaults for zeros, checks each limit and lays the segment out: all fields of *sb
 * but magic, generation, created_ns, name and checksum.  -EINVAL past a limit. */
int nupa_geometry_plan(const struct nupa_config *config, uint32_t n_hosts, uint32_t n_ports,
		       struct nupa_superblock *sb, char *why, size_t why_bytes);
/* Sets the offsets and sizes that follow from the counts of *sb. */
void nupa_geometry_lay_out(struct nupa_superblock *sb);
/* Offsets of the parts of an arena depend on the superblock alone. */
struct nupa_arena_map {
	/* From the arena's start. */
	uint64_t flows_off, hw_off, qps_off, mrs_off, mcast_off, xrcds_off, net_off;
	uint64_t resources_off, trace_off, rings_off, ring_stride;
};
struct nupa_arena_map nupa_arena_map(const struct nupa_superblock *sb);
/* The contacts, behind the slots, and how many words a row of them has. */
uint64_t nupa_contacts_off(const struct nupa_superblock *sb);
uint32_t nupa_contact_words(const struct nupa_superblock *sb);
/* Flows of former attachments, [from * n_hosts + to]: between the extents and the arenas. */
uint64_t nupa_past_flows_off(const struct nupa_superblock *sb);
/* Errors and faults of former attachments, of each host: behind those. */
uint64_t nupa_past_hw_off(const struct nupa_superblock *sb);
/* Ports bound on a host: a word for each host, and its table (n_hosts: behind the last). */
uint64_t nupa_cm_backed_off(const struct nupa_superblock *sb);
uint64_t nupa_cm_table_off(const struct nupa_superblock *sb, uint32_t host);
/* Group flows, by port: behind those words. */
uint64_t nupa_group_flows_off(const struct nupa_superblock *sb);
/* The table of rates: behind those, before the arenas. */
uint64_t nupa_rates_off(const struct nupa_superblock *sb);
/* The table of regions, and how many places it has. */
uint64_t nupa_regions_off(const struct nupa_superblock *sb);
uint64_t nupa_regions_bytes(const struct nupa_superblock *sb);
uint32_t nupa_region_rows(const struct nupa_superblock *sb);
uint32_t nupa_region_mappings(const struct nupa_superblock *sb);
/* The control table, the last part: the numbers of its rows, its parts from its start, its size. */
struct nupa_control_map {
	uint32_t tenants, partitions, members, events;
	uint64_t tenants_off, partitions_off, members_off, events_off, bytes;
};
uint64_t nupa_control_off(const struct nupa_superblock *sb);
struct nupa_control_map nupa_control_map(const struct nupa_superblock *sb);
/* Checks a superblock read from a file of *file_bytes*.  -EMSGSIZE: file too short.  -ENODATA:
 * zeroed or unfinished.  -EILSEQ: not a fabric.  -EPROTONOSUPPORT: other version.  -EUCLEAN:
 * offsets or sizes are not those of this layout. */
int nupa_geometry_check(const struct nupa_superblock *sb, uint64_t file_bytes, char *why,
			size_t why_bytes);
/* Names end, indices are in range, links and routes join what they say: else -EUCLEAN. */
int nupa_geometry_check_tables(const struct nupa_superblock *sb, const struct nupa_tables *tables,
			       char *why, size_t why_bytes);
/* Over the superblock after magic and the tables; port states left out. */
uint32_t nupa_geometry_checksum(const struct nupa_superblock *sb, const struct nupa_tables *tables);

#endif
