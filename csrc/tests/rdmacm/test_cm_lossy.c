/* SPDX-License-Identifier: BSD-3-Clause
 * Connection management over a wire whose messages are lost, late, or there twice. */
#include "engine/cm/internal.h"
#include "tests/rdmacm/dialogue.h"
#include "tests/support/end.h"

#include <string.h>

#define TRIES 16u /* IBTA 12.7.27: a first one and Max CM Retries */

/* The first message of one kind is lost. */
static uint32_t first_is_lost(struct net *net, int from, const struct nupa_cm_mad *mad)
{
	return mad->attribute == net->arg && net->sent[from][mad->attribute] == 1 ? 0 : 1;
}

static uint32_t all_come_twice(struct net *net, int from, const struct nupa_cm_mad *mad)
{
	(void)net, (void)from, (void)mad;
	return 2;
}

static void lose_first(struct net *net, enum nupa_cm_attribute attribute)
{
	pthread_mutex_lock(&net->mutex);
	net->copies = first_is_lost;
	net->arg = attribute;
	pthread_mutex_unlock(&net->mutex);
}

TEST(a_message_that_is_lost_is_sent_again)
{
	static const enum nupa_cm_attribute kinds[] = { NUPA_CM_REQ, NUPA_CM_REP, NUPA_CM_RTU,
							NUPA_CM_DREQ, NUPA_CM_DREP };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const enum nupa_cm_attribute lost = kinds[i];
		struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

		lose_first(s.net, lost);
		dialogue_ask(&s, "");
		if (lost == NUPA_CM_REQ)
			dialogue_pass(&s, CM_RESPONSE_NS);
		dialogue_hear(&s);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		if (lost == NUPA_CM_REP)
			dialogue_pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		if (lost == NUPA_CM_RTU)
			dialogue_pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(dialogue_passive(&s), s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
		CHECK_EQ(rdma_disconnect(s.client), 0);
		if (lost == NUPA_CM_DREQ || lost == NUPA_CM_DREP)
			dialogue_pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(dialogue_passive(&s), s.server, RDMA_CM_EVENT_DISCONNECTED, 0);
		cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_DISCONNECTED, 0);
		CHECK(net_sent(s.net, lost == NUPA_CM_REP || lost == NUPA_CM_DREP, lost) >= 2);
		dialogue_close(&s);
	}
}

TEST(a_lost_rtu_is_made_up_for_by_the_first_packet)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	lose_first(s.net, NUPA_CM_RTU);
	dialogue_ask(&s, "");
	dialogue_hear(&s);
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	net_settle(s.net);
	cm_expect_none(dialogue_passive(&s));
	CHECK_EQ(rdma_notify(s.server, IBV_EVENT_COMM_EST), 0);
	cm_expect_ack(dialogue_passive(&s), s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
	dialogue_end(&s);
	dialogue_close(&s);
}

TEST(messages_of_datagram_services_that_are_lost_are_sent_again)
{
	static const enum nupa_cm_attribute kinds[] = { NUPA_CM_SIDR_REQ, NUPA_CM_SIDR_REP };

	for (size_t i = 0; i < 2; i++) {
		struct dialogue s = dialogue_open(RDMA_PS_UDP, false, "", NULL);

		lose_first(s.net, kinds[i]);
		dialogue_ask(&s, "");
		if (kinds[i] == NUPA_CM_SIDR_REQ)
			dialogue_pass(&s, CM_RESPONSE_NS);
		dialogue_hear(&s);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		if (kinds[i] == NUPA_CM_SIDR_REP)
			dialogue_pass(&s, CM_RESPONSE_NS);
		cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		net_settle(s.net);
		cm_expect_none(dialogue_passive(&s));
		dialogue_close(&s);
	}
}

