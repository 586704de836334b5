/* SPDX-License-Identifier: BSD-3-Clause
 * The table of wires: entries listed, made and taken away. */
#include "segment/slot/wire.h"

#include "base/atomics.h"
#include "base/explain.h"
#include "segment/gid.h"
#include "segment/slot/slot.h"
#include "segment/wire.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* --- listing ------------------------------------------------------------------------- */

static void fill_counts(const struct nupa_wire_entry *entry, struct nupa_wire_info *info)
{
	info->heard_ns = nupa_load_relaxed(&entry->heard_ns);
	info->rtt_ns = nupa_load_relaxed(&entry->rtt_ns);
	info->other[0] = nupa_load_relaxed(&entry->other[0]);
	info->other[1] = nupa_load_relaxed(&entry->other[1]);
	info->sent_packets = nupa_load_relaxed(&entry->sent_packets);
	info->sent_bytes = nupa_load_relaxed(&entry->sent_bytes);
	info->received_packets = nupa_load_relaxed(&entry->received_packets);
	info->received_bytes = nupa_load_relaxed(&entry->received_bytes);
	info->retransmitted = nupa_load_relaxed(&entry->retransmitted);
	info->lost = nupa_load_relaxed(&entry->lost);
	info->icrc_errors = nupa_load_relaxed(&entry->icrc_errors);
	info->malformed = nupa_load_relaxed(&entry->malformed);
	info->foreign = nupa_load_relaxed(&entry->foreign);
	info->refused = nupa_load_relaxed(&entry->refused);
	info->ecn_marked = nupa_load_relaxed(&entry->ecn_marked);
	info->cnp_sent = nupa_load_relaxed(&entry->cnp_sent);
	info->cnp_handled = nupa_load_relaxed(&entry->cnp_handled);
}

static bool fill(const struct nupa_fabric *fabric, uint32_t index, struct nupa_wire_info *info)
{
	const struct nupa_wire_entry *entry = &fabric->sb->wires[index];
	const uint32_t state = nupa_load_relaxed(&entry->state);
	const uint32_t medium = nupa_load_relaxed(&entry->medium);

	memset(info, 0, sizeof(*info));
	info->index = index;
	info->host = (nupa_load_acquire(&entry->host) - 1);
	if (info->host >= fabric->geometry.n_hosts || !nupa_wire_remote(entry, info->remote) ||
	    !nupa_wire_near(entry, info->local))
		return false;
	info->slot = nupa_load_relaxed(&entry->slot);
	info->epoch = nupa_load_relaxed(&entry->epoch);
	info->state = state < NUPA_WIRE_STATES ? state : NUPA_WIRE_NONE;
	info->medium = medium < NUPA_WIRE_MEDIA ? medium : NUPA_WIRE_UDP;
	info->mtu_bytes = nupa_wire_mtu_bytes(entry);
	info->flags = nupa_load_relaxed(&entry->flags);
	memcpy(info->socket, entry->socket, sizeof(info->socket) - 1);
	info->kept = nupa_wire_kept(fabric, entry);
	info->error = nupa_load_relaxed(&entry->error);
	fill_counts(entry, info);
	return true;
}

uint32_t nupa_wire_list(const struct nupa_fabric *fabric, struct nupa_wire_info *out, uint32_t max)
{
	struct nupa_wire_info info;
	uint32_t n = 0;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		if (!fill(fabric, i, &info))
			continue;
		if (n < max)
			out[n] = info;
		n++;
	}
	return n;
}

/* --- changing ------------------------------------------------------------------------ */

