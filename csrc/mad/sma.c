/* SPDX-License-Identifier: BSD-3-Clause
 * The subnet management agent of a node (IBTA 14.2.5): a table of attributes.  One without a
 * function of its own is kept as it was set, and has no effect. */
#include "mad/mad.h"

#include "engine/device/device.h"
#include "segment/control/pkey.h"
#include "segment/gid.h"

#include <errno.h>

#define PKEYS_A_BLOCK 32u
#define SWITCH_PART 0x5357u /* "SW" */

static uint16_t node_description(const struct nupa_mad_request *request)
{
	char text[NUPA_SUBNET_VALUE_BYTES + 1] = "";

	if (request->set) /* a subnet manager does not set it */
		return NUPA_MAD_NO_METHOD;
	nupa_node_name(request->subnet->fabric, request->node, text, sizeof(text));
	memcpy(request->data, text, NUPA_SUBNET_VALUE_BYTES);
	return NUPA_MAD_OK;
}

static uint16_t node_info(const struct nupa_mad_request *request)
{
	const struct nupa_fabric *fabric = request->subnet->fabric;
	const struct nupa_node node = request->node;
	const uint64_t guid = nupa_node_guid(fabric, node);
	uint8_t *data = request->data;

	if (request->set)
		return NUPA_MAD_NO_METHOD;
	data[0] = data[1] = 1; /* versions */
	data[2] = node.is_switch ? 2 : 1;
	data[3] = (uint8_t)nupa_node_n_ports(fabric, node);
	for (uint32_t at = 4; at <= 20; at += 8) /* of the system, the node and the port */
		nupa_be64_put(data + at, guid);
	nupa_be16_put(data + 28, node.is_switch ? PKEYS_A_BLOCK : NUPA_PKEYS_MAX);
	nupa_be16_put(data + 30, node.is_switch ? SWITCH_PART : NUPA_PART_ID);
	nupa_be32_put(data + 32, 1); /* revision */
	data[36] = request->in_port;
	nupa_bits_put(data, 37 * 8, 24, NUPA_VENDOR_ID);
	return NUPA_MAD_OK;
}

/* The first block: the port's GUID.  No others can be set. */
static uint16_t guid_info(const struct nupa_mad_request *request)
{
	if (request->set || request->modifier > 31)
		return NUPA_MAD_INVALID;
	if (!request->modifier)
		nupa_be64_put(request->data,
			      nupa_node_guid(request->subnet->fabric, request->node));
	return NUPA_MAD_OK;
}

static uint64_t key_of(const struct nupa_mad_request *request, uint16_t attribute)
{
	return nupa_subnet_key(attribute, request->node.is_switch, request->node.index,
			       request->modifier);
}

/* As it was set; before, as it is. */
static uint16_t keep(const struct nupa_mad_request *request, uint16_t attribute)
{
	if (!request->set) {
		(void)nupa_subnet_get(request->subnet, key_of(request, attribute), request->data);
		return NUPA_MAD_OK;
	}
	return nupa_subnet_set(request->subnet, key_of(request, attribute), request->data)
		   ? NUPA_MAD_INVALID
		   : NUPA_MAD_OK;
}

/* A host's is the table by which the engine goes; ports of switches filter nothing. */
static uint16_t pkey_table(const struct nupa_mad_request *request)
{
	struct nupa_fabric *fabric = request->subnet->fabric;
	const uint32_t block = request->modifier & 0xffff, first = block * PKEYS_A_BLOCK;
	uint16_t pkeys[PKEYS_A_BLOCK];

	if (request->node.is_switch) {
		if (block)
			return NUPA_MAD_INVALID;
		if (!request->set)
			nupa_be16_put(request->data, NUPA_PKEY_DEFAULT);
		return keep(request, 0x16);
	}
	if (first >= NUPA_PKEYS_MAX)
		return NUPA_MAD_INVALID;
	for (uint32_t i = 0; request->set && i < PKEYS_A_BLOCK; i++)
		pkeys[i] = nupa_be16_get(request->data + 2 * i);
	if (request->set &&
	    nupa_pkey_table_set(fabric, request->node.index, first, pkeys, PKEYS_A_BLOCK, NULL, 0))
		return NUPA_MAD_INVALID;
	for (uint32_t i = 0; i < PKEYS_A_BLOCK; i++)
		nupa_be16_put(request->data + 2 * i,
			      nupa_pkey_at(fabric, request->node.index, first + i));
	return NUPA_MAD_OK;
}

/* All service levels to VL 0, the only one. */
static uint16_t sl_to_vl(const struct nupa_mad_request *request)
{
	return keep(request, 0x17);
}

static uint16_t vl_arbitration(const struct nupa_mad_request *request)
{
	return keep(request, 0x18);
}

static const struct {
	uint16_t attribute;
	bool of_switches; /* only they have it */
	nupa_mad_answer *answer;
} attributes[] = {
	{ 0x10, false, node_description },
	{ 0x11, false, node_info },
	{ 0x12, true, nupa_sma_switch_info },
	{ 0x14, false, guid_info },
	{ 0x15, false, nupa_sma_port_info },
	{ 0x16, false, pkey_table },
	{ 0x17, false, sl_to_vl },
	{ 0x18, false, vl_arbitration },
	{ 0x19, true, nupa_sma_linear_table },
	{ 0x1b, true, nupa_sma_multicast_table },
};

static uint16_t answer(const struct nupa_mad_request *request, uint16_t attribute)
{
	for (uint32_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attribute == attribute &&
		    (!attributes[i].of_switches || request->node.is_switch))
			return attributes[i].answer(request);
	return NUPA_MAD_NO_ATTRIBUTE;
}

void nupa_sma_answer(struct nupa_subnet *subnet, struct nupa_node node, uint8_t in_port,
		     uint8_t *mad)
{
	const bool directed = mad[NUPA_MAD_AT_CLASS] == NUPA_MAD_SUBN_DIRECTED;
	const struct nupa_mad_request request = {
		.subnet = subnet,
		.node = node,
		.in_port = in_port,
		.set = mad[NUPA_MAD_AT_METHOD] == NUPA_MAD_SET,
		.modifier = nupa_be32_get(mad + NUPA_MAD_AT_MODIFIER),
		.data = mad + NUPA_MAD_AT_DATA,
	};
	uint16_t status = NUPA_MAD_BAD_VERSION;
	int lock = NUPA_SUBNET_NO_LOCK;

	if (mad[NUPA_MAD_AT_BASE_VERSION] == 1 && mad[NUPA_MAD_AT_CLASS_VERSION] == 1) {
		if (request.set)
			lock = nupa_subnet_lock(subnet->fabric);
		else
			memset(request.data, 0, NUPA_SUBNET_VALUE_BYTES);
		status = lock < 0 && lock != NUPA_SUBNET_NO_LOCK
			     ? NUPA_MAD_INVALID
			     : answer(&request, nupa_be16_get(mad + NUPA_MAD_AT_ATTRIBUTE));
		nupa_subnet_unlock(subnet->fabric, lock);
	}
	mad[NUPA_MAD_AT_METHOD] = NUPA_MAD_GET_RESPONSE;
	if (directed) {
		status |= NUPA_MAD_DIRECTION;
		mad[NUPA_MAD_AT_HOP_POINTER] = 0;
	}
	nupa_be16_put(mad + NUPA_MAD_AT_STATUS, status);
}
