/* SPDX-License-Identifier: BSD-3-Clause
 * The performance management agent (IBTA 16.1).  A counter that is set starts anew for readers of
 * MADs: what it had is kept beside, so `nupa show` continues to count. */
#include "mad/mad.h"

#include "base/atomics.h"

#include <errno.h>

#define CLASS_PORT_INFO 0x01
#define PORT_COUNTERS 0x12
#define PORT_COUNTERS_EXTENDED 0x1d
#define BASE 0x3f04 /* our own: the row of what was counted before */

#define ALL_PORTS 0xffu
#define HAS_ALL_PORTS 0x0100u
#define HAS_EXTENDED 0x0200u
#define HAS_XMIT_WAIT 0x1000u

enum counter {
	XMIT_DATA,
	RCV_DATA,
	XMIT_PACKETS,
	RCV_PACKETS,
	XMIT_WAIT,
	XMIT_DISCARDS,
	LINK_DOWNED,
	COUNTERS,
};
_Static_assert(COUNTERS * 8 <= NUPA_SUBNET_VALUE_BYTES, "a row has all");

/* A field of an attribute, and the bit of CounterSelect (behind bit 15: of CounterSelect2) with
 * which it is set.  Fields that nothing counts stay 0. */
struct field {
	uint8_t counter, select;
	uint16_t at, bits;
};
static const struct field short_fields[] = {
	{ LINK_DOWNED, 2, 7 * 8, 8 },     { XMIT_DISCARDS, 6, 14 * 8, 16 },
	{ XMIT_DATA, 12, 24 * 8, 32 },    { RCV_DATA, 13, 28 * 8, 32 },
	{ XMIT_PACKETS, 14, 32 * 8, 32 }, { RCV_PACKETS, 15, 36 * 8, 32 },
	{ XMIT_WAIT, 16, 40 * 8, 32 },
};
/* All packets count as unicast. */
static const struct field long_fields[] = {
	{ XMIT_DATA, 0, 8 * 8, 64 },     { RCV_DATA, 1, 16 * 8, 64 },
	{ XMIT_PACKETS, 2, 24 * 8, 64 }, { RCV_PACKETS, 3, 32 * 8, 64 },
	{ XMIT_PACKETS, 4, 40 * 8, 64 }, { RCV_PACKETS, 5, 48 * 8, 64 },
};

static uint64_t key_of(const struct nupa_mad_request *request, uint32_t number)
{
	return nupa_subnet_key(BASE, request->node.is_switch, request->node.index, number);
}

/* What the port counted in all, and since each counter was set. */
static void count(const struct nupa_mad_request *request, uint32_t number, uint64_t all[COUNTERS],
		  uint64_t since[COUNTERS])
{
	struct nupa_fabric *fabric = request->subnet->fabric;
	const int port = nupa_node_port(fabric, request->node, number);
	uint8_t base[NUPA_SUBNET_VALUE_BYTES] = { 0 };
	struct nupa_traffic traffic = { 0 };

	if (port >= 0)
		nupa_port_traffic(fabric, (uint32_t)port, &traffic);
	/* Data in words of 4 bytes, IBTA 16.1.3.5. */
	all[XMIT_DATA] = traffic.xmit_bytes / 4;
	all[RCV_DATA] = traffic.rcv_bytes / 4;
	all[XMIT_PACKETS] = traffic.xmit_packets;
	all[RCV_PACKETS] = traffic.rcv_packets;
	all[XMIT_WAIT] = traffic.xmit_wait;
	all[XMIT_DISCARDS] = traffic.xmit_discards;
	all[LINK_DOWNED] = port < 0 ? 0 : nupa_load_relaxed(&fabric->ports[port].link_downed);
	(void)nupa_subnet_get(request->subnet, key_of(request, number), base);
	/* Flows of a process that goes meanwhile may be left out: less than before is nothing. */
	for (uint32_t i = 0; i < COUNTERS; i++) {
		since[i] = all[i] - nupa_be64_get(base + 8 * i);
		if (since[i] > INT64_MAX)
			since[i] = 0;
	}
}

/* Counters are set to the value given; those not selected continue. */
static int set_counters(const struct nupa_mad_request *request, uint32_t number,
			const struct field *fields, uint32_t n, uint32_t selected,
			const uint8_t *wanted)
{
	uint64_t all[COUNTERS], since[COUNTERS];
	uint8_t base[NUPA_SUBNET_VALUE_BYTES] = { 0 };

	count(request, number, all, since);
	for (uint32_t i = 0; i < COUNTERS; i++)
		nupa_be64_put(base + 8 * i, all[i] - since[i]);
	for (uint32_t i = 0; i < n; i++)
		if (selected >> fields[i].select & 1)
			nupa_be64_put(base + 8 * fields[i].counter,
				      all[fields[i].counter] -
					  nupa_bits_get(wanted, fields[i].at, fields[i].bits));
	return nupa_subnet_set(request->subnet, key_of(request, number), base);
}

