/* SPDX-License-Identifier: BSD-3-Clause
 * Address vectors: which host one leads to, address handles made from them. */
#include "engine/qp/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

/* The host that an address vector leads to: 0, EINVAL or EHOSTUNREACH. */
int nupa_host_of_ah(struct nupa_engine *engine, const struct ibv_ah_attr *attr, uint32_t *host)
{
	const struct nupa_fabric *fabric = engine->fabric;
	int found = -1;

	if (attr->port_num > 1)
		return EINVAL;
	if (attr->is_global) {
		if (attr->grh.sgid_index >= (uint8_t)nupa_gid_count(engine))
			return EINVAL;
		found = nupa_host_of_gid(fabric, &attr->grh.dgid);
	} else if (fabric->hosts[engine->host].link_layer == NUPA_LINK_ETHERNET) {
		nupa_hint("RoCE needs a GID in the address (is_global, grh): "
			  "give the program a GID index, e.g. -g 1");
		return EINVAL;
	} else {
		for (uint32_t i = 0; i < fabric->geometry.n_hosts; i++)
			if (fabric->hosts[i].lid == attr->dlid)
				found = (int)i;
	}
	if (found < 0) {
		nupa_hint("no host of this fabric has the address asked for; see `nupa show`");
		return EHOSTUNREACH;
	}
	*host = (uint32_t)found;
	return 0;
}

/* A group is on no host. */
static int check_group_ah(const struct nupa_engine *engine, const struct ibv_ah_attr *attr)
{
	return attr->port_num > 1 || attr->grh.sgid_index >= (uint8_t)nupa_gid_count(engine)
		   ? EINVAL
		   : 0;
}

struct ibv_ah *nupa_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct nupa_engine *engine = nupa_engine_of(pd->context);
	bool multicast = attr->is_global && nupa_mcast_is_group(&attr->grh.dgid);
	struct nupa_ah *ah;
	uint32_t host = NUPA_AH_GROUP;
	int error = multicast ? check_group_ah(engine, attr) : nupa_host_of_ah(engine, attr, &host);

	if (error) {
		errno = error;
		return NULL;
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	ah->attr = *attr;
	ah->host = host;
	ah->deth = (struct nupa_deth){
		.flow_label = attr->grh.flow_label & 0xfffff,
		.sgid_index = attr->grh.sgid_index,
		.hop_limit = attr->grh.hop_limit,
		.traffic_class = attr->grh.traffic_class,
		.is_global = attr->is_global,
		.slid = engine->fabric->hosts[engine->host].lid,
	};
	nupa_engine_lock(engine);
	ah->ibv.handle = ++engine->objects;
	container_of(pd, struct nupa_pd, ibv)->users++;
	nupa_engine_unlock(engine);
	return &ah->ibv;
}

int nupa_destroy_ah(struct ibv_ah *ibv)
{
	struct nupa_engine *engine = nupa_engine_of(ibv->context);

	nupa_engine_lock(engine);
	container_of(ibv->pd, struct nupa_pd, ibv)->users--;
	nupa_engine_unlock(engine);
	free(container_of(ibv, struct nupa_ah, ibv));
	return 0;
}

/* man ibv_init_ah_from_wc: the way back to where a datagram came from. */
int nupa_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			 struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct nupa_engine *engine = nupa_engine_of(context);
	uint32_t version_tclass_flow;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port_num;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.hop_limit = 0xff;
	version_tclass_flow = ntohl(grh->version_tclass_flow);
	attr->grh.flow_label = version_tclass_flow & 0xfffff;
	attr->grh.traffic_class = (uint8_t)(version_tclass_flow >> 20);
	for (int index = 0; index < nupa_gid_count(engine); index++) {
		union ibv_gid own;

		nupa_host_gid(engine->fabric, engine->host, index, &own);
		if (!memcmp(own.raw, grh->dgid.raw, sizeof(own.raw))) {
			attr->grh.sgid_index = (uint8_t)index;
			return 0;
		}
	}
	if (nupa_mcast_is_group(&grh->dgid)) { /* to an IPv4 group: answered from the IPv4 GID */
		bool mapped = !grh->dgid.raw[0] && nupa_gid_count(engine) > 1;

		attr->grh.sgid_index = mapped ? NUPA_GID_IPV4 : NUPA_GID_LINK;
		return 0;
	}
	errno = ENOENT;
	return -1;
}

struct ibv_ah *nupa_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				      uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (nupa_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return nupa_create_ah(pd, &attr);
}
