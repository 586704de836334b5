/* SPDX-License-Identifier: BSD-3-Clause
 * Messages to and from the host of a wire, as datagrams of QP 1.  They may be lost, be there twice
 * and come late: time.c and repeat.c see to that, as with channels that have faults. */
#include "base/fields.h"
#include "engine/cm/kernel/kernel.h"
#include "engine/cm/wire/message.h"
#include "engine/cm/wire/steer.h"
#include "engine/cm/wire/wire.h"
#include "segment/control/pkey.h"

/* Different for all hosts of all machines: the kernel refuses a QP number that it knows of the same
 * GUID (REJ stale connection), and hosts of different fabrics have equal ones.  FNV-1a; EUI-64 that
 * is administered locally. */
static uint64_t guid_of(const struct cm_way *way, uint64_t owner)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	uint8_t bytes[8];

	for (uint32_t i = 0; i < sizeof(way->local); i++)
		hash = (hash ^ way->local[i]) * UINT64_C(0x100000001b3);
	hash = (hash ^ owner) * UINT64_C(0x100000001b3);
	nupa_be64_put(bytes, hash);
	bytes[0] = (uint8_t)((bytes[0] & ~1u) | 2u);
	return nupa_be64_get(bytes);
}

/* As the kernel's cm_format_rej: what of the dialogue the other end has said last. */
static uint8_t about_of(const struct nupa_cm_id *id)
{
	if (!id || id->state == CM_REQ_RECEIVED)
		return NUPA_CM_ABOUT_REQ;
	return id->state == CM_REP_RECEIVED ? NUPA_CM_ABOUT_REP : NUPA_CM_ABOUT_OTHER;
}

static void ends_of(struct nupa_cm_id *id, const struct cm_way *way, struct cm_ends *ends)
{
	ends->local_id = cm_number(id);
	/* One transaction from the request to the end, which its sender has named. */
	if (!id->far.transaction)
		id->far.transaction = id->far.number;
	ends->transaction = id->far.transaction;
	ends->remote_qpn = id->remote_qpn;
	if (!id->far.path_mtu)
		id->far.path_mtu = way->mtu;
	ends->path_mtu = id->far.path_mtu;
	ends->ack_timeout = id->ack_timeout_set ? id->ack_timeout : CM_WIRE_QP_TIMEOUT;
}

bool cm_mad_to(struct nupa_cm_id *id, const struct cm_way *way, uint64_t owner,
	       enum cm_message message, uint8_t reason, uint32_t to, const struct cm_wire *wire,
	       uint8_t bytes[NUPA_CM_MAD_BYTES])
{
	struct cm_ends ends = { .remote_id = to, .about = NUPA_CM_ABOUT_REQ };
	struct nupa_cm_mad mad;
	struct cm_wire sent;

	ends.ca_guid = guid_of(way, owner);
	memcpy(ends.local_gid, way->local, sizeof(ends.local_gid));
	memcpy(ends.remote_gid, way->remote, sizeof(ends.remote_gid));
	if (id) {
		ends_of(id, way, &ends);
		/* A rejection that is repeated is about the same message. */
		if (message == CM_REJ && id->state != CM_CLOSED && id->state != CM_REJ_SENT)
			id->far.about = about_of(id);
		ends.about = id->far.about;
		if (!ends.local_id)
			return false;
	}
	if (wire) {
		sent = *wire;
		if (message == CM_REQ || message == CM_SIDR_REQ)
			cm_wire_addresses(way, &sent);
	}
	cm_mad_of(message, reason, wire ? &sent : NULL, &ends, &mad);
	nupa_cm_mad_write(&mad, bytes);
	return true;
}

bool cm_wire_send(struct nupa_engine *engine, const struct nupa_channel *channel,
		  struct nupa_cm_id *id, enum cm_message message, uint8_t reason, uint32_t to,
		  const struct cm_wire *wire)
{
	uint8_t bytes[NUPA_CM_MAD_BYTES];
	struct cm_way way;
	int pkey;

	if (!channel->wired)
		return false;
	if (!cm_way_to(engine->fabric, channel->peer_host, &way) || way.slot != channel->peer)
		return true; /* its keeper is gone, and the channel will be */
	if (!cm_mad_to(id, &way, engine->host, message, reason, to, wire, bytes))
		return true; /* lost */
	pkey = nupa_pkey_shared(engine->fabric, engine->host, channel->peer_host);
	if (pkey >= 0 && nupa_path_up(engine, channel->peer_host))
		engine->ops->send_mad(engine, way.index,
				      nupa_pkey_at(engine->fabric, engine->host, (uint32_t)pkey),
				      bytes);
	return true;
}

