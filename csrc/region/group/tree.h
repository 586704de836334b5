/* SPDX-License-Identifier: BSD-3-Clause
 * Trees: the links of a group, the switches between its hosts, and the order in which they reduce.
 *
 *   T1  The root is the switch of the first member.  The other switches join it by the fabric's
 *       routes from that member's host.  So the tree depends on the members, not on the requester.
 *   T2  A switch takes its own hosts in the order of their numbers, then the results of the
 *       switches below it, in the order of the first host behind each.  Accumulators travel up.
 *   T3  Ports are those of the routes, which are private and checked.  The segment's own words
 *       (nupa_port.peer) are checked once, when the tree is made.
 *
 * A switch that two routes reach in different ways is in the tree twice; topologies have no such
 * routes. */
#ifndef NUPA_GROUP_TREE_H
#define NUPA_GROUP_TREE_H

#include "region/group/group.h"

enum {
	NUPA_TREE_LEVELS_MAX = (NUPA_HOPS_MAX - 1) / 2 - 1, /* 2 ports of each link, 2 are hosts' */
	NUPA_TREE_SWITCHES_MAX = 1 + (NUPA_GROUP_MEMBERS_MAX - 1) * (NUPA_TREE_LEVELS_MAX - 1),
	NUPA_TREE_STEPS_MAX = NUPA_GROUP_MEMBERS_MAX + NUPA_TREE_SWITCHES_MAX,
};

/* A link: of a host and its switch, or of a switch and the one above it. */
struct nupa_tree_link {
	uint32_t up, down; /* ports: from below it bytes leave by `up`, from above it by `down` */
	uint32_t downs;    /* how often its ports had gone down when the tree was made */
	uint32_t host;     /* the first one behind it */
	uint32_t parent;   /* the switch above it */
	bool way;          /* it is between the requester and the root */
};

/* T2: what is taken into the accumulators of a level.  The first of a level replaces them. */
struct nupa_tree_step {
	uint8_t level;
	bool first;
	bool is_member;  /* else: the accumulators of the level below */
	uint16_t member; /* its place in the group */
};

struct nupa_tree {
	uint32_t n_members, n_switches, n_steps;
	struct nupa_tree_link members[NUPA_GROUP_MEMBERS_MAX];
	struct nupa_tree_link switches[NUPA_TREE_SWITCHES_MAX]; /* [0] is the root: no link */
	struct nupa_tree_step steps[NUPA_TREE_STEPS_MAX];
};

/* Bytes of a request on each link. */
struct nupa_tree_passage {
	uint64_t up, down;         /* of each member's link */
	uint64_t own_up, own_down; /* beside them, of the requester's link */
	uint64_t trunk_up, trunk_down;
	uint64_t way_up, way_down; /* of trunks between the requester and the root, instead */
};

/* The tree of *n* hosts, ascending, with *requester* among them.  -ENETDOWN: a link is down;
 * -EUCLEAN: the fabric is damaged. */
int nupa_tree_make(struct nupa_tree *tree, const struct nupa_fabric *fabric, const uint32_t *hosts,
		   uint32_t n, uint32_t requester, char *why, size_t why_bytes);
/* 0; -ENETDOWN: the link of *culprit* went down; -EHOSTUNREACH: one between the switches on the way
 * to *culprit*. */
int nupa_tree_look(const struct nupa_tree *tree, const struct nupa_fabric *fabric,
		   uint32_t *culprit);
void nupa_tree_count(const struct nupa_tree *tree, const struct nupa_fabric *fabric,
		     const struct nupa_tree_passage *passage);

#endif
