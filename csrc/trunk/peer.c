/* SPDX-License-Identifier: BSD-3-Clause
 * Machines: met, known, up, lost, and met again.  The one with the higher number connects.  A
 * machine that is lost has no slots and no open ports here, so that its partners see the death of
 * all of its processes. */
#include "trunk/internal.h"

#include "region/slot_life.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MIN_NS UINT64_C(100000000)
#define RETRY_MAX_NS UINT64_C(2000000000)
#define PING_NS UINT64_C(1000000000)
#define SILENT_NS UINT64_C(10000000000) /* then it is lost */
#define INCARNATIONS 15u                /* of a claim's 10 bits: 1 + machine + 64 * incarnation */

static void set_state(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t state)
{
	struct nupa_machine *seen = nupa_peer_seen(trunk, peer);
	struct timespec now;

	if (nupa_load_relaxed(&seen->state) == state)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	nupa_store_relaxed(&seen->since_ns,
			   (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
	nupa_store_release(&seen->state, state);
}

/* --- lost ---------------------------------------------------------------------------------- */

static void close_ports(struct nupa_trunk *trunk, const struct nupa_peer *peer)
{
	const struct nupa_fabric *fabric = trunk->fabric;
	bool changed = false;

	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		struct nupa_port *port = &fabric->ports[fabric->hosts[host].port];

		if (fabric->geometry.trunk.host_machine[host] != peer->machine ||
		    nupa_exchange_seq(&port->state, NUPA_PORT_DOWN) == NUPA_PORT_DOWN)
			continue;
		nupa_fetch_add_seq(&port->link_downed, 1);
		changed = true;
	}
	if (changed)
		nupa_fabric_announce(trunk->fabric);
}

static void unbind_ports(struct nupa_trunk *trunk, const struct nupa_peer *peer)
{
	for (uint32_t host = 0; host < trunk->fabric->geometry.n_hosts; host++) {
		struct nupa_cm_bucket *table;

		if (trunk->fabric->geometry.trunk.host_machine[host] != peer->machine)
			continue;
		table = nupa_fabric_cm_table(trunk->fabric, host, false);
		for (uint32_t i = 0; table && i < NUPA_CM_BUCKETS; i++)
			for (uint32_t n = 0; n < NUPA_CM_BUCKET_WORDS; n++)
				if (nupa_load_relaxed(&table[i].words[n]))
					nupa_store_release(&table[i].words[n], 0);
	}
}

/* What our processes said to theirs does not hold for those that will have the slots. */
static void forget_contacts(struct nupa_trunk *trunk, uint32_t first, uint32_t end)
{
	for (uint32_t slot = trunk->first; slot < trunk->end; slot++)
		for (uint32_t to = first; to < end; to++)
			nupa_store_release(nupa_contact(trunk->fabric, slot, to), 0);
}

static void forget_machine(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	uint32_t first, end;

	nupa_machine_slots(trunk->fabric, peer->machine, &first, &end);
	for (uint32_t slot = first; slot < end; slot++)
		(void)nupa_fabric_lose_slot(trunk->fabric, slot);
	forget_contacts(trunk, first, end);
	unbind_ports(trunk, peer);
	close_ports(trunk, peer);
	nupa_pair_close_in(peer, 0, 0);
	nupa_pair_close_out(trunk, peer, 0, 0);
}

void nupa_peer_lose(struct nupa_trunk *trunk, struct nupa_peer *peer, const char *reason,
		    uint32_t state)
{
	struct nupa_machine *seen = nupa_peer_seen(trunk, peer);

	peer->met = false; /* nothing is sent any more */
	nupa_out_flush(trunk, peer);
	if (peer->link)
		trunk->carrier->ops->close(trunk->carrier, peer->link);
	peer->link = NULL;
	if (peer->known) {
		if (!nupa_load_relaxed(&trunk->stop))
			fprintf(stderr, "trunk: machine %u is lost: %s\n", peer->machine, reason);
		nupa_store_relaxed(&seen->losses, seen->losses + 1);
		forget_machine(trunk, peer);
	}
	peer->known = peer->up = peer->stale = false;
	peer->sync = 0;
	peer->fence_owed = 0;
	nupa_store_relaxed(&seen->rtt_ns, 0);
	set_state(trunk, peer, state);
	peer->retry_ns = trunk->now_ns + peer->wait_ns;
	peer->wait_ns = peer->wait_ns * 2 < RETRY_MAX_NS ? peer->wait_ns * 2 : RETRY_MAX_NS;
}

static uint32_t state_when_lost(const struct nupa_trunk *trunk, const struct nupa_peer *peer)
{
	const uint32_t state = nupa_load_relaxed(&nupa_peer_seen(trunk, peer)->state);

	return state == NUPA_MACHINE_UP ? NUPA_MACHINE_DOWN : state;
}

/* --- events of the carrier ----------------------------------------------------------------- */

static struct nupa_peer *peer_at(struct nupa_trunk *trunk, uint32_t machine)
{
	return machine < trunk->machines && machine != trunk->machine ? &trunk->peers[machine]
								      : NULL;
}

static void met(void *arg, uint32_t machine, void *link)
{
	struct nupa_trunk *trunk = arg;
	struct nupa_peer *peer = peer_at(trunk, machine);
	struct nupa_told_hello *hello;

	/* The one with the higher number connects. */
	if (!peer || (machine < trunk->machine && peer->link != link)) {
		trunk->carrier->ops->close(trunk->carrier, link);
		return;
	}
	if (peer->link && peer->link != link)
		nupa_peer_lose(trunk, peer, "its trunk was started again",
			       state_when_lost(trunk, peer));
	peer->link = link;
	peer->met = true;
	peer->on_way = 0;
	peer->put_on_way = peer->put_bytes = 0;
	peer->heard_ns = trunk->now_ns;
	hello = nupa_out_room(trunk, peer, NUPA_TOLD_HELLO, sizeof(*hello), false);
	if (!hello) {
		nupa_peer_lose(trunk, peer, "no memory", NUPA_MACHINE_DOWN);
		return;
	}
	*hello = (struct nupa_told_hello){
		.head = hello->head,
		.magic = NUPA_TRUNK_MAGIC,
		.version = NUPA_TRUNK_VERSION,
		.machine = trunk->machine,
		.machines = trunk->machines,
		.generation = trunk->fabric->geometry.generation,
		.shape = trunk->shape,
	};
	nupa_out_flush(trunk, peer);
}

bool nupa_peer_hello(struct nupa_trunk *trunk, struct nupa_peer *peer,
		     const struct nupa_told_hello *record)
{
	if (record->magic != NUPA_TRUNK_MAGIC || record->version != NUPA_TRUNK_VERSION ||
	    record->machine != peer->machine || record->machines != trunk->machines ||
	    record->generation != trunk->fabric->geometry.generation ||
	    record->shape != trunk->shape) {
		nupa_hint_of(peer,
			     "machine %u is of another fabric, or of another version of nupa: take "
			     "the fabric down on all machines and start them with one file",
			     peer->machine);
		nupa_peer_lose(trunk, peer, "it is of another fabric", NUPA_MACHINE_REFUSED);
		return true;
	}
	peer->known = true;
	peer->incarnation = (peer->incarnation + 1) % INCARNATIONS;
	peer->fence_sent = peer->fence_done = nupa_load_relaxed(&trunk->area->settled);
	nupa_tell_begin(peer);
	return true;
}

void nupa_peer_synced(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	if (peer->up)
		return;
	peer->up = true;
	peer->wait_ns = RETRY_MIN_NS;
	set_state(trunk, peer, NUPA_MACHINE_UP);
}

/* Records of a packet, one after the other; false: nonsense. */
static bool obey_all(struct nupa_trunk *trunk, struct nupa_peer *peer, const uint8_t *data,
		     uint32_t bytes)
{
	struct nupa_machine *seen = nupa_peer_seen(trunk, peer);

	while (bytes) {
		const struct nupa_told *record = (const struct nupa_told *)(const void *)data;

		if (bytes < sizeof(*record) || record->bytes < sizeof(*record) ||
		    record->bytes > bytes || record->bytes % 8)
			return false;
		if (!nupa_obey(trunk, peer, record)) {
			nupa_count(&seen->refused, 1);
			return false;
		}
		if (!peer->link) /* it was lost meanwhile */
			return true;
		data += record->bytes;
		bytes -= record->bytes;
	}
	return true;
}

static void received(void *arg, uint32_t machine, void *link, const uint8_t *data, uint32_t bytes)
{
	struct nupa_trunk *trunk = arg;
	struct nupa_peer *peer = peer_at(trunk, machine);

	if (!peer || peer->link != link)
		return;
	peer->heard_ns = trunk->now_ns;
	nupa_count(&nupa_peer_seen(trunk, peer)->received_bytes, bytes);
	nupa_count(&nupa_peer_seen(trunk, peer)->received_messages, 1);
	if (!obey_all(trunk, peer, data, bytes))
		nupa_peer_lose(trunk, peer, "it sent what it may not", NUPA_MACHINE_DOWN);
	if (trunk->announce) {
		trunk->announce = false;
		nupa_fabric_announce(trunk->fabric);
	}
}

static void goes(void *arg, uint32_t machine, struct nupa_packet *packet)
{
	(void)machine;
	nupa_put_check(arg, packet);
}

static void sent(void *arg, uint32_t machine, struct nupa_packet *packet, void *link)
{
	struct nupa_trunk *trunk = arg;
	struct nupa_peer *peer = peer_at(trunk, machine);

	if (peer && peer->link == link && peer->on_way) {
		peer->on_way--;
		peer->put_on_way -= packet->put_bytes;
	}
	nupa_out_sent(trunk, packet);
}

static void lost(void *arg, uint32_t machine, void *link, const char *reason)
{
	struct nupa_trunk *trunk = arg;
	struct nupa_peer *peer = peer_at(trunk, machine);

	if (!peer || peer->link != link)
		return;
	peer->link = NULL;
	nupa_peer_lose(trunk, peer, reason, state_when_lost(trunk, peer));
}

const struct nupa_carrier_events nupa_peer_events = { met, received, goes, sent, lost };

/* --- time ---------------------------------------------------------------------------------- */

static uint64_t tick(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	const uint64_t now_ns = trunk->now_ns;
	struct nupa_told_number *ping;

	if (!peer->link) {
		if (peer->machine > trunk->machine)
			return UINT64_MAX;
		if (now_ns < peer->retry_ns)
			return peer->retry_ns;
		peer->link = trunk->carrier->ops->connect(trunk->carrier, peer->machine);
		peer->heard_ns = now_ns;
		peer->retry_ns = now_ns + RETRY_MAX_NS;
		return now_ns + SILENT_NS;
	}
	if (now_ns - peer->heard_ns >= SILENT_NS) {
		nupa_peer_lose(trunk, peer, "it does not answer", state_when_lost(trunk, peer));
		return peer->machine > trunk->machine ? UINT64_MAX : peer->retry_ns;
	}
	if (!peer->known)
		return peer->heard_ns + SILENT_NS;
	if (now_ns - peer->ping_ns < PING_NS)
		return peer->ping_ns + PING_NS;
	ping = nupa_out_room(trunk, peer, NUPA_TOLD_PING, sizeof(*ping), false);
	if (ping) {
		ping->number = peer->ping_ns = nupa_clock_ns();
		nupa_out_flush(trunk, peer);
	}
	return now_ns + PING_NS;
}

uint64_t nupa_peers_tick(struct nupa_trunk *trunk)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < trunk->machines; i++) {
		const uint64_t at_ns =
		    i == trunk->machine ? UINT64_MAX : tick(trunk, &trunk->peers[i]);

		next_ns = at_ns < next_ns ? at_ns : next_ns;
	}
	return next_ns;
}

