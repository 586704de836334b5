/* SPDX-License-Identifier: BSD-3-Clause
 * Requests of groups, which the process of the requester executes in the switch's place: block by
 * block, all members of a block one after the other (G2). */
#include "region/group/group.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "region/region.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ELEMENTS 1024u

struct member {
	struct nupa_view *view;
	uint32_t host;
	uint32_t downs; /* how often its link had gone down when the group was made (G4) */
};

struct nupa_group {
	struct nupa_fabric *fabric;
	uint64_t bytes;
	uint32_t requester, n;
	struct member members[];
};

/* --- made -------------------------------------------------------------------------- */

static uint32_t switch_of(const struct nupa_fabric *fabric, uint32_t host)
{
	return fabric->ports[fabric->ports[fabric->hosts[host].port].peer].node;
}

static int check_member(const struct nupa_fabric *fabric, const uint32_t *hosts,
			struct nupa_view *const *members, uint32_t i, char *why, size_t why_bytes)
{
	if (hosts[i] >= fabric->geometry.n_hosts || (i && hosts[i] <= hosts[i - 1]))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "member %u is host %u: give hosts of the fabric, ascending", i,
				    hosts[i]);
	if (nupa_view_bytes(members[i]) != nupa_view_bytes(members[0]) ||
	    nupa_view_is_software(members[i]))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "the memory of host %u has another size than that of host %u, "
				    "or is behind a cache",
				    hosts[i], hosts[0]);
	if (switch_of(fabric, hosts[i]) != switch_of(fabric, hosts[0]))
		return nupa_explain(-EXDEV, why, why_bytes,
				    "hosts %u and %u are at different switches: a group's requests "
				    "are executed by one",
				    hosts[0], hosts[i]);
	return 0;
}

int nupa_group_new(struct nupa_fabric *fabric, uint32_t requester, const uint32_t *hosts,
		   struct nupa_view *const *members, uint32_t n, struct nupa_group **out, char *why,
		   size_t why_bytes)
{
	struct nupa_group *group;
	bool is_member = false;
	int rc = 0;

	if (n == 0 || n > NUPA_GROUP_MEMBERS_MAX)
		return nupa_explain(-EINVAL, why, why_bytes, "%u members: a group has 1 to %u", n,
				    NUPA_GROUP_MEMBERS_MAX);
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = check_member(fabric, hosts, members, i, why, why_bytes);
		is_member |= hosts[i] == requester;
	}
	if (!rc && !is_member)
		rc = nupa_explain(-EINVAL, why, why_bytes, "host %u is not a member", requester);
	if (rc)
		return rc;
	group = calloc(1, sizeof(*group) + n * sizeof(group->members[0]));
	if (!group)
		return nupa_explain(-ENOMEM, why, why_bytes, "no memory");
	group->bytes = nupa_view_bytes(members[0]);
	group->requester = requester;
	group->n = n;
	for (uint32_t i = 0; i < n && !rc; i++) {
		struct member *member = &group->members[i];

		member->view = members[i];
		member->host = hosts[i];
		if (!nupa_region_linked(fabric, hosts[i], hosts[i], &member->downs))
			rc = nupa_explain(-ENETDOWN, why, why_bytes, "the link of host %u is down",
					  hosts[i]);
	}
	if (rc) {
		free(group);
		return rc;
	}
	group->fabric = nupa_fabric_get(fabric);
	*out = group;
	return 0;
}

void nupa_group_free(struct nupa_group *group)
{
	nupa_fabric_put(group->fabric);
	free(group);
}

/* --- links ------------------------------------------------------------------------- */

static struct nupa_group_flow *flow_of(const struct nupa_fabric *fabric, uint32_t port)
{
	uint8_t *flows = (uint8_t *)fabric->sb + nupa_group_flows_off(&fabric->geometry);

	return (struct nupa_group_flow *)(void *)flows + port;
}

