/* SPDX-License-Identifier: BSD-3-Clause
 * Hostile writes into slots, contacts, the superblock and the tables beside it; and the list of all
 * parts. */
#include "base/atomics.h"
#include "region/region_internal.h"
#include "segment/control/control_internal.h"
#include "segment/layout/geometry.h"
#include "tests/segment/scribble.h"
#include "tests/support/runner.h"

/* --- slots ---------------------------------------------------------------------------------- */

void scribble_hazard(struct nupa_fabric *fabric, uint32_t slot, uint64_t *random)
{
	nupa_store_relaxed(&fabric->slots[slot].hazard,
			   (test_random(random) % 8) << 32 | (test_random(random) % 32));
}

/* A region of one is held by another, for good. */
static void write_hazard(struct nupa_fabric *fabric, uint64_t *random)
{
	const uint32_t owner = scribble_slot(fabric, random);

	nupa_store_relaxed(&fabric->slots[scribble_slot(fabric, random)].hazard,
			   (uint64_t)owner << 32 | (1 + scribble_pick(random, 32)));
}

/* All of a slot but its claim. */
static void write_slot(struct nupa_fabric *fabric, uint64_t *random)
{
	struct nupa_slot *slot = &fabric->slots[scribble_slot(fabric, random)];

	scribble((uint8_t *)slot + sizeof(slot->claim), sizeof(*slot) - sizeof(slot->claim),
		 random);
}

static void write_contact(struct nupa_fabric *fabric, uint64_t *random)
{
	const uint32_t from = scribble_slot(fabric, random), to = scribble_slot(fabric, random);
	uint32_t *word = nupa_contact(fabric, from, to);
	const uint64_t claim = nupa_load_relaxed(&fabric->slots[to].claim);

	if (scribble_pick(random, 4) == 0)
		scribble((uint8_t *)word, fabric->contact_words * sizeof(*word) / 2, random);
	else
		nupa_store_release(word, NUPA_CLAIM_EPOCH(claim) |
					     (scribble_pick(random, 8) ? 0 : NUPA_CONTACT_CLOSED));
	(void)nupa_fetch_add_seq(&fabric->slots[to].contact_epoch, 1);
}

static void write_claim(struct nupa_fabric *fabric, uint64_t *random)
{
	uint64_t *claim =
	    &fabric->slots[1 + scribble_pick(random, fabric->geometry.n_slots - 1)].claim;
	const uint64_t owner = NUPA_CLAIM_OWNER(
	    nupa_load_relaxed(&fabric->slots[scribble_slot(fabric, random)].claim));

	if (scribble_pick(random, 4) == 0)
		scribble((uint8_t *)claim, sizeof(*claim), random);
	else
		nupa_store_release(
		    claim,
		    NUPA_CLAIM(scribble_pick(random, 2) ? owner : scribble_pick(random, 5000),
			       scribble_pick(random, 4), scribble_pick(random, 4)));
}

/* --- the superblock and what follows it ------------------------------------------------------ */

static void write_port(struct nupa_fabric *fabric, uint64_t *random)
{
	struct nupa_port *port = &fabric->ports[scribble_pick(random, fabric->geometry.n_ports)];

	if (scribble_pick(random, 4) == 0)
		scribble((uint8_t *)port, sizeof(*port), random);
	else
		nupa_store_relaxed(&port->state,
				   scribble_pick(random, 2) ? NUPA_PORT_ACTIVE : NUPA_PORT_DOWN);
	(void)nupa_fetch_add_seq(&fabric->sb->port_epoch, 1);
}

/* A wire to a host, whose keeper is any slot. */
static void write_wire(struct nupa_fabric *fabric, uint64_t *random)
{
	struct nupa_wire_entry *entry = &fabric->sb->wires[scribble_pick(random, NUPA_WIRES_MAX)];
	const uint32_t slot = scribble_slot(fabric, random);

	scribble((uint8_t *)entry, sizeof(*entry), random);
	nupa_store_relaxed(&entry->slot, slot);
	nupa_store_relaxed(&entry->epoch,
			   NUPA_CLAIM_EPOCH(nupa_load_relaxed(&fabric->slots[slot].claim)));
	nupa_store_release(&entry->host, scribble_pick(random, fabric->geometry.n_hosts + 1));
	(void)nupa_fetch_add_seq(&fabric->sb->port_epoch, 1);
}