/* --- what our processes wait for ----------------------------------------------------------- */

/* Whether the machine has confirmed what was told up to then; asks it to. */
static bool confirmed(struct nupa_trunk *trunk, struct nupa_peer *peer, uint32_t wanted)
{
	struct nupa_told_number *fence;

	if (!peer->up || (int32_t)(peer->fence_done - wanted) >= 0)
		return true;
	if (peer->stale || peer->sync || (int32_t)(peer->fence_sent - wanted) >= 0)
		return false;
	fence = nupa_out_room(trunk, peer, NUPA_TOLD_FENCE, sizeof(*fence), false);
	if (fence) {
		fence->number = wanted;
		peer->fence_sent = wanted;
	}
	return false;
}

static void answer_fence(struct nupa_trunk *trunk, struct nupa_peer *peer)
{
	struct nupa_told_number *answer;

	if (!peer->fence_owed)
		return;
	answer = nupa_out_room(trunk, peer, NUPA_TOLD_FENCED, sizeof(*answer), false);
	if (!answer)
		return;
	answer->number = peer->fence_owed;
	peer->fence_owed = 0;
}

void nupa_peers_settle(struct nupa_trunk *trunk, uint32_t wanted)
{
	bool all = true;

	for (uint32_t i = 0; i < trunk->machines; i++) {
		answer_fence(trunk, &trunk->peers[i]);
		if (wanted != nupa_load_relaxed(&trunk->area->settled))
			all &= confirmed(trunk, &trunk->peers[i], wanted);
	}
	if (!all || wanted == nupa_load_relaxed(&trunk->area->settled))
		return;
	nupa_store_release(&trunk->area->settled, wanted);
	syscall(SYS_futex, &trunk->area->settled, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* --- begin and end ------------------------------------------------------------------------- */

void nupa_peers_begin(struct nupa_trunk *trunk)
{
	for (uint32_t i = 0; i < trunk->machines; i++) {
		struct nupa_peer *peer = &trunk->peers[i];

		peer->machine = i;
		peer->wait_ns = RETRY_MIN_NS;
		if (i == trunk->machine)
			continue;
		/* A former trunk's claims have an incarnation that is not to come again at once. */
		peer->incarnation = (uint32_t)(nupa_clock_ns() % INCARNATIONS);
		forget_machine(trunk, peer);
		trunk->area->seen[i] = (struct nupa_machine){ 0 };
		set_state(trunk, peer, NUPA_MACHINE_CONNECTING);
	}
}

void nupa_peers_end(struct nupa_trunk *trunk)
{
	for (uint32_t i = 0; i < trunk->machines; i++)
		if (i != trunk->machine) {
			nupa_peer_lose(trunk, &trunk->peers[i], "this trunk ends",
				       NUPA_MACHINE_DOWN);
			nupa_pairs_sweep_out(&trunk->peers[i]);
			nupa_pairs_sweep_in(trunk, &trunk->peers[i]);
		}
}
