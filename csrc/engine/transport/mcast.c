/* SPDX-License-Identifier: BSD-3-Clause
 * Multicast: which QPs are in which groups, and a datagram to all of them.  Each attachment
 * publishes its memberships in its arena; senders read all such tables when mcast_epoch says that
 * one changed.  The tables are hints to senders: a receiver looks at its own list (I5). */
#include "engine/transport/sq.h"
#include "segment/layout/geometry.h"

#include <errno.h>
#include <stdlib.h>

#define ENTRIES_PER_PAGE (NUPA_PAGE_BYTES / (uint32_t)sizeof(struct nupa_mcast_entry))

struct member {
	union ibv_gid mgid;
	uint32_t qpn;
};

struct membership { /* of a QP of ours */
	union ibv_gid mgid;
	struct nupa_qp *qp; /* NULL: the entry is free */
	uint16_t lid;
};

struct nupa_mcast {
	/* ours, as published */
	struct membership own[NUPA_MCAST_MEMBERSHIPS_MAX];
	uint32_t n_own, n_groups;
	uint32_t limit;  /* entries in use, or free ones before such */
	uint32_t backed; /* entries that have memory */
	/* of all processes, sorted by group and QP number */
	struct member *members;
	uint32_t n_members, room;
	uint32_t epoch_seen;
	bool seen;
};

/* RFC 4291 2.7; RoCE v2: an IPv4 group, mapped. */
bool nupa_mcast_is_group(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return gid->raw[0] == 0xff ||
	       (!memcmp(gid->raw, mapped, sizeof(mapped)) && gid->raw[12] >> 4 == 0xe);
}

static struct nupa_mcast *mcast_of(struct nupa_engine *engine)
{
	if (!engine->mcast)
		engine->mcast = calloc(1, sizeof(*engine->mcast));
	return engine->mcast;
}

void nupa_mcast_free(struct nupa_engine *engine)
{
	if (engine->mcast)
		free(engine->mcast->members);
	free(engine->mcast);
}

/* --- our memberships ----------------------------------------------------------------- */

static struct nupa_mcast_entry *table_of(const struct nupa_engine *engine, uint8_t *arena)
{
	return (
	    struct nupa_mcast_entry *)(void *)(arena +
					       nupa_arena_map(&engine->fabric->geometry).mcast_off);
}

static struct membership *find(struct nupa_mcast *mcast, const struct nupa_qp *qp,
			       const uint8_t mgid[16])
{
	for (uint32_t i = 0; i < mcast->limit; i++)
		if (mcast->own[i].qp == qp && !memcmp(mcast->own[i].mgid.raw, mgid, 16))
			return &mcast->own[i];
	return NULL;
}

bool nupa_mcast_attached(const struct nupa_qp *qp, const uint8_t mgid[16])
{
	return qp->mcast_groups && find(qp->engine->mcast, qp, mgid);
}

static uint32_t members_of(const struct nupa_mcast *mcast, const union ibv_gid *mgid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < mcast->limit; i++)
		n += mcast->own[i].qp && !memcmp(&mcast->own[i].mgid, mgid, sizeof(*mgid));
	return n;
}

/* A free place in our table, with memory behind it (layout.h I4); NULL: the file system is full. */
static struct membership *free_place(struct nupa_engine *engine)
{
	struct nupa_mcast *mcast = engine->mcast;
	uint64_t off;

	for (uint32_t i = 0; i < mcast->limit; i++)
		if (!mcast->own[i].qp)
			return &mcast->own[i];
	if (mcast->limit == mcast->backed) {
		off = nupa_arena_offset(engine->fabric, engine->slot_index) +
		      nupa_arena_map(&engine->fabric->geometry).mcast_off +
		      mcast->backed * sizeof(struct nupa_mcast_entry);
		if (nupa_fabric_back(engine->fabric, off, NUPA_PAGE_BYTES))
			return NULL;
		mcast->backed += ENTRIES_PER_PAGE;
	}
	return &mcast->own[mcast->limit++];
}

/* P5: the number of a QP is stored last and cleared first. */
static void publish(struct nupa_engine *engine, const struct membership *membership)
{
	struct nupa_mcast *mcast = engine->mcast;
	uint32_t index = (uint32_t)(membership - mcast->own);
	struct nupa_mcast_entry *entry = &table_of(engine, engine->arena)[index];

	nupa_store_relaxed(&entry->qpn, 0);
	__atomic_thread_fence(__ATOMIC_RELEASE); /* before the group changes */
	if (membership->qp) {
		memcpy(entry->mgid, membership->mgid.raw, sizeof(entry->mgid));
		nupa_store_release(&entry->qpn, membership->qp->ibv.qp_num);
	}
	nupa_store_release(&engine->slot->mcast_limit, mcast->limit);
	nupa_fetch_add_seq(&engine->fabric->sb->mcast_epoch, 1);
}

