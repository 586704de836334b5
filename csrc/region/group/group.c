/* SPDX-License-Identifier: BSD-3-Clause
 * Requests of groups, which the process of the requester executes in the switches' place: block by
 * block, all members of a block one after the other (G2). */
#include "region/group/group.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "region/group/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ELEMENTS 512u
#define BLOCK_BYTES (BLOCK_ELEMENTS * NUPA_REDUCE_ACCUMULATOR_BYTES)

struct nupa_group {
	struct nupa_fabric *fabric;
	uint64_t bytes;
	struct nupa_view *views[NUPA_GROUP_MEMBERS_MAX];
	struct nupa_tree tree;
};

/* --- made -------------------------------------------------------------------------- */

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
	group = calloc(1, sizeof(*group));
	if (!group)
		return nupa_explain(-ENOMEM, why, why_bytes, "no memory");
	group->bytes = nupa_view_bytes(members[0]);
	memcpy(group->views, members, n * sizeof(*members));
	rc = nupa_tree_make(&group->tree, fabric, hosts, n, requester, why, why_bytes);
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

/* --- checks ------------------------------------------------------------------------ */

static int look(const struct nupa_group *group, uint32_t *culprit)
{
	const int rc = nupa_tree_look(&group->tree, group->fabric, culprit);

	for (uint32_t i = 0; i < group->tree.n_members && !rc; i++) {
		*culprit = group->tree.members[i].host;
		if (nupa_view_lost(group->views[i]) != NUPA_VIEW_KEPT)
			return -ESTALE;
	}
	return rc;
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

/* --- members' memory --------------------------------------------------------------- */

static uint8_t *at(const struct nupa_group *group, uint32_t member, uint64_t offset)
{
	return (uint8_t *)nupa_view_at(group->views[member]) + offset;
}

/* Moves a word if the shared side, which is *shared*, is aligned to it. */
#define PIECE(word, shared, move)                                                                  \
	if ((uintptr_t)((shared) + done) % sizeof(word) == 0 && bytes - done >= sizeof(word)) {    \
		word piece;                                                                        \
		move(word);                                                                        \
		done += sizeof(piece);                                                             \
		continue;                                                                          \
	}
#define STORE(word)                                                                                \
	memcpy(&piece, from + done, sizeof(piece));                                                \
	nupa_store_relaxed((word *)(void *)(to + done), piece)
#define LOAD(word)                                                                                 \
	piece = nupa_load_relaxed((const word *)(const void *)(from + done));                      \
	memcpy(to + done, &piece, sizeof(piece))

/* Whole words, so that each element is moved whole (G3): its address is a multiple of its bytes. */
static void store_words(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	for (uint64_t done = 0; done < bytes;) {
		PIECE(uint64_t, to, STORE)
		PIECE(uint32_t, to, STORE)
		PIECE(uint16_t, to, STORE)
		PIECE(uint8_t, to, STORE)
	}
}

static void load_words(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	for (uint64_t done = 0; done < bytes;) {
		PIECE(uint64_t, from, LOAD)
		PIECE(uint32_t, from, LOAD)
		PIECE(uint16_t, from, LOAD)
		PIECE(uint8_t, from, LOAD)
	}
}

/* --- requests ---------------------------------------------------------------------- */

/* Bytes of the requester that each member got. */
static void spread(const struct nupa_group *group, uint64_t bytes)
{
	nupa_tree_count(&group->tree, group->fabric,
			&(struct nupa_tree_passage){
			    .down = bytes, .own_up = bytes, .trunk_down = bytes, .way_up = bytes });
}

int nupa_group_store(struct nupa_group *group, uint64_t offset, const void *from, uint64_t bytes,
		     uint32_t *culprit)
{
	const int rc = check(group, offset, bytes, 1, culprit);

	if (rc)
		return rc;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (uint32_t i = 0; i < group->tree.n_members; i++)
		store_words(at(group, i, offset), from, bytes);
	spread(group, bytes);
	return finish(group, culprit);
}

/* A block of each level of the tree, and of one member. */
struct blocks {
	_Alignas(8) uint8_t level[NUPA_TREE_LEVELS_MAX][BLOCK_BYTES];
	_Alignas(8) uint8_t loaded[BLOCK_BYTES];
};

/* Reduces one block of all members to level[0]. */
static void combine(const struct nupa_group *group, uint64_t offset, uint64_t elements,
		    uint32_t type, uint32_t operator_, struct blocks *blocks)
{
	const uint32_t partial = nupa_reduce_accumulator(type);
	const uint64_t bytes = elements * nupa_reduce_bytes(type);

	for (uint32_t i = 0; i < group->tree.n_steps; i++) {
		const struct nupa_tree_step *step = &group->tree.steps[i];
		const uint8_t *operands =
		    step->is_member ? blocks->loaded : blocks->level[step->level + 1];
		const uint32_t kind = step->is_member ? type : partial;

		if (step->is_member)
			load_words(blocks->loaded, at(group, step->member, offset), bytes);
		if (step->first)
			nupa_reduce_load(kind, blocks->level[step->level], operands, elements);
		else
			nupa_reduce_take(kind, operator_, blocks->level[step->level], operands,
					 elements);
	}
}

/* Of partial results, which are accumulators. */
static uint64_t partial_bytes(uint64_t bytes, uint32_t type)
{
	return bytes / nupa_reduce_bytes(type) * nupa_reduce_bytes(nupa_reduce_accumulator(type));
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
	struct blocks blocks;
	const uint64_t element_bytes = nupa_reduce_bytes(type);
	int rc = check_typed(group, offset, bytes, type, operator_, culprit);

	if (rc)
		return rc;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (uint64_t done = 0, n; done < bytes; done += n * element_bytes) {
		const uint64_t left = (bytes - done) / element_bytes;

		n = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
		combine(group, offset + done, n, type, operator_, &blocks);
		nupa_reduce_round(type, (uint8_t *)to + done, blocks.level[0], n);
	}
	rc = finish(group, culprit);
	if (rc)
		memset(to, 0xff, bytes); /* V2: what is lost reads as all ones */
	else
		nupa_tree_count(&group->tree, group->fabric,
				&(struct nupa_tree_passage){
				    .up = bytes,
				    .own_down = bytes,
				    .trunk_up = partial_bytes(bytes, type),
				    .way_up = partial_bytes(bytes, type),
				    .way_down = bytes,
				});
	return rc;
}

int nupa_group_reduce_store(struct nupa_group *group, uint64_t offset, uint64_t bytes,
			    uint32_t type, uint32_t operator_, uint32_t *culprit)
{
	struct blocks blocks;
	uint8_t rounded[BLOCK_BYTES];
	const uint64_t element_bytes = nupa_reduce_bytes(type);
	int rc = check_typed(group, offset, bytes, type, operator_, culprit);

	if (rc)
		return rc;
	__atomic_thread_fence(__ATOMIC_ACQ_REL);
	for (uint64_t done = 0, n; done < bytes; done += n * element_bytes) {
		const uint64_t left = (bytes - done) / element_bytes;

		n = left < BLOCK_ELEMENTS ? left : BLOCK_ELEMENTS;
		combine(group, offset + done, n, type, operator_, &blocks);
		nupa_reduce_round(type, rounded, blocks.level[0], n);
		/* A member that was lost has given all ones, which no other member gets. */
		rc = finish(group, culprit);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < group->tree.n_members; i++)
			store_words(at(group, i, offset + done), rounded, n * element_bytes);
	}
	nupa_tree_count(&group->tree, group->fabric,
			&(struct nupa_tree_passage){
			    .up = bytes,
			    .down = bytes,
			    .trunk_up = partial_bytes(bytes, type),
			    .trunk_down = bytes,
			    .way_up = partial_bytes(bytes, type),
			    .way_down = bytes,
			});
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
	for (uint32_t i = 0; i < group->tree.n_members; i++)
		for (uint64_t done = 0; done < bytes; done += element_bytes)
			reduce_element(at(group, i, offset + done), (const uint8_t *)from + done,
				       type, operator_);
	spread(group, bytes);
	return finish(group, culprit);
}
