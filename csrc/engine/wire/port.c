/* SPDX-License-Identifier: BSD-3-Clause
 * Ports to wires: opened with the help of the keeper. */
#define _GNU_SOURCE
#include "engine/fault/fault_internal.h"
#include "engine/wire/wire_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define KEEPER_PATIENCE_MS 100 /* with the engine's lock */
#define HELD_PACKETS 48u

static void set_addresses(struct nupa_wire *wire)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint8_t remote[16], local[16];

	memcpy(remote, wire->entry->remote, sizeof(remote));
	memcpy(local, wire->entry->local, sizeof(local));
	memcpy(wire->out.src, local, sizeof(local));
	memcpy(wire->out.dst, remote, sizeof(remote));
	memcpy(wire->in.src, remote, sizeof(remote));
	memcpy(wire->in.dst, local, sizeof(local));
	wire->out.tos = NUPA_WIRE_ECN_CAPABLE;
	wire->out.ttl = wire->in.ttl = NUPA_WIRE_TTL; /* sockets hide that of what comes */
	nupa_icrc_prepare(&wire->icrc_out, local, remote);
	nupa_icrc_prepare(&wire->icrc_in, remote, local);
	wire->out.src_port = wire->in.src_port = NUPA_WIRE_UDP_PORT;
	wire->ipv4 = !memcmp(remote, mapped, sizeof(mapped));
	if (wire->ipv4) {
		wire->to.v4.sin_family = AF_INET;
		wire->to.v4.sin_port = htons(NUPA_WIRE_UDP_PORT);
		memcpy(&wire->to.v4.sin_addr, remote + 12, 4);
	} else {
		wire->to.v6.sin6_family = AF_INET6;
		wire->to.v6.sin6_port = htons(NUPA_WIRE_UDP_PORT);
		memcpy(&wire->to.v6.sin6_addr, remote, 16);
	}
}

/* --- ports --------------------------------------------------------------------------- */

void nupa_wire_shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void free_wire(struct nupa_wire *wire)
{
	nupa_wire_shut(&wire->keeper);
	nupa_wire_shut(&wire->udp);
	nupa_wire_shut(&wire->raw);
	nupa_wire_shut(&wire->wake);
	free(wire->posted);
	free(wire);
}

static struct nupa_wire *make_wire(struct nupa_engine *engine, struct nupa_channel *channel,
				   struct nupa_wire_entry *entry)
{
	const struct nupa_superblock *sb = &engine->fabric->geometry;
	struct nupa_wire *wire = calloc(1, sizeof(*wire));

	if (!wire)
		return NULL;
	wire->posted = calloc(sb->ring_lines, sizeof(*wire->posted)); /* a capture's only */
	channel->posted = wire->posted;
	wire->engine = engine;
	wire->channel = channel;
	wire->entry = entry;
	wire->host = channel->peer_host;
	wire->index = (uint32_t)(entry - engine->fabric->sb->wires);
	wire->frames = nupa_load_relaxed(&entry->medium) == NUPA_WIRE_FRAMES;
	wire->keeper = wire->udp = wire->raw = -1;
	wire->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	nupa_rx_init(&wire->rx, channel->tx.header, sb->ring_lines, sb->dma_bytes, engine->epoch);
	set_addresses(wire);
	return wire;
}

/* Frees those whose threads have ended. */
static void sweep(struct nupa_engine *engine)
{
	struct nupa_wire **at = &engine->wires;

	while (*at) {
		struct nupa_wire *wire = *at;

		if (wire->channel || !nupa_load_acquire(&wire->done)) {
			at = &wire->next;
			continue;
		}
		*at = wire->next;
		pthread_join(wire->thread, NULL);
		free_wire(wire);
	}
}

bool nupa_wires_carried(void)
{
	return true;
}

void nupa_wire_opened(struct nupa_engine *engine, struct nupa_channel *channel)
{
	int index = nupa_wire_of_host(engine->fabric, channel->peer_host);
	struct nupa_wire_entry *entry =
	    index < 0 ? NULL : nupa_wire_at(engine->fabric, (uint32_t)index);
	struct nupa_wire *wire;
	int error;

	channel->wire_mtu_bytes = entry ? nupa_wire_mtu_bytes(entry) : NUPA_MTU_BYTES;
	nupa_fault_need(engine); /* its list of timers */
	sweep(engine);
	wire = entry ? make_wire(engine, channel, entry) : NULL;
	if (!wire)
		return; /* what is sent gets lost, and its sender is told by its timer */
	error = wire->wake < 0 ? -errno : nupa_wire_join(wire, KEEPER_PATIENCE_MS);
	if (!error || error == -EAGAIN) /* what was sent leaves once the keeper has answered */
		error = nupa_wire_start_thread(wire);
	if (error) {
		nupa_wire_hint(wire, error);
		channel->posted = NULL;
		free_wire(wire);
		return;
	}
	wire->next = engine->wires;
	engine->wires = wire;
}