TEST(messages_that_come_twice_are_executed_once)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	s.net->copies = all_come_twice;
	dialogue_establish(&s);
	net_settle(s.net);
	cm_expect_none(dialogue_active(&s));
	cm_expect_none(dialogue_passive(&s));
	dialogue_end(&s);
	dialogue_close(&s);
	s = dialogue_open(RDMA_PS_UDP, false, "", NULL);
	s.net->copies = all_come_twice;
	dialogue_ask(&s, "");
	dialogue_hear(&s);
	net_settle(s.net);
	cm_expect_none(dialogue_passive(&s));
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
	net_settle(s.net);
	cm_expect_none(dialogue_active(&s));
	dialogue_close(&s);
}

TEST(a_host_that_does_not_answer_is_unreachable_after_the_last_try)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP };

	for (size_t i = 0; i < 2; i++) {
		struct dialogue s = dialogue_open(spaces[i], false, "", NULL);
		const enum nupa_cm_attribute kind = i ? NUPA_CM_SIDR_REQ : NUPA_CM_REQ;

		s.net->copies = net_lose_all;
		dialogue_ask(&s, "");
		for (uint32_t n = 1; n < TRIES; n++) {
			CHECK_EQ(net_sent(s.net, 0, kind), n);
			cm_pass(&s.net->side[0], CM_RESPONSE_NS);
			cm_expect_none(dialogue_active(&s));
		}
		CHECK_EQ(net_sent(s.net, 0, kind), TRIES);
		cm_pass(&s.net->side[0], CM_RESPONSE_NS);
		cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		CHECK_EQ(net_sent(s.net, 0, kind), TRIES);
		dialogue_close(&s);
	}
}

TEST(the_first_repetitions_come_early)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	s.net->copies = net_lose_all;
	dialogue_ask(&s, "");
	for (uint32_t early = 4, n = 1; early; early--, n++) {
		cm_pass(&s.net->side[0], CM_RESPONSE_NS >> early);
		CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), n + 1);
	}
	cm_pass(&s.net->side[0], CM_RESPONSE_NS >> 1);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), 5);
	dialogue_close(&s);
}

/* IBTA 12.6.6: an MRA says for how long its sender is not to be asked again. */
static void check_patience(struct dialogue *s, int side, enum nupa_cm_attribute attribute,
			   uint8_t service_timeout)
{
	const uint32_t n = net_sent(s->net, side, attribute);

	cm_pass(&s->net->side[side], (UINT64_C(4096) << service_timeout) - 1);
	CHECK_EQ(net_sent(s->net, side, attribute), n);
	cm_expect_none(s->net->side[side].channel);
	cm_pass(&s->net->side[side], 1);
	net_settle(s->net);
}

static void check_acknowledgement(struct dialogue *s, int by, enum nupa_cm_attribute attribute,
				  enum nupa_cm_about about)
{
	struct nupa_cm_mad repeated, mra;

	cm_pass(&s->net->side[1 - by], CM_RESPONSE_NS);
	net_settle(s->net);
	CHECK_EQ(net_sent(s->net, 1 - by, attribute), 2);
	CHECK_EQ(net_sent(s->net, by, NUPA_CM_MRA), 1);
	net_last(s->net, 1 - by, attribute, &repeated);
	net_last(s->net, by, NUPA_CM_MRA, &mra);
	CHECK_EQ(mra.about, about);
	CHECK_EQ(mra.service_timeout, CM_SERVICE_TIMEOUT);
	CHECK_EQ(mra.remote_id, repeated.local_id);
	CHECK_EQ(mra.transaction, repeated.transaction);
	check_patience(s, 1 - by, attribute, CM_SERVICE_TIMEOUT);
	CHECK_EQ(net_sent(s->net, 1 - by, attribute), 3);
	CHECK_EQ(net_sent(s->net, by, NUPA_CM_MRA), 2);
}

TEST(what_comes_again_while_a_program_takes_long_is_acknowledged)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	dialogue_ask(&s, "");
	dialogue_hear(&s);
	check_acknowledgement(&s, 1, NUPA_CM_REQ, NUPA_CM_ABOUT_REQ);
	cm_expect_none(dialogue_passive(&s));
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	net_settle(s.net);
	check_acknowledgement(&s, 0, NUPA_CM_REP, NUPA_CM_ABOUT_REP);
	dialogue_expect_established(&s);
	dialogue_end(&s);
	dialogue_close(&s);
}

