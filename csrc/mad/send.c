/* SPDX-License-Identifier: BSD-3-Clause
 * Where a MAD goes, and who answers it: the agents of a node here, or programs of a host. */
#include "mad/mad.h"

#include "segment/gid.h"

static bool is_subnet(const uint8_t *mad)
{
	return mad[NUPA_MAD_AT_CLASS] == NUPA_MAD_SUBN_DIRECTED ||
	       mad[NUPA_MAD_AT_CLASS] == NUPA_MAD_SUBN_LID;
}

static bool is_response(const uint8_t *mad)
{
	return mad[NUPA_MAD_AT_METHOD] & NUPA_MAD_RESPONSE ||
	       mad[NUPA_MAD_AT_METHOD] == NUPA_MAD_TRAP_REPRESS;
}

/* Requests that the node itself answers: those of SMInfo are for the subnet manager there. */
static bool is_for_node(const uint8_t *mad)
{
	const uint8_t method = mad[NUPA_MAD_AT_METHOD];

	if (method != NUPA_MAD_GET && method != NUPA_MAD_SET)
		return false;
	return mad[NUPA_MAD_AT_CLASS] == NUPA_MAD_PERF ||
	       (is_subnet(mad) && nupa_be16_get(mad + NUPA_MAD_AT_ATTRIBUTE) != 0x20);
}

/* The node at the end of the path, and whether it can be reached. */
static bool find_node(struct nupa_subnet *subnet, uint32_t from, const struct nupa_mad_target *to,
		      uint8_t *mad, struct nupa_node *node, uint8_t *in_port)
{
	const struct nupa_fabric *fabric = subnet->fabric;
	const struct nupa_node self = { .index = from };
	const bool directed = mad[NUPA_MAD_AT_CLASS] == NUPA_MAD_SUBN_DIRECTED;
	struct nupa_node start = self;
	int host;

	*in_port = 0;
	if (directed && is_response(mad)) {
		mad[NUPA_MAD_AT_STATUS] |= NUPA_MAD_DIRECTION >> 8;
		mad[NUPA_MAD_AT_HOP_POINTER] = 0;
		return !nupa_smi_return(fabric, self, mad, node);
	}
	/* A path that begins at another node: by LID to that. */
	if (!directed || nupa_be16_get(mad + NUPA_MAD_AT_DR_SLID) != NUPA_LID_PERMISSIVE) {
		if (to->gid) {
			host =
			    nupa_host_of_gid(fabric, (const union ibv_gid *)(const void *)to->gid);
			if (host < 0)
				return false;
			start = (struct nupa_node){ .index = (uint32_t)host };
		} else if (nupa_node_of_lid(fabric, to->lid, &start)) {
			return false;
		}
		if (!nupa_smi_reaches(fabric, from, start))
			return false;
	}
	if (directed)
		return !nupa_smi_forward(fabric, start, mad, node, in_port);
	*node = start;
	*in_port = node->is_switch ? 0 : 1;
	return true;
}

enum nupa_mad_fate nupa_mad_send(struct nupa_subnet *subnet, uint32_t from,
				 const struct nupa_mad_target *to, uint8_t mad[NUPA_MAD_BYTES],
				 uint32_t *host)
{
	struct nupa_node node;
	uint8_t in_port;

	/* A port without link layer InfiniBand has no QP0 and no LIDs. */
	if (subnet->fabric->hosts[from].link_layer != NUPA_LINK_INFINIBAND &&
	    (is_subnet(mad) || !to->gid))
		return NUPA_MAD_LOST;
	if (!find_node(subnet, from, to, mad, &node, &in_port))
		return NUPA_MAD_LOST;
	if (!is_for_node(mad)) {
		*host = node.index;
		return node.is_switch ? NUPA_MAD_LOST : NUPA_MAD_DELIVER;
	}
	if (is_subnet(mad))
		nupa_sma_answer(subnet, node, in_port, mad);
	else
		nupa_pma_answer(subnet, node, mad);
	return NUPA_MAD_ANSWERED;
}