static int check_host(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
		      size_t why_bytes)
{
	const char *name;

	if (wire->host >= fabric->geometry.n_hosts)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no host %u: fabric %s has %u", wire->host,
				    nupa_fabric_name(fabric), fabric->geometry.n_hosts);
	name = fabric->hosts[wire->host].name;
	if (fabric->hosts[wire->host].link_layer != NUPA_LINK_ETHERNET)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "host %s has an InfiniBand port, a wire speaks RoCE: choose a "
				    "host with link_layer = \"ethernet\"",
				    name);
	for (uint32_t slot = 1; slot < fabric->geometry.n_slots; slot++) {
		const uint64_t claim = nupa_slot_claim(&fabric->slots[slot]);

		if (slot != wire->slot && NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
		    nupa_load_relaxed(&fabric->slots[slot].host) == wire->host &&
		    nupa_slot_alive(fabric, slot, claim))
			return nupa_explain(-EBUSY, why, why_bytes,
					    "host %s is in use by %.16s (pid %u): a wire needs a "
					    "host without processes, so end it or choose another "
					    "host",
					    name, fabric->slots[slot].comm, NUPA_CLAIM_PID(claim));
	}
	return 0;
}

static int check_values(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
			size_t why_bytes)
{
	static const uint8_t none[16];
	const union ibv_gid *remote = (const union ibv_gid *)(const void *)wire->remote;
	int host;

	if (wire->medium >= NUPA_WIRE_MEDIA || wire->state >= NUPA_WIRE_STATES)
		return nupa_explain(-EINVAL, why, why_bytes, "no wire has medium %u and state %u",
				    wire->medium, wire->state);
	if (!nupa_wire_is_mtu(wire->mtu_bytes))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "an MTU of %u bytes: RoCE has 256, 512, 1024, 2048 and 4096",
				    wire->mtu_bytes);
	if (!memchr(wire->socket, 0, sizeof(wire->socket)))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "the path of the keeper's socket has %zu bytes or more",
				    sizeof(wire->socket));
	if (!memcmp(wire->remote, none, 16) || !memcmp(wire->local, none, 16) ||
	    !memcmp(wire->remote, wire->local, 16))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "a wire leads from one address to another one");
	host = nupa_host_of_gid(fabric, remote);
	if (host < 0)
		return 0;
	return nupa_explain(-EEXIST, why, why_bytes, "the address is that of host %s already",
			    fabric->hosts[host].name);
}

/* Whether the entry is of no keeper, and that of this wire: its host is lost until it has one. */
static bool awaits(const struct nupa_fabric *fabric, const struct nupa_wire_entry *entry,
		   const struct nupa_wire_info *wire)
{
	return nupa_wire_taken(fabric, entry) && !nupa_wire_kept(fabric, entry) &&
	       nupa_load_acquire(&entry->host) - 1 == wire->host &&
	       !memcmp(entry->remote, wire->remote, sizeof(entry->remote)) &&
	       !memcmp(entry->local, wire->local, sizeof(entry->local));
}

/* Takes away other entries of dead keepers that the new one takes the place of: those of its host
 * and of its address, and if the table is full, all. */
static void clear_dead(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, bool all)
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		struct nupa_wire_entry *entry = &fabric->sb->wires[i];

		if (nupa_wire_taken(fabric, entry) && !nupa_wire_kept(fabric, entry) &&
		    !awaits(fabric, entry, wire) &&
		    (all || (nupa_load_acquire(&entry->host) - 1) == wire->host ||
		     !memcmp(entry->remote, wire->remote, sizeof(entry->remote))))
			nupa_store_release(&entry->host, 0);
	}
}

/* The entry that awaits the wire, or one that is free. */
static struct nupa_wire_entry *find_place(struct nupa_fabric *fabric,
					  const struct nupa_wire_info *wire)
{
	struct nupa_wire_entry *found = NULL;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		struct nupa_wire_entry *entry = &fabric->sb->wires[i];

		if (awaits(fabric, entry, wire))
			return entry;
		if (!found && !nupa_wire_taken(fabric, entry))
			found = entry;
	}
	return found;
}