static void stop(struct nupa_wire *wire)
{
	if (wire->channel)
		wire->channel->posted = NULL;
	wire->channel = NULL;
	nupa_store_release(&wire->stop, true);
	(void)!write(wire->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void nupa_wire_closed(struct nupa_engine *engine, const struct nupa_channel *channel)
{
	for (struct nupa_wire *wire = engine->wires; wire; wire = wire->next)
		if (wire->channel == channel)
			stop(wire);
}

void nupa_wires_stop(struct nupa_engine *engine)
{
	struct nupa_wire *wire;

	nupa_engine_lock(engine);
	for (wire = engine->wires; wire; wire = wire->next)
		stop(wire);
	wire = engine->wires;
	engine->wires = NULL;
	nupa_engine_unlock(engine);
	while (wire) {
		struct nupa_wire *next = wire->next;

		pthread_join(wire->thread, NULL);
		free_wire(wire);
		wire = next;
	}
}

void nupa_wires_wake(struct nupa_engine *engine)
{
	for (struct nupa_wire *wire = engine->wires; wire; wire = wire->next)
		(void)!write(wire->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* --- the table ----------------------------------------------------------------------- */

void nupa_wires_follow(struct nupa_engine *engine)
{
	engine->has_wires = false;
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) /* W6: also those that await a keeper */
		if (nupa_wire_taken(engine->fabric, &engine->fabric->sb->wires[i]))
			engine->has_wires = true;
	for (struct nupa_wire *wire = engine->wires; wire; wire = wire->next)
		if (wire->channel) /* the path MTU may be another one */
			wire->channel->wire_mtu_bytes = nupa_wire_mtu_bytes(wire->entry);
	if (engine->meets_wires)
		nupa_wires_meet(engine);
}

void nupa_wires_meet(struct nupa_engine *engine)
{
	engine->meets_wires = true;
	for (uint32_t i = 0; engine->has_wires && i < NUPA_WIRES_MAX; i++) {
		const struct nupa_wire_entry *entry = nupa_wire_at(engine->fabric, i);
		uint32_t slot = entry ? nupa_load_relaxed(&entry->slot) : engine->slot_index;

		if (slot != engine->slot_index)
			(void)nupa_channel_meet(engine, slot);
	}
}

/* --- runs ---------------------------------------------------------------------------- */

void nupa_wires_flush(struct nupa_engine *engine)
{
	engine->wire_dirty = false;
	for (struct nupa_wire *wire = engine->wires; wire; wire = wire->next)
		nupa_wire_flush(wire);
	for (struct nupa_wire *wire = engine->wires; wire; wire = wire->next)
		engine->wire_dirty |= wire->blocked; /* again, with the next turn */
}

/* Little by little only where nothing is on its way: else with the next poll, or when it is worth
 * it.  A program that stops polling is noticed by the port thread, which sends the rest. */
void nupa_wires_posted(struct nupa_engine *engine, struct nupa_qp *qp)
{
	for (struct nupa_wire *wire = engine->wires; wire; wire = wire->next) {
		const uint64_t n = wire->channel ? wire->channel->tx.tail - wire->rx.head : 0;

		if (n && (n >= HELD_PACKETS || !nupa_load_relaxed(&engine->app_drives) ||
			  qp->type != IBV_QPT_RC || nupa_flight_packets(qp) <= n)) {
			nupa_wires_flush(engine);
			return;
		}
	}
}

uint32_t nupa_wires_run(struct nupa_engine *engine)
{
	uint32_t handled = 0;

	for (struct nupa_wire *wire = engine->wires; wire; wire = wire->next)
		if (wire->channel && nupa_load_acquire(&wire->joined))
			handled +=
			    wire->frames ? nupa_wire_receive_kept(wire) : nupa_wire_receive(wire);
	return handled;
}
