/* SPDX-License-Identifier: BSD-3-Clause
 * What has changed on this machine, told to the others: slots, QPs, open rings, bound ports, states
 * of ports.  A record always has the state of now, so that an older one is never late. */
#include "trunk/internal.h"

#include "segment/segment_internal.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STUCK_NS 10000000u /* a process that ended between two stores */

/* --- records ------------------------------------------------------------------------------- */

static bool tell_slot(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t slot)
{
	const struct nupa_slot *entry = &trunk->fabric->slots[slot];
	const uint64_t claim = trunk->own[slot].claim;
	struct nupa_told_slot *record =
	    nupa_out_room(trunk, peer, NUPA_TOLD_SLOT, sizeof(*record), false);

	if (!record)
		return false;
	*record = (struct nupa_told_slot){
		.head = record->head,
		.slot = slot,
		.state = claim ? NUPA_SLOT_LIVE : NUPA_SLOT_FREE,
		.epoch = NUPA_CLAIM_EPOCH(claim),
		.pid = NUPA_CLAIM_PID(claim),
		.host = nupa_load_relaxed(&entry->host),
		.uid = nupa_load_relaxed(&entry->uid),
		.qp_limit = nupa_load_relaxed(&entry->qp_limit),
		.net_queue = nupa_load_relaxed(&entry->net_queue),
		.left_epoch = nupa_load_relaxed(&entry->left_epoch),
	};
	if (claim) /* else the next owner may be writing its own */
		memcpy(record->comm, entry->comm, sizeof(record->comm));
	return true;
}

/* Word by word, as its owner may be changing it: that is news again, and sent when it is done. */
static void copy_entry(struct nupa_qp_entry *to, const struct nupa_qp_entry *from)
{
	const uint64_t *words = (const uint64_t *)(const void *)from;
	uint64_t copy[sizeof(*to) / sizeof(*words)];

	for (size_t i = 0; i < sizeof(copy) / sizeof(*copy); i++)
		copy[i] = nupa_load_acquire(&words[i]);
	memcpy(to, copy, sizeof(*to));
}

static bool tell_qp(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t slot, uint32_t index)
{
	const uint8_t *arena = nupa_fabric_arena(trunk->fabric, slot);
	const struct nupa_qp_entry *entry;
	struct nupa_told_qp *record;

	if (!arena || !trunk->own[slot].claim ||
	    index >= nupa_load_acquire(&trunk->fabric->slots[slot].qp_limit) ||
	    index >= trunk->fabric->geometry.qp_entries)
		return true;
	entry = (const struct nupa_qp_entry *)(const void *)(arena + trunk->map.qps_off) + index;
	record = nupa_out_room(trunk, peer, NUPA_TOLD_QP, sizeof(*record), false);
	if (!record)
		return false;
	record->slot = slot;
	record->index = index;
	copy_entry(&record->entry, entry);
	return true;
}

static bool tell_contact(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t from,
			 uint32_t to)
{
	const uint32_t word = nupa_load_acquire(nupa_contact(trunk->fabric, from, to));
	struct nupa_told_contact *record;

	if (!word || !trunk->own[from].claim)
		return true;
	if (word & NUPA_CONTACT_CLOSED)
		nupa_pair_close_out(trunk, peer, from, to);
	else
		nupa_pair_open_out(trunk, from, to);
	record = nupa_out_room(trunk, peer, NUPA_TOLD_CONTACT, sizeof(*record), false);
	if (!record)
		return false;
	record->from = from;
	record->to = to;
	record->word = word;
	record->pad = 0;
	return true;
}

static bool tell_bound(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t host, uint32_t at)
{
	const struct nupa_cm_bucket *table = nupa_fabric_cm_table(trunk->fabric, host, false);
	struct nupa_told_bound *record;

	if (!table)
		return true;
	record = nupa_out_room(trunk, peer, NUPA_TOLD_BOUND, sizeof(*record), false);
	if (!record)
		return false;
	record->host = host;
	record->at = at;
	record->word =
	    nupa_load_acquire(&table[at / NUPA_CM_BUCKET_WORDS].words[at % NUPA_CM_BUCKET_WORDS]);
	return true;
}

static bool tell_port(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t port)
{
	const struct nupa_port *entry = &trunk->fabric->ports[port];
	struct nupa_told_port *record =
	    nupa_out_room(trunk, peer, NUPA_TOLD_PORT, sizeof(*record), false);

	if (!record)
		return false;
	record->port = port;
	record->state = nupa_load_relaxed(&entry->state);
	record->link_downed = nupa_load_relaxed(&entry->link_downed);
	record->pad = 0;
	return true;
}

/* --- changes ------------------------------------------------------------------------------- */

static void watch_process(struct nupa_trunk *trunk, struct nupa_own_slot *own)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT };

	own->pidfd = (int)syscall(SYS_pidfd_open, NUPA_CLAIM_PID(own->claim), 0);
	event.data.fd = own->pidfd;
	/* Else it is looked for by time. */
	if (own->pidfd >= 0)
		(void)epoll_ctl(trunk->epoll, EPOLL_CTL_ADD, own->pidfd, &event);
}