static int attach(struct nupa_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct nupa_mcast *mcast = mcast_of(qp->engine);
	struct membership *membership;
	uint32_t members;

	if (!mcast)
		return ENOMEM;
	if (find(mcast, qp, gid->raw))
		return 0;
	members = members_of(mcast, gid);
	if (members == NUPA_MCAST_GROUP_QPS_MAX || mcast->n_own == NUPA_MCAST_MEMBERSHIPS_MAX ||
	    (!members && mcast->n_groups == NUPA_MCAST_GROUPS_MAX))
		return ENOMEM;
	membership = free_place(qp->engine);
	if (!membership)
		return ENOMEM;
	*membership = (struct membership){ .mgid = *gid, .qp = qp, .lid = lid };
	mcast->n_own++;
	mcast->n_groups += !members;
	qp->mcast_groups++;
	publish(qp->engine, membership);
	return 0;
}

/* man ibv_attach_mcast.  A LID of a group is 0xc000 to 0xfffe (IBTA 4.1.3); Ethernet has none. */
int nupa_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct nupa_qp *qp = nupa_qp_of(ibv);
	struct nupa_engine *engine = qp->engine;
	bool ethernet = engine->fabric->hosts[engine->host].link_layer == NUPA_LINK_ETHERNET;
	int error;

	if (qp->type != IBV_QPT_UD || !nupa_mcast_is_group(gid) ||
	    (!ethernet && (lid < 0xc000 || lid == 0xffff)))
		return EINVAL;
	/* Senders look at tables of all processes when a word has changed that all of them bump. */
	if (nupa_fabric_incoherent(engine->fabric))
		return nupa_unsupported("ibv_attach_mcast on a fabric that is not coherent");
	nupa_engine_lock(engine);
	error = attach(qp, gid, lid);
	nupa_engine_unlock(engine);
	return error;
}

int nupa_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct nupa_qp *qp = nupa_qp_of(ibv);
	struct nupa_engine *engine = qp->engine;
	struct membership *membership = NULL;

	nupa_engine_lock(engine);
	if (qp->mcast_groups)
		membership = find(engine->mcast, qp, gid->raw);
	if (membership && membership->lid == lid) {
		membership->qp = NULL;
		qp->mcast_groups--;
		engine->mcast->n_own--;
		engine->mcast->n_groups -= !members_of(engine->mcast, gid);
		publish(engine, membership);
	} else {
		membership = NULL;
	}
	nupa_engine_unlock(engine);
	return membership ? 0 : EINVAL;
}