static void put_counters(const struct nupa_mad_request *request, uint32_t first, uint32_t last,
			 const struct field *fields, uint32_t n)
{
	uint64_t sum[COUNTERS] = { 0 }, all[COUNTERS], since[COUNTERS];

	for (uint32_t number = first; number <= last; number++) {
		count(request, number, all, since);
		for (uint32_t i = 0; i < COUNTERS; i++)
			sum[i] += since[i];
	}
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t most =
		    fields[i].bits == 64 ? UINT64_MAX : (UINT64_C(1) << fields[i].bits) - 1;
		const uint64_t value = sum[fields[i].counter];

		/* They stop at their highest value (IBTA 16.1.3.5). */
		nupa_bits_put(request->data, fields[i].at, fields[i].bits,
			      value < most ? value : most);
	}
}

static uint16_t counters(const struct nupa_mad_request *request, const struct field *fields,
			 uint32_t n)
{
	const uint8_t select = request->data[1];
	const uint32_t n_ports = nupa_node_n_ports(request->subnet->fabric, request->node);
	const uint32_t first = select == ALL_PORTS ? 1 : select;
	const uint32_t last = select == ALL_PORTS ? n_ports : select;
	const uint32_t selected =
	    nupa_be16_get(request->data + 2) | (uint32_t)(request->data[18] & 1) << 16;
	uint8_t wanted[128];

	if (last > n_ports || (!request->node.is_switch && !last))
		return NUPA_MAD_INVALID;
	memcpy(wanted, request->data, sizeof(wanted));
	memset(request->data + 4, 0, sizeof(wanted) - 4);
	for (uint32_t number = first; request->set && number <= last; number++)
		if (set_counters(request, number, fields, n, selected, wanted))
			return NUPA_MAD_INVALID;
	put_counters(request, first, last, fields, n);
	return NUPA_MAD_OK;
}

static uint16_t answer(const struct nupa_mad_request *request, uint16_t attribute)
{
	switch (attribute) {
	case CLASS_PORT_INFO:
		if (request->set)
			return NUPA_MAD_NO_METHOD;
		memset(request->data, 0, 72);
		request->data[0] = request->data[1] = 1;
		nupa_be16_put(request->data + 2, HAS_ALL_PORTS | HAS_EXTENDED | HAS_XMIT_WAIT);
		request->data[7] = 18; /* RespTimeValue: a second */
		return NUPA_MAD_OK;
	case PORT_COUNTERS:
		return counters(request, short_fields,
				sizeof(short_fields) / sizeof(short_fields[0]));
	case PORT_COUNTERS_EXTENDED:
		/* CounterSelect2 selects errors, which this attribute does not have here. */
		request->data[18] = 0;
		return counters(request, long_fields, sizeof(long_fields) / sizeof(long_fields[0]));
	default:
		return NUPA_MAD_NO_ATTRIBUTE;
	}
}

void nupa_pma_answer(struct nupa_subnet *subnet, struct nupa_node node, uint8_t *mad)
{
	const struct nupa_mad_request request = {
		.subnet = subnet,
		.node = node,
		.set = mad[NUPA_MAD_AT_METHOD] == NUPA_MAD_SET,
		.data = mad + NUPA_MAD_AT_DATA,
	};
	uint16_t status = NUPA_MAD_BAD_VERSION;
	int lock = NUPA_SUBNET_NO_LOCK;

	if (mad[NUPA_MAD_AT_BASE_VERSION] == 1 && mad[NUPA_MAD_AT_CLASS_VERSION] == 1) {
		if (request.set)
			lock = nupa_subnet_lock(subnet->fabric);
		status = lock < 0 && lock != NUPA_SUBNET_NO_LOCK
			     ? NUPA_MAD_INVALID
			     : answer(&request, nupa_be16_get(mad + NUPA_MAD_AT_ATTRIBUTE));
		nupa_subnet_unlock(subnet->fabric, lock);
	}
	mad[NUPA_MAD_AT_METHOD] = NUPA_MAD_GET_RESPONSE;
	nupa_be16_put(mad + NUPA_MAD_AT_STATUS, status);
}