static void forget_slot(struct nupa_trunk *trunk, uint32_t slot)
{
	struct nupa_own_slot *own = &trunk->own[slot];

	if (own->pidfd >= 0)
		close(own->pidfd);
	own->pidfd = -1;
	own->claim = 0;
	for (uint32_t i = 0; i < trunk->machines; i++) {
		nupa_pair_close_out(trunk, &trunk->peers[i], slot, 0);
		nupa_pair_close_in(&trunk->peers[i], 0, slot);
	}
}

/* Notes the slot's claim; true: it has another owner than before, or none. */
static bool follow_slot(struct nupa_trunk *trunk, uint32_t slot)
{
	struct nupa_own_slot *own = &trunk->own[slot];
	uint64_t claim = nupa_slot_claim(&trunk->fabric->slots[slot]);

	if (NUPA_CLAIM_STATE(claim) != NUPA_SLOT_LIVE)
		claim = 0;
	if (claim == own->claim)
		return false;
	if (own->claim)
		forget_slot(trunk, slot);
	own->claim = claim;
	if (claim)
		watch_process(trunk, own);
	return true;
}

static void tell_one(struct nupa_trunk *trunk, uint32_t word, struct nupa_peer *peer)
{
	const uint32_t place = NUPA_NEWS_PLACE(word), at = NUPA_NEWS_AT(word);
	bool told = true;

	switch (NUPA_NEWS_KIND(word)) {
	case NUPA_NEWS_SLOT:
		told = tell_slot(trunk, peer, place);
		break;
	case NUPA_NEWS_QP:
		told = tell_qp(trunk, peer, place, at);
		break;
	case NUPA_NEWS_CONTACT:
		if (nupa_slot_theirs(trunk, peer, at))
			told = tell_contact(trunk, peer, place, at);
		break;
	case NUPA_NEWS_BOUND:
		told = tell_bound(trunk, peer, place, at);
		break;
	default:
		break;
	}
	if (!told)
		peer->stale = true;
}

/* I5: any process may have stored it. */
static bool is_news(const struct nupa_trunk *trunk, uint32_t word)
{
	const struct nupa_superblock *sb = &trunk->fabric->geometry;
	const uint32_t place = NUPA_NEWS_PLACE(word);

	if (NUPA_NEWS_KIND(word) == NUPA_NEWS_BOUND)
		return place < sb->n_hosts && !nupa_host_trunked(trunk->fabric, place) &&
		       NUPA_NEWS_AT(word) < NUPA_CM_BUCKETS * NUPA_CM_BUCKET_WORDS;
	return nupa_slot_ours(trunk, place);
}

static void tell_word(struct nupa_trunk *trunk, uint32_t word)
{
	if (!is_news(trunk, word))
		return;
	if (NUPA_NEWS_KIND(word) == NUPA_NEWS_SLOT)
		(void)follow_slot(trunk, NUPA_NEWS_PLACE(word));
	for (uint32_t i = 0; i < trunk->machines; i++)
		if (trunk->peers[i].known)
			tell_one(trunk, word, &trunk->peers[i]);
}

static void tell_all_anew(struct nupa_trunk *trunk)
{
	nupa_tell_start(trunk);
	for (uint32_t i = 0; i < trunk->machines; i++)
		trunk->peers[i].stale = trunk->peers[i].known;
}

/* The next entry; false: it is not there yet, or was overwritten. */
static bool next_news(struct nupa_trunk *trunk, uint64_t tail, uint32_t *word)
{
	const uint64_t head = trunk->news_head;
	const uint64_t entry = nupa_load_acquire(&trunk->area->news[head % NUPA_TRUNK_NEWS]);

	if (tail - head <= NUPA_TRUNK_NEWS && entry >> 32 == head / NUPA_TRUNK_NEWS + 1) {
		*word = (uint32_t)entry;
		trunk->news_head++;
		trunk->news_stuck_ns = 0;
		return true;
	}
	if (tail - head <= NUPA_TRUNK_NEWS && entry >> 32 < head / NUPA_TRUNK_NEWS + 1) {
		if (!trunk->news_stuck_ns)
			trunk->news_stuck_ns = trunk->now_ns;
		if (trunk->now_ns - trunk->news_stuck_ns < STUCK_NS)
			return false;
	}
	trunk->news_head = tail;
	trunk->news_stuck_ns = 0;
	tell_all_anew(trunk);
	return false;
}

bool nupa_tell_news(struct nupa_trunk *trunk)
{
	const uint64_t tail = nupa_load_acquire(&trunk->area->news_tail);
	bool any = false;
	uint32_t word;

	while (trunk->news_head != tail && next_news(trunk, tail, &word)) {
		tell_word(trunk, word);
		any = true;
	}
	return any;
}

