/* SPDX-License-Identifier: BSD-3-Clause
 * Groups: the memory of several hosts under one range of offsets, and requests that their switch
 * executes on all of it: a store to each member, a load of what all members have reduced to one, a
 * reduction into each member, and a reduction that is stored to each member.
 *
 *   G1  A member's memory is at its host: what the switch loads from it, or stores to it, crosses
 *       the host's link.  So do the requester's own bytes, since the switch computes.  Between
 *       switches a request's bytes pass each link of the tree (tree.h) once in a direction, and
 *       partial results as accumulators.  Links count all of them (nupa_group_port).
 *   G2  The order of a reduction is the tree's (tree.h T2): at one switch, that of the hosts'
 *       numbers.  So the result does not depend on the requester, nor on time.
 *   G3  Each element is loaded and stored whole.  A reduction into a member is atomic for each
 *       element: none is lost.  Requests that are under way at the same time are not ordered, as
 *       those of multimem are not (PTX ISA 9.7.9.14, .relaxed): sums of floats that several hosts
 *       reduce into members depend on who came first.
 *   G4  A link of the tree that went down ends the group for good.
 *
 * Groups need views and ports; regions do not know them. */
#ifndef NUPA_GROUP_H
#define NUPA_GROUP_H

#include "region/group/reduce.h"
#include "region/view/view.h"

/* cffi: begin */
enum { NUPA_GROUP_MEMBERS_MAX = 64 };

struct nupa_group;

/* Members by their hosts, ascending, each with the same size; views of *requester*, which is one of
 * the hosts.  The views outlive the group.  -EINVAL: no members or more than the most, not
 * ascending, sizes that differ, a requester that is no member, views with a cache; -ENETDOWN: a
 * link is down; -EUCLEAN: the fabric is damaged; -ENOMEM. */
int nupa_group_new(struct nupa_fabric *fabric, uint32_t requester, const uint32_t *hosts,
		   struct nupa_view *const *members, uint32_t n, struct nupa_group **out, char *why,
		   size_t why_bytes);
void nupa_group_free(struct nupa_group *group);

/* Each returns 0; -ERANGE: not inside; -EINVAL: no such type or operator for it, or offset and
 * bytes are not multiples of the element's; -ENETDOWN: the link of *culprit* went down;
 * -EHOSTUNREACH: a link between the switches on the way to *culprit* did; -ESTALE: the memory of
 * *culprit* is gone.  Nothing was changed then, unless a link went down, or memory
 * was lost, while the request was under way. */

/* multimem.st: *from* to each member. */
int nupa_group_store(struct nupa_group *group, uint64_t offset, const void *from, uint64_t bytes,
		     uint32_t *culprit);
/* multimem.ld_reduce: what the members have, reduced, to *to*. */
int nupa_group_load_reduce(struct nupa_group *group, uint64_t offset, void *to, uint64_t bytes,
			   uint32_t type, uint32_t operator_, uint32_t *culprit);
/* multimem.red: each member's elements op *from*'s. */
int nupa_group_reduce(struct nupa_group *group, uint64_t offset, const void *from, uint64_t bytes,
		      uint32_t type, uint32_t operator_, uint32_t *culprit);
/* What the members have, reduced, to each member: one all-reduce in the switch.  Each host's link
 * passes the bytes once in each direction. */
int nupa_group_reduce_store(struct nupa_group *group, uint64_t offset, uint64_t bytes,
			    uint32_t type, uint32_t operator_, uint32_t *culprit);

/* Bytes and packets of groups that left by a port; what entered left by its peer. */
int nupa_group_port(const struct nupa_fabric *fabric, uint32_t port, uint64_t *bytes,
		    uint64_t *packets);
/* cffi: end */

#endif
