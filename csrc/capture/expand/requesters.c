/* SPDX-License-Identifier: BSD-3-Clause
 * PSNs of the wire.  The engine counts one for each message that it sends and none for a direct
 * access.  An adapter counts one for each packet, and for a READ as many as its responses have.
 *
 * Memory is bounded: it holds the QPs used last, and of each QP the requests that may be in flight.
 * Anything older is guessed, as if each message had been one packet. */
#include "capture/expand/expand.h"

#include <stdlib.h>

int nupa_requesters_open(struct nupa_watch *watch)
{
	const size_t n = (size_t)NUPA_REQUESTER_SETS * NUPA_REQUESTER_WAYS;

	watch->requesters = calloc(n, sizeof(*watch->requesters));
	watch->sent = calloc(NUPA_SENT_ENTRIES, sizeof(*watch->sent));
	watch->transfers = calloc(NUPA_TRANSFER_ENTRIES, sizeof(*watch->transfers));
	if (watch->levels & NUPA_TRACE_TLP) {
		watch->memories = calloc(NUPA_MEMORIES, sizeof(*watch->memories));
		if (!watch->memories)
			return -1;
	}
	return watch->requesters && watch->sent && watch->transfers ? 0 : -1;
}

void nupa_requesters_close(struct nupa_watch *watch)
{
	free(watch->requesters);
	free(watch->sent);
	free(watch->transfers);
	free(watch->memories);
}

static uint32_t mixed(uint32_t qpn)
{
	return (qpn * 0x9e3779b1u) >> 8;
}

static uint32_t add(uint32_t psn, uint32_t n)
{
	return (psn & ~NUPA_PSN_MASK) | ((psn + n) & NUPA_PSN_MASK);
}

/* How far `to` is ahead of `from`, of 24 bits: -2^23 to 2^23 - 1. */
static int32_t ahead(uint32_t to, uint32_t from)
{
	return (int32_t)((to - from) << 8) >> 8;
}

/* The QP, or NULL. */
static struct nupa_requester *known(struct nupa_watch *watch, uint32_t qpn)
{
	struct nupa_requester *set =
	    &watch->requesters[mixed(qpn) % NUPA_REQUESTER_SETS * NUPA_REQUESTER_WAYS];

	for (uint32_t i = 0; i < NUPA_REQUESTER_WAYS; i++)
		if (set[i].qpn == qpn) {
			set[i].used = ++watch->ticks;
			return &set[i];
		}
	return NULL;
}

/* The QP; a new one sends this PSN next, and replaces the QP that was unused longest. */
static struct nupa_requester *requester_of(struct nupa_watch *watch, uint32_t qpn,
					   uint32_t engine_psn)
{
	struct nupa_requester *found = known(watch, qpn), *set;

	if (!found) {
		set = &watch->requesters[mixed(qpn) % NUPA_REQUESTER_SETS * NUPA_REQUESTER_WAYS];
		found = set;
		for (uint32_t i = 1; i < NUPA_REQUESTER_WAYS; i++)
			if (set[i].used < found->used)
				found = &set[i];
		*found = (struct nupa_requester){ .qpn = qpn, .used = ++watch->ticks };
	} else if (found->engine_psn >> 24 == engine_psn >> 24) {
		return found;
	}
	found->engine_psn = engine_psn; /* a reset ends the sequence, too */
	found->wire_psn = engine_psn & NUPA_PSN_MASK;
	found->messages = 0;
	return found;
}

static struct nupa_sent *place_of(struct nupa_watch *watch, uint32_t qpn, uint32_t engine_psn)
{
	return &watch->sent[(mixed(qpn) + (engine_psn & (NUPA_SENT_WINDOW - 1))) %
			    NUPA_SENT_ENTRIES];
}

static struct nupa_sent *sent_before(struct nupa_watch *watch, uint32_t qpn, uint32_t engine_psn)
{
	struct nupa_sent *sent = place_of(watch, qpn, engine_psn);