TEST(a_rejection_that_was_delayed_is_sent_again)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	dialogue_ask(&s, "");
	dialogue_hear(&s);
	check_acknowledgement(&s, 1, NUPA_CM_REQ, NUPA_CM_ABOUT_REQ);
	lose_first(s.net, NUPA_CM_REJ);
	CHECK_EQ(rdma_reject(s.server, NULL, 0), 0);
	cm_destroy(s.server);
	s.server = NULL;
	net_settle(s.net);
	cm_expect_none(dialogue_active(&s));
	cm_pass(&s.net->side[1], CM_RESPONSE_NS >> 4);
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_REJECTED, CM_REJ_CONSUMER);
	dialogue_close(&s);
}

static void acknowledge(struct dialogue *s, enum nupa_cm_about about, uint8_t service_timeout)
{
	struct nupa_cm_mad req, mra = { .attribute = NUPA_CM_MRA,
					.local_id = 0x4242,
					.about = (uint8_t)about,
					.service_timeout = service_timeout };
	uint8_t bytes[NUPA_CM_MAD_BYTES];

	net_last(s->net, 0, NUPA_CM_REQ, &req);
	mra.remote_id = req.local_id;
	nupa_cm_mad_write(&mra, bytes);
	net_inject(s->net, 0, bytes);
}

TEST(a_requester_waits_as_long_as_an_acknowledgement_says)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);

	s.net->copies = net_lose_all;
	dialogue_ask(&s, "");
	acknowledge(&s, NUPA_CM_ABOUT_REQ, CM_SERVICE_TIMEOUT + 2);
	acknowledge(&s, NUPA_CM_ABOUT_REQ, 1); /* one for each repetition counts */
	check_patience(&s, 0, NUPA_CM_REQ, CM_SERVICE_TIMEOUT + 2);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), 2);
	/* It never waits for less than without: an eighth of the response timeout, this time. */
	acknowledge(&s, NUPA_CM_ABOUT_REQ, 0);
	check_patience(&s, 0, NUPA_CM_REQ, CM_RESPONSE_TIMEOUT - 3);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), 3);
	/* That of another message is none. */
	acknowledge(&s, NUPA_CM_ABOUT_REP, CM_SERVICE_TIMEOUT);
	check_patience(&s, 0, NUPA_CM_REQ, CM_RESPONSE_TIMEOUT - 2);
	for (uint32_t n = 4; n < TRIES; n++) {
		CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), n);
		cm_pass(&s.net->side[0], CM_RESPONSE_NS);
	}
	/* Nor does it give up before. */
	acknowledge(&s, NUPA_CM_ABOUT_REQ, CM_SERVICE_TIMEOUT);
	check_patience(&s, 0, NUPA_CM_REQ, CM_SERVICE_TIMEOUT);
	cm_expect_ack(dialogue_active(&s), s.client, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	CHECK_EQ(net_sent(s.net, 0, NUPA_CM_REQ), TRIES);
	dialogue_close(&s);
}

TEST(a_request_that_is_given_up_ends_at_the_other_end_too)
{
	struct dialogue s = dialogue_open(RDMA_PS_TCP, false, "", NULL);
	struct nupa_cm_mad rej;

	dialogue_ask(&s, "");
	dialogue_hear(&s);
	cm_destroy(s.client);
	s.client = NULL;
	net_settle(s.net);
	net_last(s.net, 0, NUPA_CM_REJ, &rej);
	CHECK_EQ(rej.reason, CM_REJ_TIMEOUT);
	CHECK_EQ(rej.information_bytes, 8);
	/* No id of ours is known there yet, so the keeper cannot say for whom it is. */
	CHECK_EQ(rdma_accept(s.server, NULL), 0);
	cm_expect_ack(dialogue_passive(&s), s.server, RDMA_CM_EVENT_REJECTED, CM_REJ_INVALID_ID);
	dialogue_close(&s);
}
