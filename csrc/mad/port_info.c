/* SPDX-License-Identifier: BSD-3-Clause
 * PortInfo (IBTA 14.2.5.6).  State, speed and LID are those of the fabric; what else a subnet
 * manager sets is kept. */
#include "mad/mad.h"

#include "base/atomics.h"
#include "engine/device/device.h"
#include "region/region.h"
#include "segment/gid.h"
#include "segment/rate.h"
#include "segment/slot/counters.h"

#include <errno.h>

#define ATTRIBUTE 0x15
#define MTU_4096 5u
#define LINK_LOCAL_PREFIX UINT64_C(0xfe80000000000000)

enum physical_state { POLLING = 2, DISABLED = 3, LINK_UP = 5 };
enum logical_state { NO_CHANGE, DOWN, INITIALIZE, ARMED, ACTIVE };

/* Fields, by their first bit and their bits. */
struct field {
	uint16_t at, bits;
};
static const struct field lid = { 16 * 8, 16 }, sm_lid = { 18 * 8, 16 }, caps = { 20 * 8, 32 },
			  local_port = { 28 * 8, 8 }, width_enabled = { 29 * 8, 8 },
			  width_supported = { 30 * 8, 8 }, width_active = { 31 * 8, 8 },
			  speed_supported = { 32 * 8, 4 }, state = { 32 * 8 + 4, 4 },
			  physical = { 33 * 8, 4 }, down_default = { 33 * 8 + 4, 4 },
			  lmc = { 34 * 8 + 5, 3 }, speed_active = { 35 * 8, 4 },
			  speed_enabled = { 35 * 8 + 4, 4 }, neighbor_mtu = { 36 * 8, 4 },
			  vl_cap = { 37 * 8, 4 }, mtu_cap = { 41 * 8 + 4, 4 },
			  operational_vls = { 43 * 8, 4 }, pkey_violations = { 46 * 8, 16 },
			  qkey_violations = { 48 * 8, 16 }, guid_cap = { 50 * 8, 8 },
			  subnet_timeout = { 51 * 8 + 3, 5 }, response_time = { 52 * 8 + 3, 5 },
			  ext_active = { 62 * 8, 4 }, ext_supported = { 62 * 8 + 4, 4 },
			  ext_enabled = { 63 * 8 + 3, 5 };

/* Those that a subnet manager sets and that are kept.  The first four are the node's: ports of a
 * switch other than 0 do not have them. */
#define N_OF_NODE 4u
static const struct field kept[] = {
	{ 0, 64 },         /* M_Key */
	{ 8 * 8, 64 },     /* GidPrefix */
	{ 18 * 8, 16 },    /* MasterSMLID */
	{ 26 * 8, 16 },    /* M_KeyLeasePeriod */
	{ 33 * 8 + 4, 4 }, /* LinkDownDefaultState */
	{ 34 * 8, 2 },     /* M_KeyProtectBits */
	{ 36 * 8, 4 },     /* NeighborMTU */
	{ 36 * 8 + 4, 4 }, /* MasterSMSL */
	{ 37 * 8 + 4, 4 }, /* InitType */
	{ 38 * 8, 8 },     /* VLHighLimit */
	{ 42 * 8, 8 },     /* VLStallCount, HOQLife */
	{ 43 * 8, 4 },     /* OperationalVLs */
	{ 51 * 8 + 1, 7 }, /* multicast P_Key traps, SubnetTimeOut */
	{ 53 * 8, 8 },     /* LocalPhyErrors, OverrunErrors */
};

#define N_KEPT (sizeof(kept) / sizeof(kept[0]))

static uint64_t get(const uint8_t *data, struct field field)
{
	return nupa_bits_get(data, field.at, field.bits);
}

static void put(uint8_t *data, struct field field, uint64_t value)
{
	nupa_bits_put(data, field.at, field.bits, value);
}

uint32_t nupa_sma_cap_mask(const struct nupa_subnet *subnet, uint32_t host)
{
	const bool is_sm = subnet->is_sm && subnet->is_sm(subnet, host);

	return NUPA_INFINIBAND_CAPS | (is_sm ? IBV_PORT_SM : 0);
}