/* --- of all processes ---------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const struct member *x = a, *y = b;
	int order = memcmp(&x->mgid, &y->mgid, sizeof(x->mgid));

	return order ? order : (x->qpn > y->qpn) - (x->qpn < y->qpn);
}

static bool add(struct nupa_mcast *mcast, const struct member *member)
{
	if (mcast->n_members == mcast->room) {
		uint32_t room = mcast->room ? mcast->room * 2 : 64;
		struct member *more = realloc(mcast->members, room * sizeof(*more));

		if (!more)
			return false;
		mcast->members = more;
		mcast->room = room;
	}
	mcast->members[mcast->n_members++] = *member;
	return true;
}

/* I5: a table may say anything; no more is taken from it than QPs of its own attachment. */
static bool read_table(struct nupa_engine *engine, uint32_t slot)
{
	uint32_t limit = nupa_load_acquire(&engine->fabric->slots[slot].mcast_limit);
	const struct nupa_mcast_entry *table;
	uint8_t *arena;

	if (limit > NUPA_MCAST_MEMBERSHIPS_MAX)
		limit = NUPA_MCAST_MEMBERSHIPS_MAX;
	if (!limit)
		return true;
	arena = nupa_fabric_arena(engine->fabric, slot);
	if (!arena)
		return false;
	table = table_of(engine, arena);
	for (uint32_t i = 0; i < limit; i++) {
		struct member member = { .qpn = nupa_load_acquire(&table[i].qpn) };

		memcpy(member.mgid.raw, table[i].mgid, sizeof(member.mgid.raw));
		/* C5: an entry that changed meanwhile is seen with the next epoch. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (nupa_load_relaxed(&table[i].qpn) != member.qpn)
			continue;
		if (nupa_qpn_slot(&engine->fabric->geometry, member.qpn) == slot &&
		    !add(engine->mcast, &member))
			return false;
	}
	return true;
}

static void refresh(struct nupa_engine *engine)
{
	struct nupa_mcast *mcast = engine->mcast;
	uint32_t epoch = nupa_load_acquire(&engine->fabric->sb->mcast_epoch);
	uint32_t n = 0;

	if (likely(mcast->seen && mcast->epoch_seen == epoch))
		return;
	mcast->n_members = 0;
	mcast->seen = true;
	for (uint32_t slot = 1; slot < engine->fabric->geometry.n_slots; slot++)
		if (NUPA_CLAIM_STATE(nupa_slot_claim(&engine->fabric->slots[slot])) ==
		    NUPA_SLOT_LIVE)
			mcast->seen &= read_table(engine, slot); /* or again next time */
	mcast->epoch_seen = epoch;
	if (!mcast->n_members)
		return;
	qsort(mcast->members, mcast->n_members, sizeof(*mcast->members), compare);
	for (uint32_t i = 1; i < mcast->n_members; i++) /* no QP twice */
		if (compare(&mcast->members[n], &mcast->members[i]))
			mcast->members[++n] = mcast->members[i];
	mcast->n_members = n + 1;
}

/* The first at or behind this place in the order. */
static uint32_t first_from(const struct nupa_mcast *mcast, const struct member *from)
{
	uint32_t low = 0, high = mcast->n_members;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (compare(&mcast->members[middle], from) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* --- sending ------------------------------------------------------------------------- */

enum copied {
	COPIED,   /* or lost */
	NO_ROOM,  /* the QP waits for it */
	NO_MEMORY /* of the program: it is gone */
};

static enum copied send_copy(struct nupa_qp *qp, const struct nupa_wqe *wqe, uint32_t qpn,
			     const struct nupa_span *spans, uint32_t n_spans)
{
	struct nupa_channel *channel =
	    nupa_channel_get(qp->engine, nupa_qpn_slot(&qp->engine->fabric->geometry, qpn));
	uint32_t bytes = wqe->length_bytes;
	uint8_t *payload = NULL;
	struct nupa_msg *msg;
	bool backlogged;

	if (!channel || channel->broken)
		return COPIED;
	if (!nupa_channel_path_up(qp->engine, channel)) {
		nupa_channel_count_closed(channel, false);
		return COPIED;
	}
	if (bytes && !channel->dma_backed && nupa_channel_back_dma(qp->engine, channel)) {
		channel->flow->xmit_discards++;
		return COPIED;
	}
	backlogged = nupa_stall_backlogged(channel, qpn);
	msg = backlogged ? NULL : nupa_tx_reserve(&channel->tx, bytes, &payload);
	if (!msg)
		return nupa_stall_waits(qp, channel, backlogged) ? NO_ROOM : COPIED;
	if (bytes && nupa_spans_copy(spans, n_spans, 0, payload, bytes, false))
		return NO_MEMORY;
	msg->op = NUPA_OP_SEND;
	msg->flags = NUPA_F_FIRST | NUPA_F_LAST;
	if (bytes)
		msg->flags |= NUPA_F_DMA;
	if (wqe->flags & IBV_SEND_SOLICITED)
		msg->flags |= NUPA_F_SOLICITED;
	if (wqe->opcode == IBV_WR_SEND_WITH_IMM)
		msg->flags |= NUPA_F_IMM;
	msg->dest_qpn = qpn;
	msg->src_qpn = qp->ibv.qp_num;
	msg->psn = nupa_psn_of(qp->incarnation, qp->next_psn);
	msg->length_bytes = bytes;
	msg->imm = wqe->imm;
	msg->deth = wqe->deth;
	msg->deth.is_global = NUPA_DETH_MULTICAST;
	msg->deth.qkey = wqe->qkey;
	msg->deth.pkey = qp->pkey;
	memcpy(msg->ud_data, wqe->mgid, sizeof(msg->ud_data));
	nupa_channel_publish(channel, msg, bytes);
	nupa_count(&qp->engine->hw->multicast_xmit_packets, channel->peer_host != qp->engine->host);
	return COPIED;
}

/* Sends to one member after the other, in the order of their numbers.  `moved_bytes` is the last
 * one served, after which sending continues if memberships changed meanwhile. */
bool nupa_mcast_issue(struct nupa_qp *qp, struct nupa_wqe *wqe)
{
	struct nupa_mcast *mcast = mcast_of(qp->engine);
	struct member from = { 0 };
	struct nupa_span spans[NUPA_SGE_MAX];
	uint32_t n_spans;

	if (!nupa_sq_local_spans(qp, wqe, spans, &n_spans))
		return nupa_sq_fail_in_turn(qp, qp->sq.issued, IBV_WC_LOC_PROT_ERR);
	/* IBTA 9.6.1: to a group goes what is addressed to QP 0xffffff, and nothing else. */
	if (!mcast || wqe->dest_qpn != 0xffffff)
		return true;
	refresh(qp->engine);
	memcpy(from.mgid.raw, wqe->mgid, sizeof(from.mgid.raw));
	from.qpn = wqe->moved_bytes + 1;
	for (uint32_t i = first_from(mcast, &from); i < mcast->n_members; i++) {
		const struct member *member = &mcast->members[i];

		if (memcmp(&member->mgid, &from.mgid, sizeof(from.mgid)) != 0)
			break;
		if (member->qpn == qp->ibv.qp_num && qp->block_self_mcast)
			continue;
		switch (send_copy(qp, wqe, member->qpn, spans, n_spans)) {
		case COPIED:
			break;
		case NO_ROOM:
			return false;
		case NO_MEMORY:
			return nupa_sq_fail_in_turn(qp, qp->sq.issued, IBV_WC_LOC_PROT_ERR);
		}
		wqe->moved_bytes = member->qpn;
	}
	qp->next_psn = nupa_psn_add(qp->next_psn, 1);
	return true;
}
