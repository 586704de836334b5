/* SPDX-License-Identifier: BSD-3-Clause
 * What has changed on this machine, told to the others: slots, QPs, open rings, bound ports, states
 * of ports. */
#include "trunk/internal.h"

#include "segment/slot/machine.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STUCK_NS 10000000u /* a process that ended between two stores */

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
		told = nupa_tell_slot(trunk, peer, place);
		break;
	case NUPA_NEWS_QP:
		told = nupa_tell_qp(trunk, peer, place, at);
		break;
	case NUPA_NEWS_CONTACT:
		if (nupa_slot_theirs(trunk, peer, at))
			told = nupa_tell_contact(trunk, peer, place, at);
		break;
	case NUPA_NEWS_BOUND:
		told = nupa_tell_bound(trunk, peer, place, at);
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
			if (trunk->peers[i].known && !nupa_tell_port(trunk, &trunk->peers[i], port))
				trunk->peers[i].stale = true;
	}
	return true;
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