static void count(const struct nupa_fabric *fabric, uint32_t port, uint64_t bytes)
{
	struct nupa_group_flow *flow = flow_of(fabric, port);

	__atomic_fetch_add(&flow->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_fetch_add(&flow->packets, (bytes + NUPA_MTU_BYTES - 1) / NUPA_MTU_BYTES,
			   __ATOMIC_RELAXED);
}

/* The ways of a request's bytes: from whom to the switch, and from there to whom (G1). */
enum way { TO_SWITCH = 1, FROM_SWITCH = 2 };

static void pass(const struct nupa_group *group, uint64_t bytes, uint32_t all, uint32_t requester)
{
	const struct nupa_fabric *fabric = group->fabric;

	for (uint32_t i = 0; i < group->n && bytes; i++) {
		const uint32_t port = fabric->hosts[group->members[i].host].port;
		const uint32_t ways =
		    all | (group->members[i].host == group->requester ? requester : 0);

		if (ways & TO_SWITCH)
			count(fabric, port, bytes);
		if (ways & FROM_SWITCH)
			count(fabric, fabric->ports[port].peer, bytes);
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

static int look(const struct nupa_group *group, uint32_t *culprit)
{
	for (uint32_t i = 0; i < group->n; i++) {
		const struct member *member = &group->members[i];
		uint32_t downs;

		*culprit = member->host;
		if (!nupa_region_linked(group->fabric, member->host, member->host, &downs) ||
		    downs != member->downs)
			return -ENETDOWN;
		if (nupa_view_lost(member->view) != NUPA_VIEW_KEPT)
			return -ESTALE;
	}
	return 0;
}

static int check(const struct nupa_group *group, uint64_t offset, uint64_t bytes,
		 uint32_t element_bytes, uint32_t *culprit)
{
	if (bytes > group->bytes || offset > group->bytes - bytes)
		return -ERANGE;
	if (offset % element_bytes || bytes % element_bytes)
		return -EINVAL;
	return look(group, culprit);
}

/* Ends a request: what was lost meanwhile was not moved whole. */
static int finish(const struct nupa_group *group, uint32_t *culprit)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return look(group, culprit);
}

/* --- requests ---------------------------------------------------------------------- */

static uint8_t *at(const struct member *member, uint64_t offset)
{
	return (uint8_t *)nupa_view_at(member->view) + offset;
}

#define STORE_PIECE(word)                                                                          \
	if ((uintptr_t)(to + done) % sizeof(word) == 0 && bytes - done >= sizeof(word)) {          \
		word piece;                                                                        \
		memcpy(&piece, from + done, sizeof(piece));                                        \
		nupa_store_relaxed((word *)(void *)(to + done), piece);                            \
		done += sizeof(piece);                                                             \
		continue;                                                                          \
	}

/* Whole words, so that each element is stored whole (G3): its address is a multiple of its bytes.
 */
static void store_words(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	uint64_t done = 0;

	while (done < bytes) {
		STORE_PIECE(uint64_t)
		STORE_PIECE(uint32_t)
		STORE_PIECE(uint16_t)
		STORE_PIECE(uint8_t)
	}
}

int nupa_group_store(struct nupa_group *group, uint64_t offset, const void *from, uint64_t bytes,
		     uint32_t *culprit)
{
	const int rc = check(group, offset, bytes, 1, culprit);

	if (rc)
		return rc;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (uint32_t i = 0; i < group->n; i++)
		store_words(at(&group->members[i], offset), from, bytes);
	pass(group, bytes, FROM_SWITCH, TO_SWITCH);
	return finish(group, culprit);
}

/* One block of all members, reduced. */
static void combine(const struct nupa_group *group, uint64_t offset, uint64_t elements,
		    uint32_t type, uint32_t operator_, void *accumulators)
{
	nupa_reduce_load(type, accumulators, at(&group->members[0], offset), elements);
	for (uint32_t i = 1; i < group->n; i++)
		nupa_reduce_take(type, operator_, accumulators, at(&group->members[i], offset),
				 elements);
}

static int check_typed(const struct nupa_group *group, uint64_t offset, uint64_t bytes,
		       uint32_t type, uint32_t operator_, uint32_t *culprit)
{
	if (!nupa_reduce_permits(type, operator_))
		return -EINVAL;
	return check(group, offset, bytes, nupa_reduce_bytes(type), culprit);
}

int nupa_group_load_reduce(struct nupa_group *group, uint64_t offset, void *to, uint64_t bytes,
			   uint32_t type, uint32_t operator_, uint32_t *culprit)
{
	_Alignas(8) uint8_t accumulators[BLOCK_ELEMENTS * NUPA_REDUCE_ACCUMULATOR_BYTES];
	const uint64_t element_bytes = nupa_reduce_bytes(type);
	int rc = check_typed(group, offset, bytes, type, operator_, culprit);

	if (rc)
		return rc;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (uint64_t done = 0, n; done < bytes; done += n * element_bytes) {
		const uint64_t left = (bytes - done) / element_bytes;

		n = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
		combine(group, offset + done, n, type, operator_, accumulators);
		nupa_reduce_round(type, (uint8_t *)to + done, accumulators, n);
	}
	rc = finish(group, culprit);
	if (rc)
		memset(to, 0xff, bytes); /* V2: what is lost reads as all ones */
	else
		pass(group, bytes, TO_SWITCH, FROM_SWITCH);
	return rc;
}

int nupa_group_reduce_store(struct nupa_group *group, uint64_t offset, uint64_t bytes,
			    uint32_t type, uint32_t operator_, uint32_t *culprit)
{
	_Alignas(8) uint8_t accumulators[BLOCK_ELEMENTS * NUPA_REDUCE_ACCUMULATOR_BYTES];
	_Alignas(8) uint8_t rounded[BLOCK_ELEMENTS * NUPA_REDUCE_ACCUMULATOR_BYTES];
	const uint64_t element_bytes = nupa_reduce_bytes(type);
	int rc = check_typed(group, offset, bytes, type, operator_, culprit);

	if (rc)
		return rc;
	__atomic_thread_fence(__ATOMIC_ACQ_REL);
	for (uint64_t done = 0, n; done < bytes; done += n * element_bytes) {
		const uint64_t left = (bytes - done) / element_bytes;

		n = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
		combine(group, offset + done, n, type, operator_, accumulators);
		nupa_reduce_round(type, rounded, accumulators, n);
		/* A member that was lost has given all ones, which no other member gets. */
		rc = finish(group, culprit);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < group->n; i++)
			store_words(at(&group->members[i], offset + done), rounded,
				    n * element_bytes);
	}
	pass(group, bytes, TO_SWITCH | FROM_SWITCH, 0);
	return finish(group, culprit);
}

/* --- reductions into members ------------------------------------------------------- */

#define REDUCE_ATOMICALLY(word)                                                                    \
	do {                                                                                       \
		word *element = (word *)(void *)to, old = nupa_load_relaxed(element), fresh;       \
		do {                                                                               \
			nupa_reduce_load(type, &sum, &old, 1);                                     \
			nupa_reduce_take(type, operator_, &sum, from, 1);                          \
			nupa_reduce_round(type, &fresh, &sum, 1);                                  \
		} while (!__atomic_compare_exchange_n(element, &old, fresh, true,                  \
						      __ATOMIC_RELAXED, __ATOMIC_RELAXED));        \
	} while (0)

static void reduce_element(uint8_t *to, const uint8_t *from, uint32_t type, uint32_t operator_)
{
	uint64_t sum;

	switch (nupa_reduce_bytes(type)) {
	case sizeof(uint16_t):
		REDUCE_ATOMICALLY(uint16_t);
		return;
	case sizeof(uint32_t):
		REDUCE_ATOMICALLY(uint32_t);
		return;
	default:
		REDUCE_ATOMICALLY(uint64_t);
	}
}

int nupa_group_reduce(struct nupa_group *group, uint64_t offset, const void *from, uint64_t bytes,
		      uint32_t type, uint32_t operator_, uint32_t *culprit)
{
	const uint32_t element_bytes = nupa_reduce_bytes(type);
	const int rc = check_typed(group, offset, bytes, type, operator_, culprit);

	if (rc)
		return rc;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (uint32_t i = 0; i < group->n; i++)
		for (uint64_t done = 0; done < bytes; done += element_bytes)
			reduce_element(at(&group->members[i], offset + done),
				       (const uint8_t *)from + done, type, operator_);
	pass(group, bytes, FROM_SWITCH, TO_SWITCH);
	return finish(group, culprit);
}