bool nupa_tell_ports(struct nupa_trunk *trunk)
{
	const uint32_t epoch = nupa_load_acquire(trunk->fabric->port_epoch);

	if (epoch == trunk->port_epoch)
		return false;
	trunk->port_epoch = epoch;
	for (uint32_t port = 0; port < trunk->fabric->geometry.n_ports; port++) {
		const uint32_t state = nupa_load_relaxed(&trunk->fabric->ports[port].state);

		if (state == trunk->ports_told[port])
			continue;
		trunk->ports_told[port] = state;
		if (nupa_port_machine(trunk->fabric, port) != trunk->machine)
			continue;
		for (uint32_t i = 0; i < trunk->machines; i++)
			if (trunk->peers[i].known && !tell_port(trunk, &trunk->peers[i], port))
				trunk->peers[i].stale = true;
	}
	return true;
}

/* --- everything ---------------------------------------------------------------------------- */

enum { SYNC_NONE, SYNC_SLOTS, SYNC_QPS, SYNC_BOUND, SYNC_PORTS, SYNC_CONTACTS, SYNC_END };

void nupa_tell_begin(struct nupa_peer *peer)
{
	peer->stale = false;
	peer->sync = SYNC_SLOTS;
	peer->sync_place = peer->sync_at = 0;
}

static bool sync_slots(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->end; peer->sync_place++)
		if (nupa_slot_ours(trunk, peer->sync_place) &&
		    !tell_slot(trunk, peer, peer->sync_place))
			return false;
	return true;
}

static bool sync_qps(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->end; peer->sync_place++, peer->sync_at = 0) {
		const uint32_t slot = peer->sync_place;

		if (!nupa_slot_ours(trunk, slot) || !trunk->own[slot].claim)
			continue;
		for (; peer->sync_at < nupa_load_relaxed(&trunk->fabric->slots[slot].qp_limit) &&
		       peer->sync_at < trunk->fabric->geometry.qp_entries;
		     peer->sync_at++)
			if (!tell_qp(trunk, peer, slot, peer->sync_at))
				return false;
	}
	return true;
}

/* Words that are 0 are told to a machine that knew others. */
static bool sync_bound(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->fabric->geometry.n_hosts;
	     peer->sync_place++, peer->sync_at = 0) {
		const uint32_t host = peer->sync_place;
		const struct nupa_cm_bucket *table =
		    nupa_host_trunked(trunk->fabric, host)
			? NULL
			: nupa_fabric_cm_table(trunk->fabric, host, false);

		if (!table)
			continue;
		for (; peer->sync_at < NUPA_CM_BUCKETS * NUPA_CM_BUCKET_WORDS; peer->sync_at++) {
			const uint32_t at = peer->sync_at;

			if ((peer->up ||
			     nupa_load_relaxed(&table[at / NUPA_CM_BUCKET_WORDS]
						    .words[at % NUPA_CM_BUCKET_WORDS])) &&
			    !tell_bound(trunk, peer, host, at))
				return false;
		}
	}
	return true;
}

static bool sync_ports(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	for (; peer->sync_place < trunk->fabric->geometry.n_ports; peer->sync_place++)
		if (nupa_port_machine(trunk->fabric, peer->sync_place) == trunk->machine &&
		    !tell_port(trunk, peer, peer->sync_place))
			return false;
	return true;
}

static bool sync_contacts(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	uint32_t first, end;

	nupa_machine_slots(trunk->fabric, peer->machine, &first, &end);
	for (; peer->sync_place < trunk->end; peer->sync_place++, peer->sync_at = 0) {
		if (!nupa_slot_ours(trunk, peer->sync_place))
			continue;
		for (; peer->sync_at < end; peer->sync_at++)
			if (peer->sync_at >= first &&
			    !tell_contact(trunk, peer, peer->sync_place, peer->sync_at))
				return false;
	}
	return true;
}

static bool sync_end(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	return nupa_out_room(trunk, peer, NUPA_TOLD_SYNCED, sizeof(struct nupa_told), false);
}

bool nupa_tell_more(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	static bool (*const parts[])(struct nupa_trunk *, struct nupa_peer *) = {
		[SYNC_SLOTS] = sync_slots,       [SYNC_QPS] = sync_qps,
		[SYNC_BOUND] = sync_bound,       [SYNC_PORTS] = sync_ports,
		[SYNC_CONTACTS] = sync_contacts, [SYNC_END] = sync_end,
	};
	bool any = false;

	if (peer->known && peer->stale && !peer->sync)
		nupa_tell_begin(peer);
	while (peer->sync && parts[peer->sync](trunk, peer)) {
		peer->sync = peer->sync == SYNC_END ? SYNC_NONE : peer->sync + 1;
		peer->sync_place = peer->sync_at = 0;
		any = true;
	}
	return any;
}

void nupa_tell_start(struct nupa_trunk *trunk)
{
	for (uint32_t slot = trunk->first; slot < trunk->end; slot++)
		(void)follow_slot(trunk, slot);
}

void nupa_tell_end(struct nupa_trunk *trunk)
{
	for (uint32_t slot = trunk->first; slot < trunk->end; slot++)
		if (trunk->own[slot].claim)
			forget_slot(trunk, slot);
}
