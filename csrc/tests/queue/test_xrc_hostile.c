/* SPDX-License-Identifier: BSD-3-Clause
 * XRC and hostile senders: invalid messages, and more connections than the limit. */
#include "tests/queue/xrc.h"
#include "engine/device/device.h"

#include <string.h>
#include <unistd.h>

/* One message, as a process that stores what it likes into its rings would send it. */
static void attack(struct xrc_sender *attacker, uint32_t slot, const uint32_t *qpns, uint32_t srqn,
		   uint64_t *seed)
{
	struct nupa_engine *engine = nupa_engine_of(attacker->end->context);
	uint64_t random = test_random(seed);
	struct nupa_channel *channel;
	struct nupa_msg *msg = NULL;
	uint32_t index = attacker->qp->qp_num & (NUPA_QP_MAX - 1);

	nupa_engine_lock(engine);
	channel = nupa_channel_get(engine, slot);
	if (channel)
		msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	if (msg) {
		for (uint32_t i = 0; i < sizeof(msg->data); i += 8) {
			uint64_t word = test_random(seed);

			memcpy(msg->data + i, &word, sizeof(word));
		}
		/* A new incarnation of its QP each time: what was refused before is forgotten. */
		engine->qp_entries[index].incarnation = random & 0xff;
		msg->op = (uint8_t)(NUPA_OP_SEND + (random >> 8) % 4);
		msg->flags = (uint8_t)(random >> 16) & (uint8_t) ~(NUPA_F_DMA | NUPA_F_ACK);
		if (random >> 60 < 12)
			msg->flags |= NUPA_F_FIRST | NUPA_F_LAST;
		msg->syndrome = random >> 56 & 7 ? NUPA_XRC_RESYNC : (uint8_t)(random >> 24);
		msg->timer = (uint8_t)(random >> 32);
		msg->dest_qpn = qpns[(random >> 40) % 3];
		msg->src_qpn = attacker->qp->qp_num;
		msg->psn = (uint32_t)(random & 0xff) << 24 | (uint32_t)(random >> 44 & 3);
		msg->ack_psn = random >> 50 & 7 ? srqn : (uint32_t)test_random(seed);
		msg->length_bytes = (uint32_t)(random >> 52 & 63);
		nupa_channel_publish(channel, msg, 0);
	}
	nupa_engine_unlock(engine);
}

/* A refused message ended the target: connects it anew. */
static void revive(struct ibv_qp *target, struct end *peer, uint32_t peer_qpn)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK_EQ(nupa_query_qp(target, &attr, IBV_QP_STATE, &init), 0);
	if (attr.qp_state != IBV_QPS_ERR)
		return;
	attr.qp_state = IBV_QPS_RESET;
	CHECK_EQ(nupa_modify_qp(target, &attr, IBV_QP_STATE), 0);
	xrc_to_rtr(target, peer, peer_qpn);
}

TEST(xrc_messages_of_nonsense_harm_nobody)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	/* Two movers: two attachments of this process to one host. */
	struct xrc_side owner = xrc_side_open(fabric, NUPA_MOVER_RELAY, 1, fd);
	struct xrc_side victim = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender attacker = xrc_sender_open(fabric, NUPA_MOVER_NONE, &owner), honest;
	const uint32_t qpns[] = { owner.target->qp_num, victim.end->qp->qp_num,
				  owner.target->qp_num + 1 };
	uint64_t seed = test_seed();
	struct ibv_qp *attacked = owner.target;
	uint32_t received = 0;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < 10; i++)
		xrc_post_receive(&victim, victim.srq, i);
	for (uint32_t i = 0; i < 20000; i++) {
		revive(attacked, attacker.end, attacker.qp->qp_num);
		attack(&attacker, (i % 3 ? victim.srqn : owner.srqn) >> NUPA_QP_INDEX_BITS, qpns,
		       i % 5 ? victim.srqn : owner.srqn, &seed);
		if (nupa_poll_cq(victim.end->recv_cq, 1, &wc) == 1) {
			xrc_post_receive(&victim, victim.srq, i);
			received++;
		}
		nupa_poll_cq(owner.end->recv_cq, 1, &wc);
	}
	CHECK(received > 0); /* some of it made sense */
	while (nupa_poll_cq(victim.end->recv_cq, 1, &wc) == 1)
		;
	/* Both serve another sender. */
	honest = xrc_sender_open(fabric, NUPA_MOVER_RELAY, &owner);
	xrc_post_receive(&victim, victim.srq, 1);
	pattern_fill(honest.end->memory, 300, 1);
	xrc_post(&honest, IBV_WR_SEND, victim.srqn, 1, 300, 0, 0);
	cq_expect(honest.end->send_cq, 1, IBV_WC_SUCCESS);
	cq_wait(victim.end->recv_cq);
	CHECK_EQ(nupa_destroy_qp(attacked), 0);
	xrc_sender_close(&honest);
	xrc_sender_close(&attacker);
	xrc_side_close(&victim);
	xrc_side_close(&owner);
	close(fd);
	nupa_fabric_put(fabric);
}