/* Epochs, captures, faults, kernels, controls, rates, the control table. */
static void write_control(struct nupa_fabric *fabric, uint64_t *random)
{
	struct nupa_superblock *sb = fabric->sb;
	const uint64_t from = offsetof(struct nupa_superblock, port_epoch);
	uint8_t *table = nupa_fabric_control(fabric, true);

	switch (scribble_pick(random, 8)) {
	case 0:
		write_wire(fabric, random);
		break;
	case 1:
		scribble((uint8_t *)sb + from, sizeof(*sb) - from, random);
		break;
	case 2:
		scribble((uint8_t *)fabric->controls,
			 sb->n_hosts * sizeof(struct nupa_host_control), random);
		break;
	case 3:
		scribble((uint8_t *)fabric->rates, 4096, random);
		break;
	case 4:
		nupa_store_relaxed(&sb->trace, NUPA_TRACE_WORD(scribble_pick(random, 16),
							       scribble_pick(random, 9000)));
		break;
	case 5:
		scribble(table, nupa_control_map(&fabric->geometry).bytes, random);
		break;
	default:
		scribble((uint8_t *)sb + from, 64, random);
		break;
	}
	(void)nupa_fetch_add_seq(&sb->port_epoch, 1);
}

/* What never changes, as all have it: the superblock up to its checksum, hosts, ports, routes. */
static void write_geometry(struct nupa_fabric *fabric, uint64_t *random)
{
	const struct nupa_superblock *sb = &fabric->geometry;

	scribble((uint8_t *)fabric->sb + (scribble_pick(random, 2) ? sb->hosts_off : 0),
		 scribble_pick(random, 2) ? sb->slots_off - sb->hosts_off
					  : offsetof(struct nupa_superblock, port_epoch),
		 random);
}

/* Extents of the pool, regions, bound ports. */
static void write_regions(struct nupa_fabric *fabric, uint64_t *random)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint32_t slot = scribble_slot(fabric, random);
	struct nupa_regions t;

	if (nupa_regions(fabric, true, &t))
		return;
	nupa_store_relaxed(&t.header->rows_limit, t.n_rows);
	switch (scribble_pick(random, 4)) {
	case 0:
		nupa_store_relaxed(&fabric->extents[scribble_pick(random, sb->n_extents)],
				   NUPA_EXTENT(slot, scribble_pick(random, 4)));
		break;
	case 1:
		nupa_store_relaxed(&t.rows[scribble_pick(random, t.n_rows)].claim,
				   NUPA_CLAIM(scribble_pick(random, 3000), scribble_pick(random, 4),
					      scribble_pick(random, 7)));
		break;
	case 2:
		scribble((uint8_t *)&t.rows[scribble_pick(random, t.n_rows)], sizeof(t.rows[0]),
			 random);
		break;
	default:
		scribble((uint8_t *)nupa_fabric_cm_table(fabric, scribble_pick(random, sb->n_hosts),
							 true),
			 NUPA_CM_TABLE_BYTES, random);
		break;
	}
}

const struct scribble_area scribble_areas[] = {
	{ "polite messages", scribble_polite_message },
	{ "datagrams", scribble_datagram },
	{ "tables", scribble_tables },
	{ "counts", scribble_counts },
	{ "hazards", write_hazard },
	{ "contacts", write_contact },
	{ "ports", write_port },
	{ "control", write_control },
	{ "regions", write_regions },
	{ "rings", scribble_ring },
	{ "messages", scribble_message_of_any },
	{ "slots", write_slot },
	{ "claims", write_claim },
	{ "geometry", write_geometry },
};
const uint32_t scribble_n_areas = sizeof(scribble_areas) / sizeof(scribble_areas[0]);
