/* SPDX-License-Identifier: BSD-3-Clause
 * A process's connections with kernels: the messages of its ids as datagrams, and the reverse. */
#include "engine/cm/kernel/kernel.h"
#include "engine/cm/wire/steer.h"
#include "engine/cm/wire/wire.h"
#include "segment/control/pkey.h"

struct nupa_channel *cm_kernel_channel(struct nupa_engine *engine, uint32_t host)
{
	const uint32_t slot = cm_kernel_slot(engine->fabric, host);

	return slot ? nupa_channel_current(engine, slot) : NULL;
}

/* Numbers of ids begin anew with each process. */
static uint64_t owner_of(const struct nupa_engine *engine)
{
	return (uint64_t)engine->slot_index << 32 | engine->epoch;
}

bool cm_kernel_mad(struct nupa_engine *engine, const struct nupa_channel *channel,
		   struct nupa_cm_id *id, const struct nupa_msg *msg, const struct cm_wire *wire,
		   uint8_t mad[NUPA_CM_MAD_BYTES], uint8_t *gid_index)
{
	struct cm_way way = { .slot = channel->peer, .mtu = IBV_MTU_4096 };
	union ibv_gid gid;

	*gid_index = NUPA_GID_IPV4;
	if (id) {
		*gid_index = cm_id_sgid(id, &gid);
		memcpy(way.local, gid.raw, sizeof(way.local));
		cm_id_dgid(id, &gid);
		memcpy(way.remote, gid.raw, sizeof(way.remote));
	}
	return cm_mad_to(id, &way, owner_of(engine), (enum cm_message)msg->syndrome, msg->timer,
			 msg->dest_qpn, wire, mad);
}

bool cm_kernel_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg, const uint8_t *payload)
{
	uint8_t mad[NUPA_CM_MAD_BYTES], answer[NUPA_CM_MAD_BYTES];
	struct nupa_cm_mad read;

	if (!cm_is_kernel(channel))
		return true; /* a lie */
	if (!payload || msg->length_bytes != sizeof(mad))
		return false;
	memcpy(mad, payload, sizeof(mad)); /* the sender may still write to it */
	if (!nupa_cm_mad_read(mad, sizeof(mad), &read)) {
		nupa_count(&engine->hw->rx_invalid, 1);
		return true;
	}
	if (!cm_of(engine))
		return true; /* no memory: lost, as on a network */
	switch (cm_take_mad(engine, channel, &read, true)) {
	case CM_UNKNOWN:
		if (nupa_cm_refuse(mad, sizeof(mad), answer))
			cm_send_mad(engine, channel, answer);
		break;
	case CM_UNFIT:
		nupa_count(&engine->hw->rx_invalid, 1);
		break;
	default:
		break;
	}
	return true;
}