/* Any process may count there. */
static void count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* --- in ------------------------------------------------------------------------------ */

/* Of an id that is not there, or no longer. */
static void answer_unknown(struct nupa_engine *engine, uint32_t wire, uint32_t host,
			   const uint8_t *mad, uint32_t bytes)
{
	uint8_t answer[NUPA_CM_MAD_BYTES];
	const int pkey = nupa_pkey_shared(engine->fabric, engine->host, host);

	if (pkey >= 0 && nupa_cm_refuse(mad, bytes, answer))
		engine->ops->send_mad(engine, wire,
				      nupa_pkey_at(engine->fabric, engine->host, (uint32_t)pkey),
				      answer);
}

/* Whether a message may be one to this id: it names QPs that there are. */
static bool fits(const struct nupa_cm_id *id, const struct nupa_cm_mad *mad)
{
	switch (mad->attribute) {
	case NUPA_CM_REP:
		return mad->qpn > 1 || mad->eecn > 1;
	case NUPA_CM_DREQ:
		return !id->qpn || mad->qpn == id->qpn;
	case NUPA_CM_SIDR_REP:
		return mad->status != CM_SIDR_OK || mad->qpn > 1;
	default:
		return true;
	}
}

enum cm_taken cm_take_mad(struct nupa_engine *engine, struct nupa_channel *channel,
			  const struct nupa_cm_mad *mad, bool near)
{
	struct nupa_msg msg = { .op = NUPA_OP_CM, .src_qpn = mad->local_id };
	struct nupa_cm_id *id;
	struct cm_wire wire;

	msg.syndrome = (uint8_t)cm_message_of(mad, &msg.timer, &wire);
	if (!msg.syndrome)
		return CM_TAKEN;
	if (near)
		wire.dst_kind = (uint8_t)cm_kernel_kind(&wire);
	if (msg.syndrome != CM_REQ && msg.syndrome != CM_SIDR_REQ && mad->remote_id) {
		id = cm_number_find(engine->cm, mad->remote_id);
		/* An end that has said its number says it always. */
		if (!id || id->peer != channel || (id->remote && id->remote != mad->local_id))
			return CM_UNKNOWN;
		if (!fits(id, mad))
			return CM_UNFIT;
		msg.dest_qpn = id->local;
	}
	cm_handle(engine, channel, &msg, &wire);
	return CM_TAKEN;
}

void nupa_cm_receive_mad(struct nupa_engine *engine, uint32_t index, const uint8_t *mad,
			 uint32_t bytes, const uint8_t source[16])
{
	struct nupa_wire_entry *entry = nupa_wire_at(engine->fabric, index);
	struct nupa_channel *channel;
	struct nupa_cm_mad read;
	struct cm_way way;
	uint32_t host;

	if (!entry)
		return;
	host = nupa_load_acquire(&entry->host) - 1;
	if (host >= engine->fabric->geometry.n_hosts || !cm_way_to(engine->fabric, host, &way) ||
	    way.index != index)
		return;
	if (memcmp(way.remote, source, sizeof(way.remote)) != 0) {
		count(&entry->foreign);
		return;
	}
	if (!nupa_cm_mad_read(mad, bytes, &read)) {
		count(&entry->malformed);
		return;
	}
	channel = cm_of(engine) ? nupa_channel_get(engine, way.slot) : NULL;
	if (!channel)
		return; /* lost, as on a network */
	switch (cm_take_mad(engine, channel, &read, false)) {
	case CM_UNKNOWN:
		answer_unknown(engine, index, host, mad, bytes);
		break;
	case CM_UNFIT:
		count(&entry->malformed);
		break;
	default:
		break;
	}
}
