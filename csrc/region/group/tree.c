/* SPDX-License-Identifier: BSD-3-Clause
 * Trees of groups: made from routes, looked at before and after each request, counted. */
#include "region/group/tree.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/layout/geometry.h"

#include <errno.h>

/* --- links ------------------------------------------------------------------------- */

/* Whether both ends of a link are up.  The counts first: a port that went down and up in between
 * was counted before it was up. */
static bool linked(const struct nupa_fabric *fabric, const struct nupa_tree_link *link,
		   uint32_t *downs)
{
	const struct nupa_port *ends[2] = { &fabric->ports[link->up], &fabric->ports[link->down] };

	*downs = nupa_load_seq(&ends[0]->link_downed) + nupa_load_seq(&ends[1]->link_downed);
	return nupa_load_seq(&ends[0]->state) == NUPA_PORT_ACTIVE &&
	       nupa_load_seq(&ends[1]->state) == NUPA_PORT_ACTIVE;
}

static int take_links(struct nupa_tree *tree, const struct nupa_fabric *fabric, char *why,
		      size_t why_bytes)
{
	for (uint32_t i = 0; i < tree->n_members; i++)
		if (!linked(fabric, &tree->members[i], &tree->members[i].downs))
			return nupa_explain(-ENETDOWN, why, why_bytes,
					    "the link of host %u is down", tree->members[i].host);
	for (uint32_t i = 1; i < tree->n_switches; i++)
		if (!linked(fabric, &tree->switches[i], &tree->switches[i].downs))
			return nupa_explain(
			    -ENETDOWN, why, why_bytes,
			    "a link between the switches on the way to host %u is down",
			    tree->switches[i].host);
	return 0;
}

int nupa_tree_look(const struct nupa_tree *tree, const struct nupa_fabric *fabric,
		   uint32_t *culprit)
{
	uint32_t downs;

	for (uint32_t i = 0; i < tree->n_members; i++) {
		*culprit = tree->members[i].host;
		if (!linked(fabric, &tree->members[i], &downs) || downs != tree->members[i].downs)
			return -ENETDOWN;
	}
	for (uint32_t i = 1; i < tree->n_switches; i++) {
		*culprit = tree->switches[i].host;
		if (!linked(fabric, &tree->switches[i], &downs) || downs != tree->switches[i].downs)
			return -EHOSTUNREACH;
	}
	return 0;
}

static struct nupa_group_flow *flow_of(const struct nupa_fabric *fabric, uint32_t port)
{
	uint8_t *flows = (uint8_t *)fabric->sb + nupa_group_flows_off(&fabric->geometry);

	return (struct nupa_group_flow *)(void *)flows + port;
}

static void count(const struct nupa_fabric *fabric, uint32_t port, uint64_t bytes)
{
	struct nupa_group_flow *flow = flow_of(fabric, port);

	if (!bytes)
		return;
	__atomic_fetch_add(&flow->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&flow->packets, (bytes + NUPA_MTU_BYTES - 1) / NUPA_MTU_BYTES,
			   __ATOMIC_RELAXED);
}

void nupa_tree_count(const struct nupa_tree *tree, const struct nupa_fabric *fabric,
		     const struct nupa_tree_passage *passage)
{
	for (uint32_t i = 0; i < tree->n_members; i++) {
		const struct nupa_tree_link *link = &tree->members[i];

		count(fabric, link->up, passage->up + (link->way ? passage->own_up : 0));
		count(fabric, link->down, passage->down + (link->way ? passage->own_down : 0));
	}
	for (uint32_t i = 1; i < tree->n_switches; i++) {
		const struct nupa_tree_link *link = &tree->switches[i];

		count(fabric, link->up, link->way ? passage->way_up : passage->trunk_up);
		count(fabric, link->down, link->way ? passage->way_down : passage->trunk_down);
	}
}