/* A port of the node; number 0 is that of a switch itself. */
struct place {
	uint32_t number;
	int port; /* in the table of ports; < 0: none */
};

static uint64_t key_of(const struct nupa_mad_request *request, const struct place *place)
{
	return nupa_subnet_key(ATTRIBUTE, request->node.is_switch, request->node.index,
			       place->number);
}

static bool has_lid(struct nupa_node node, const struct place *place)
{
	return !node.is_switch || !place->number;
}

static uint32_t first_kept(struct nupa_node node, const struct place *place)
{
	return has_lid(node, place) ? 0 : N_OF_NODE;
}

static void put_speed(uint8_t *data, const struct nupa_port_rate *rate)
{
	/* Bits of ibv_port_attr: SDR, DDR, QDR, FDR10; extended: FDR, EDR, HDR, NDR. */
	const uint8_t ext = (uint8_t)(rate->speed >> 4);
	const uint8_t plain = ext || rate->speed == 8 ? 4 : rate->speed;

	put(data, width_supported, rate->width);
	put(data, width_enabled, rate->width);
	put(data, width_active, rate->width);
	put(data, speed_supported, (uint64_t)plain * 2 - 1);
	put(data, speed_enabled, (uint64_t)plain * 2 - 1);
	put(data, speed_active, plain);
	put(data, ext_supported, ext ? (uint64_t)ext * 2 - 1 : 0);
	put(data, ext_enabled, ext ? (uint64_t)ext * 2 - 1 : 0);
	put(data, ext_active, ext);
}

/* Both ends are up, or this one is down, or the other. */
static void put_state(uint8_t *data, const struct nupa_fabric *fabric, int port)
{
	const bool own =
	    port >= 0 && nupa_load_relaxed(&fabric->ports[port].state) == NUPA_PORT_ACTIVE;
	const bool linked = own && nupa_node_linked(fabric, (uint32_t)port);

	put(data, state, linked ? ACTIVE : DOWN);
	put(data, physical, linked ? LINK_UP : own || port < 0 ? POLLING : DISABLED);
}

static void put_violations(uint8_t *data, struct nupa_fabric *fabric, uint32_t host)
{
	struct nupa_hw_counters hw = { 0 };

	(void)nupa_fabric_hw_counters(fabric, host, &hw);
	put(data, pkey_violations, hw.pkey_violations < 0xffff ? hw.pkey_violations : 0xffff);
	put(data, qkey_violations, hw.qkey_violations < 0xffff ? hw.qkey_violations : 0xffff);
}

static void show(const struct nupa_mad_request *request, const struct place *place)
{
	struct nupa_fabric *fabric = request->subnet->fabric;
	const struct nupa_node node = request->node;
	const struct nupa_port none = { .width_lanes = 4, .speed_mtps = 25000 };
	const struct nupa_port_rate rate =
	    nupa_port_rate(place->port >= 0 ? &fabric->ports[place->port] : &none);
	uint8_t set[NUPA_SUBNET_VALUE_BYTES], *data = request->data;

	memset(data, 0, NUPA_SUBNET_VALUE_BYTES);
	nupa_be64_put(data + 8, LINK_LOCAL_PREFIX);
	put(data, down_default, POLLING);
	put(data, neighbor_mtu, MTU_4096);
	put(data, operational_vls, 1);
	put(data, subnet_timeout, 18);
	/* Port 0 of a switch, and the port of a host: what the node itself has. */
	if (has_lid(node, place)) {
		put(data, lid, nupa_node_lid(fabric, node));
		put(data, guid_cap, 8);
		put(data, response_time, 16);
	}
	if (nupa_subnet_get(request->subnet, key_of(request, place), set))
		for (uint32_t i = first_kept(request->node, place); i < N_KEPT; i++)
			put(data, kept[i], get(set, kept[i]));
	if (!node.is_switch)
		put(data, sm_lid, nupa_host_sm_lid(fabric, node.index));
	put(data, local_port, request->in_port);
	put(data, vl_cap, 1);
	put(data, mtu_cap, MTU_4096);
	put_speed(data, &rate);
	put_state(data, fabric, place->port);
	if (node.is_switch && !place->number) {
		put(data, state, ACTIVE);
		put(data, physical, LINK_UP);
		put(data, caps, IBV_PORT_SYS_IMAGE_GUID_SUP | IBV_PORT_EXTENDED_SPEEDS_SUP);
	} else if (!node.is_switch) {
		put(data, caps, nupa_sma_cap_mask(request->subnet, node.index));
		put_violations(data, fabric, node.index);
	}
}