	return sent->qpn == qpn && sent->engine_psn == engine_psn ? sent : NULL;
}

/* Brings the QP to this PSN's place on the wire, behind the last message sent.  If the engine goes
 * back, this is the place of the message sent with that PSN. */
static void come_to(struct nupa_watch *watch, struct nupa_requester *requester, uint32_t engine_psn)
{
	int32_t step = ahead(engine_psn, requester->engine_psn);
	const struct nupa_sent *sent;

	if (!step)
		return;
	sent = sent_before(watch, requester->qpn, engine_psn);
	if (step < 0 && sent) {
		requester->wire_psn = sent->wire_psn;
		requester->messages = sent->msn - 1;
	} else {
		requester->wire_psn = (requester->wire_psn + (uint32_t)step) & NUPA_PSN_MASK;
	}
	requester->engine_psn = engine_psn;
}

static uint32_t take(struct nupa_requester *requester, uint32_t n, bool completes)
{
	uint32_t first = requester->wire_psn;

	requester->wire_psn = (first + n) & NUPA_PSN_MASK;
	requester->messages += completes;
	return first;
}

struct nupa_sent *nupa_requester_sends(struct nupa_watch *watch, uint32_t qpn, uint32_t engine_psn,
				       uint32_t n, bool completes, uint64_t transfer)
{
	struct nupa_requester *requester = requester_of(watch, qpn, engine_psn);
	struct nupa_sent *sent = place_of(watch, qpn, engine_psn);

	come_to(watch, requester, engine_psn);
	*sent = (struct nupa_sent){
		.transfer = transfer,
		.qpn = qpn,
		.engine_psn = engine_psn,
		.wire_psn = take(requester, n, completes),
	};
	sent->wire_last = (sent->wire_psn + n - 1) & NUPA_PSN_MASK;
	sent->msn = requester->messages;
	requester->engine_psn = add(engine_psn, 1);
	return sent;
}

uint32_t nupa_requester_moves(struct nupa_watch *watch, uint32_t qpn, uint32_t engine_psn,
			      uint32_t n, bool completes, uint32_t *msn)
{
	struct nupa_requester *requester = requester_of(watch, qpn, engine_psn);
	uint32_t first;

	come_to(watch, requester, engine_psn);
	first = take(requester, n, completes);
	*msn = requester->messages;
	return first;
}

const struct nupa_sent *nupa_requester_find(struct nupa_watch *watch, uint32_t qpn,
					    uint32_t engine_psn, struct nupa_sent *guess)
{
	const struct nupa_sent *sent = sent_before(watch, qpn, engine_psn);
	const struct nupa_requester *requester;
	uint32_t wire_psn = engine_psn & NUPA_PSN_MASK, msn = 0;

	if (sent)
		return sent;
	requester = known(watch, qpn);
	if (requester) {
		wire_psn =
		    (requester->wire_psn + (uint32_t)ahead(engine_psn, requester->engine_psn)) &
		    NUPA_PSN_MASK;
		msn = requester->messages;
	}
	*guess = (struct nupa_sent){
		.qpn = qpn,
		.engine_psn = engine_psn,
		.wire_psn = wire_psn,
		.wire_last = wire_psn,
		.msn = msn,
	};
	return guess;
}

uint64_t nupa_requester_origin(struct nupa_watch *watch, uint32_t qpn, bool first, uint64_t raddr)
{
	struct nupa_requester *requester = known(watch, qpn);

	if (!requester)
		return raddr;
	if (first)
		requester->origin = raddr;
	return requester->origin;
}

uint32_t nupa_transfer_next(struct nupa_watch *watch, uint64_t transfer, uint8_t level)
{
	struct nupa_transfer_count *count =
	    &watch->transfers[nupa_transfer_place(transfer) % NUPA_TRANSFER_ENTRIES];

	if (!transfer)
		return 0;
	if (count->transfer != transfer)
		*count = (struct nupa_transfer_count){ .transfer = transfer };
	return count->packets[level - 1]++;
}