/* Whether the local address is one of the GIDs, or may become one. */
static bool has_gid(const struct nupa_fabric *fabric, const uint8_t local[16])
{
	uint8_t found[NUPA_WIRE_LOCALS_MAX][16];
	const uint32_t n = nupa_wire_locals(fabric, found);

	for (uint32_t i = 0; i < n; i++)
		if (!memcmp(found[i], local, sizeof(found[i])))
			return true;
	return n < NUPA_WIRE_LOCALS_MAX;
}

/* Word by word, but for `epoch` and `host`: others look at entries that are free or await a keeper.
 */
static void store(struct nupa_wire_entry *entry, const struct nupa_wire_info *wire)
{
	struct nupa_wire_entry made = { .slot = wire->slot,
					.epoch = wire->epoch,
					.state = wire->state,
					.medium = wire->medium,
					.mtu_bytes = wire->mtu_bytes,
					.flags = wire->flags };
	uint32_t words[sizeof(made) / sizeof(uint32_t)];

	memcpy(made.remote, wire->remote, sizeof(made.remote));
	memcpy(made.local, wire->local, sizeof(made.local));
	memcpy(made.socket, wire->socket, sizeof(made.socket));
	memcpy(words, &made, sizeof(words));
	for (uint32_t i = 1; i < sizeof(words) / sizeof(words[0]); i++)
		if (i != offsetof(struct nupa_wire_entry, epoch) / sizeof(words[0]))
			nupa_store_relaxed((uint32_t *)(void *)entry + i, words[i]);
	nupa_store_release(&entry->epoch, wire->epoch);
	nupa_store_release(&entry->host, wire->host + 1);
}

static int check_room(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
		      size_t why_bytes)
{
	if (!find_place(fabric, wire) || !has_gid(fabric, wire->local))
		clear_dead(fabric, wire, true);
	if (!find_place(fabric, wire))
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "fabric %s has %u wires, as many as it can: remove one",
				    nupa_fabric_name(fabric), NUPA_WIRES_MAX);
	if (!has_gid(fabric, wire->local))
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "wires of fabric %s have %u local addresses, as many as it "
				    "can: choose one of them with --listen",
				    nupa_fabric_name(fabric), NUPA_WIRE_LOCALS_MAX);
	return 0;
}

static int check(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
		 size_t why_bytes)
{
	int error = nupa_fabric_may_command(fabric, "wires", why, why_bytes);

	if (!error && wire->host < fabric->geometry.n_hosts) {
		clear_dead(fabric, wire, false);
		if (nupa_wire_of_host(fabric, wire->host) >= 0)
			return nupa_explain(-EEXIST, why, why_bytes,
					    "host %s is a wire already: `nupa wire remove %s` ends "
					    "it",
					    fabric->hosts[wire->host].name,
					    fabric->hosts[wire->host].name);
	}
	if (!error)
		error = check_host(fabric, wire, why, why_bytes);
	if (!error)
		error = check_values(fabric, wire, why, why_bytes);
	return error ? error : check_room(fabric, wire, why, why_bytes);
}

int nupa_wire_add(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
		  size_t why_bytes)
{
	struct nupa_wire_entry *entry;
	const int error = check(fabric, wire, why, why_bytes);

	if (error)
		return error;
	entry = find_place(fabric, wire);
	store(entry, wire);
	nupa_fabric_announce(fabric);
	return (int)(entry - fabric->sb->wires);
}

int nupa_wire_reserve(struct nupa_fabric *fabric, const struct nupa_wire_info *wire, char *why,
		      size_t why_bytes)
{
	struct nupa_wire_info nobodys = *wire;

	nobodys.slot = nobodys.epoch = 0;
	return nupa_wire_add(fabric, &nobodys, why, why_bytes);
}

int nupa_wire_remove(struct nupa_fabric *fabric, uint32_t index)
{
	if (index >= NUPA_WIRES_MAX || !nupa_wire_taken(fabric, &fabric->sb->wires[index]))
		return -ENOENT;
	nupa_store_release(&fabric->sb->wires[index].host, 0);
	nupa_fabric_announce(fabric);
	return 0;
}