/* Disabled, and enabled again; IBTA 14.2.5.6: other changes are not a subnet manager's. */
static uint16_t set_state(struct nupa_fabric *fabric, const struct place *place,
			  const uint8_t *data)
{
	const uint64_t to = get(data, physical), logical = get(data, state);
	int rc = 0;

	if (to == POLLING || to == DISABLED)
		rc = place->port < 0
			 ? -EINVAL
			 : nupa_fabric_set_port(fabric, (uint32_t)place->port,
						to == DISABLED ? NUPA_PORT_DOWN : NUPA_PORT_ACTIVE);
	else if (to || logical == INITIALIZE || logical > ACTIVE)
		return NUPA_MAD_INVALID;
	/* Down: the link trains anew, which takes no time. */
	else if (logical == DOWN && place->port >= 0 &&
		 nupa_node_linked(fabric, (uint32_t)place->port)) {
		rc = nupa_fabric_set_port(fabric, (uint32_t)place->port, NUPA_PORT_DOWN);
		if (!rc)
			rc = nupa_fabric_set_port(fabric, (uint32_t)place->port, NUPA_PORT_ACTIVE);
	}
	return rc ? NUPA_MAD_INVALID : NUPA_MAD_OK;
}

static uint16_t set(const struct nupa_mad_request *request, const struct place *place)
{
	const bool base = has_lid(request->node, place);
	struct nupa_fabric *fabric = request->subnet->fabric;
	uint8_t wanted[NUPA_SUBNET_VALUE_BYTES];
	const struct nupa_mad_request now = { .subnet = request->subnet,
					      .node = request->node,
					      .in_port = request->in_port,
					      .data = wanted };
	uint16_t status;

	/* Addresses of programs have the fabric's LIDs, which do not change. */
	if (base && get(request->data, lid) != nupa_node_lid(fabric, request->node))
		return NUPA_MAD_INVALID;
	if (base && get(request->data, lmc))
		return NUPA_MAD_INVALID;
	show(&now, place);
	for (uint32_t i = first_kept(request->node, place); i < N_KEPT; i++)
		put(wanted, kept[i], get(request->data, kept[i]));
	if (nupa_subnet_set(request->subnet, key_of(request, place), wanted))
		return NUPA_MAD_INVALID;
	if (!request->node.is_switch) /* for ibv_query_port */
		nupa_store_relaxed(&fabric->controls[request->node.index].sm_lid,
				   (uint32_t)get(wanted, sm_lid));
	status = set_state(fabric, place, request->data);
	show(request, place);
	return status;
}

uint16_t nupa_sma_port_info(const struct nupa_mad_request *request)
{
	/* A channel adapter: 0 is the port by which the request came. */
	const uint32_t asked = request->modifier & 0xff;
	struct nupa_fabric *fabric = request->subnet->fabric;
	const uint32_t number = !request->node.is_switch && !asked ? request->in_port : asked;
	const struct place place = { number, nupa_node_port(fabric, request->node, number) };

	if (request->modifier & 0x7fffff00 || number > nupa_node_n_ports(fabric, request->node) ||
	    (!request->node.is_switch && number != 1))
		return NUPA_MAD_INVALID;
	if (request->set)
		return set(request, &place);
	show(request, &place);
	return NUPA_MAD_OK;
}