int nupa_group_port(const struct nupa_fabric *fabric, uint32_t port, uint64_t *bytes,
		    uint64_t *packets)
{
	if (port >= fabric->geometry.n_ports)
		return -EINVAL;
	*bytes = nupa_load_relaxed(&flow_of(fabric, port)->bytes);
	*packets = nupa_load_relaxed(&flow_of(fabric, port)->packets);
	return 0;
}

/* --- made -------------------------------------------------------------------------- */

/* The switch below *parent* by that trunk; it is new for the first host behind it. */
static uint32_t below(struct nupa_tree *tree, uint32_t parent, uint32_t down, uint32_t up,
		      uint32_t host)
{
	for (uint32_t i = 1; i < tree->n_switches; i++)
		if (tree->switches[i].parent == parent && tree->switches[i].down == down &&
		    tree->switches[i].up == up)
			return i;
	tree->switches[tree->n_switches] = (struct nupa_tree_link){
		.up = up,
		.down = down,
		.host = host,
		.parent = parent,
	};
	return tree->n_switches++;
}

static int add_member(struct nupa_tree *tree, const struct nupa_fabric *fabric,
		      const uint32_t *hosts, uint32_t i, char *why, size_t why_bytes)
{
	const struct nupa_route *route =
	    &fabric->routes[(size_t)hosts[0] * fabric->geometry.n_hosts + hosts[i]];
	const uint32_t port = fabric->hosts[hosts[i]].port;
	const uint32_t peer = nupa_load_relaxed(&fabric->ports[port].peer); /* T3 */
	uint32_t at = 0;

	if (peer >= fabric->geometry.n_ports)
		return nupa_explain(-EUCLEAN, why, why_bytes, "the port of host %u has no peer",
				    hosts[i]);
	if (i && (route->hops % 2 || route->hops < 4))
		return nupa_explain(-EUCLEAN, why, why_bytes,
				    "the route from host %u to host %u passes no switch", hosts[0],
				    hosts[i]);
	for (uint32_t hop = 2; i && hop + 2 < route->hops; hop += 2)
		at = below(tree, at, route->port[hop], route->port[hop + 1], hosts[i]);
	tree->members[i] = (struct nupa_tree_link){
		.up = port,
		.down = peer,
		.host = hosts[i],
		.parent = at,
	};
	return 0;
}

static void add_step(struct nupa_tree *tree, uint32_t level, bool *first, uint32_t member)
{
	tree->steps[tree->n_steps++] = (struct nupa_tree_step){
		.level = (uint8_t)level,
		.first = *first,
		.is_member = member < tree->n_members,
		.member = (uint16_t)member,
	};
	*first = false;
}

/* T2, for a switch and all below it: at most NUPA_TREE_LEVELS_MAX calls deep. */
static void add_steps(struct nupa_tree *tree, uint32_t at, uint32_t level)
{
	bool first = true;

	for (uint32_t i = 0; i < tree->n_members; i++)
		if (tree->members[i].parent == at)
			add_step(tree, level, &first, i);
	for (uint32_t i = at + 1; i < tree->n_switches; i++) {
		if (tree->switches[i].parent != at)
			continue;
		add_steps(tree, i, level + 1);
		add_step(tree, level, &first, NUPA_GROUP_MEMBERS_MAX);
	}
}

int nupa_tree_make(struct nupa_tree *tree, const struct nupa_fabric *fabric, const uint32_t *hosts,
		   uint32_t n, uint32_t requester, char *why, size_t why_bytes)
{
	tree->n_members = n;
	tree->n_switches = 1;
	tree->n_steps = 0;
	for (uint32_t i = 0; i < n; i++) {
		const int rc = add_member(tree, fabric, hosts, i, why, why_bytes);

		if (rc)
			return rc;
		tree->members[i].way = hosts[i] == requester;
	}
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t at = tree->members[i].parent; tree->members[i].way && at;
		     at = tree->switches[at].parent)
			tree->switches[at].way = true;
	add_steps(tree, 0, 0);
	return take_links(tree, fabric, why, why_bytes);
}
