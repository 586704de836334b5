/* SPDX-License-Identifier: BSD-3-Clause
 * Frames of hosts with a rate.  They go by the first P_Key that both hosts have.
 *
 *   I4  A frame that may not go yet is kept, and its interface is read no further.  The kernel's
 *       queue fills up behind it, as behind a slow link. */
#include "engine/net/net_internal.h"
#include "segment/control/pkey.h"

#include <stdlib.h>

struct nupa_net_pace {
	struct nupa_pace pace;
	uint32_t looks; /* at the table of rates, when it was found */
};

static struct nupa_pace *pace_to(struct nupa_net *net, uint32_t host)
{
	const struct nupa_engine *engine = net->engine;
	const struct nupa_fabric *fabric = engine->fabric;
	struct nupa_net_pace *to;
	int index;

	if (unlikely(!net->paces))
		net->paces = calloc(fabric->geometry.n_hosts, sizeof(*net->paces));
	if (unlikely(!net->paces))
		abort(); /* a host that keeps no rate would take what is others' */
	to = &net->paces[host];
	if (likely(to->looks == engine->rates->looks))
		return &to->pace;
	index = nupa_pkey_shared(fabric, engine->host, host);
	nupa_pace_find(engine, engine->host,
		       index < 0 ? 0 : nupa_pkey_at(fabric, engine->host, (uint32_t)index),
		       &to->pace);
	to->looks = engine->rates->looks;
	return &to->pace;
}

bool nupa_net_is_rated(struct nupa_net *net, uint32_t host)
{
	return unlikely(net->engine->rates) && pace_to(net, host)->n;
}

bool nupa_net_may_go(struct nupa_net *net, uint32_t host, uint32_t frame_bytes)
{
	net->waits_until_ns =
	    nupa_pace_due_ns(pace_to(net, host), frame_bytes, net->engine->now_ns());
	return !net->waits_until_ns;
}

void nupa_net_charge(struct nupa_net *net, uint32_t host, uint32_t frame_bytes)
{
	struct nupa_pace *pace = pace_to(net, host);

	(void)nupa_pace_due_ns(pace, frame_bytes, net->engine->now_ns());
	pace->booked_bytes = 0;
}

uint64_t nupa_net_waits_until_ns(const struct nupa_net *net)
{
	return net->kept_bytes ? net->waits_until_ns : 0;
}