/* A message of that QP number, for an SRQ of another process than the target's: taken at once. */
static void knock(struct xrc_sender *attacker, struct xrc_side *victim, uint32_t qpn,
		  uint32_t src_qpn)
{
	struct nupa_engine *engine = nupa_engine_of(attacker->end->context);
	struct nupa_channel *channel;
	struct nupa_msg *msg;
	bool taken = false;
	struct ibv_wc wc;

	nupa_engine_lock(engine);
	channel = nupa_channel_get(engine, victim->srqn >> NUPA_QP_INDEX_BITS);
	CHECK(channel);
	msg = nupa_tx_reserve(&channel->tx, 0, NULL);
	CHECK(msg);
	msg->op = NUPA_OP_SEND;
	msg->flags = NUPA_F_FIRST | NUPA_F_LAST;
	msg->syndrome = NUPA_XRC_RESYNC;
	msg->dest_qpn = qpn;
	msg->src_qpn = src_qpn;
	msg->psn = 0;
	msg->ack_psn = victim->srqn;
	msg->length_bytes = 0;
	nupa_channel_publish(channel, msg, 0);
	nupa_engine_unlock(engine);
	while (!taken) {
		nupa_poll_cq(victim->end->recv_cq, 1, &wc);
		nupa_engine_lock(engine);
		taken = nupa_tx_drained(&channel->tx);
		nupa_engine_unlock(engine);
	}
}

TEST(more_connections_than_the_limit_come_and_go)
{
	struct nupa_fabric *fabric = test_fabric();
	int fd = xrc_file();
	struct xrc_side owner = xrc_side_open(fabric, NUPA_MOVER_RELAY, 1, fd);
	struct xrc_side victim = xrc_side_open(fabric, NUPA_MOVER_NONE, 1, fd);
	struct xrc_sender attacker = xrc_sender_open(fabric, NUPA_MOVER_NONE, &owner);
	struct nupa_engine *engine = nupa_engine_of(owner.end->context);
	struct nupa_qp_entry *entry = &engine->qp_entries[owner.target->qp_num & (NUPA_QP_MAX - 1)];
	uint32_t slot = attacker.qp->qp_num & ~(NUPA_QP_MAX - 1);

	for (uint32_t i = 0; i <= NUPA_XRC_SHADOWS_MAX; i++) {
		/* The target says that it is connected to this one now. */
		nupa_store_relaxed(&entry->dest_qpn, slot | i);
		knock(&attacker, &victim, owner.target->qp_num, slot | i);
	}
	nupa_store_relaxed(&entry->dest_qpn, attacker.qp->qp_num);
	xrc_post_receive(&victim, victim.srq, 1);
	pattern_fill(attacker.end->memory, 300, 1);
	xrc_post(&attacker, IBV_WR_SEND_WITH_IMM, victim.srqn, 1, 300, 0, 0);
	cq_expect(attacker.end->send_cq, 1, IBV_WC_SUCCESS);
	xrc_check_receive(&victim, 1, &attacker, owner.target->qp_num, 300);
	xrc_sender_close(&attacker);
	xrc_side_close(&victim);
	xrc_side_close(&owner);
	close(fd);
	nupa_fabric_put(fabric);
}
