/* SPDX-License-Identifier: BSD-3-Clause
 * Datagrams of connection management that no host would send: mutations of those that two programs
 * exchange, to both of them.  A reader refuses them or reads what it would write; a connection ends
 * by no datagram that does not name its ids.
 * NUPA_FUZZ_SECONDS is the duration; the seed is printed. */
#include "base/fields.h"
#include "engine/cm/internal.h"
#include "engine/device/device.h"
#include "tests/rdmacm/wire_net.h"

#include <fcntl.h>
#include <string.h>

#define MUTATIONS 200
#define LOCAL_ID 24u /* bytes of the datagram */
#define REMOTE_ID 28u

static const enum nupa_cm_attribute kinds[] = {
	NUPA_CM_REQ,  NUPA_CM_MRA,  NUPA_CM_REJ,      NUPA_CM_REP,      NUPA_CM_RTU,
	NUPA_CM_DREQ, NUPA_CM_DREP, NUPA_CM_SIDR_REQ, NUPA_CM_SIDR_REP,
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct scene {
	struct net *net;
	struct rdma_cm_id *listener, *client, *server;
	uint64_t random;
};

static uint32_t pick(uint64_t *random, uint32_t n)
{
	return (uint32_t)(test_random(random) >> 20) % n;
}

static void mutate(uint64_t *random, uint8_t mad[NUPA_CM_MAD_BYTES])
{
	for (uint32_t n = 1 + pick(random, 4); n; n--) {
		const uint32_t at = pick(random, pick(random, 2) ? NUPA_CM_MAD_BYTES : 64);

		switch (pick(random, 3)) {
		case 0:
			mad[at] ^= (uint8_t)(1u << pick(random, 8));
			break;
		case 1:
			mad[at] = pick(random, 2) ? 0xff : 0;
			break;
		default:
			mad[at] = (uint8_t)test_random(random);
			break;
		}
	}
}

TEST(a_reader_refuses_them_or_reads_what_it_would_write)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(1), random = test_seed();
	uint64_t taken = 0, refused = 0;

	while (test_now_ns() < until_ns) {
		struct nupa_cm_mad mad = { .attribute = (uint16_t)kinds[pick(&random, KINDS)],
					   .local_id = 1 + pick(&random, 1000),
					   .remote_id = 1 + pick(&random, 1000),
					   .service = 0x01060000 | pick(&random, 65536),
					   .ip_version = 4,
					   .path_mtu = 3,
					   .qpn = 17 };
		uint8_t bytes[NUPA_CM_MAD_BYTES], again[NUPA_CM_MAD_BYTES];
		struct nupa_cm_target target;
		struct nupa_cm_mad found, back;

		nupa_cm_mad_write(&mad, bytes);
		mutate(&random, bytes);
		(void)nupa_cm_steer(bytes, sizeof(bytes), &target);
		if (nupa_cm_refuse(bytes, sizeof(bytes), again))
			CHECK(nupa_cm_mad_read(again, sizeof(again), &back) ||
			      nupa_be32_get(bytes + REMOTE_ID) == 0);
		if (!nupa_cm_mad_read(bytes, sizeof(bytes), &found)) {
			refused++;
			continue;
		}
		taken++;
		nupa_cm_mad_write(&found, again);
		CHECK(nupa_cm_mad_read(again, sizeof(again), &back));
		nupa_cm_mad_write(&back, bytes);
		CHECK(!memcmp(bytes, again, sizeof(again)));
	}
	CHECK(taken && refused);
	printf("  %llu taken, %llu refused\n", (unsigned long long)taken,
	       (unsigned long long)refused);
}

/* --- programs ------------------------------------------------------------------------ */

static void answer(struct scene *s, struct rdma_cm_id *child)
{
	struct rdma_conn_param param = { .qp_num = 2 + pick(&s->random, 1000) };

	switch (pick(&s->random, 3)) {
	case 0:
		rdma_accept(child, &param);
		break;
	case 1:
		rdma_reject(child, NULL, 0);
		break;
	default:
		break;
	}
}

/* Requests of forgeries are answered and dropped.  Returns the events of *kept*. */
static uint32_t hear(struct scene *s, int side, const struct rdma_cm_id *kept)
{
	struct rdma_cm_event *event;
	uint32_t of_kept = 0;

	while (rdma_get_cm_event(s->net->side[side].channel, &event) == 0) {
		struct rdma_cm_id *id = event->id;
		const bool child = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;

		CHECK(event->event <= RDMA_CM_EVENT_TIMEWAIT_EXIT);
		of_kept += id == kept;
		CHECK_EQ(rdma_ack_cm_event(event), 0);
		if (child) {
			answer(s, id);
			CHECK_EQ(rdma_destroy_id(id), 0);
		}
	}
	return of_kept;
}

static void set_blocking(struct scene *s, bool blocking)
{
	for (int side = 0; side < 2; side++)
		CHECK_EQ(fcntl(s->net->side[side].channel->fd, F_SETFL, blocking ? 0 : O_NONBLOCK),
			 0);
}

static struct scene scene_open(uint64_t random)
{
	struct scene s = { .net = net_open(false, 1024, 1024), .random = random };

	s.listener = cm_listener(&s.net->side[1], RDMA_PS_TCP, "");
	s.client = cm_id(&s.net->side[0], RDMA_PS_TCP);
	cm_resolve(&s.net->side[0], s.client, "192.0.2.2", cm_port(s.listener));
	return s;
}

static void scene_close(struct scene *s)
{
	set_blocking(s, false);
	net_settle(s->net);
	for (int side = 0; side < 2; side++)
		hear(s, side, NULL);
	if (s->server)
		cm_destroy(s->server);
	cm_destroy(s->client);
	net_settle(s->net);
	hear(s, 1, NULL);
	cm_destroy(s->listener);
	net_settle(s->net);
	net_close(s->net);
}

/* A mutation of what *from* said last; false: it has said nothing of this kind. */
static bool forge(struct scene *s, int from, uint8_t mad[NUPA_CM_MAD_BYTES])
{
	const enum nupa_cm_attribute kind = kinds[pick(&s->random, KINDS)];

	pthread_mutex_lock(&s->net->mutex);
	memcpy(mad, s->net->last[from][kind], NUPA_CM_MAD_BYTES);
	pthread_mutex_unlock(&s->net->mutex);
	if (!mad[0])
		return false;
	if (pick(&s->random, 8) == 0) /* another message with the same ids */
		mad[17] = (uint8_t)kinds[pick(&s->random, KINDS)];
	mutate(&s->random, mad);
	return true;
}

TEST(to_programs_that_connect)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(3), random = test_seed();
	uint64_t lives = 0;

	do {
		struct scene s = scene_open(random);
		struct rdma_conn_param param = { .retry_count = 7, .qp_num = 77 };
		uint8_t mad[NUPA_CM_MAD_BYTES];

		set_blocking(&s, false);
		CHECK_EQ(rdma_connect(s.client, &param), 0);
		for (uint32_t i = 0; i < MUTATIONS; i++) {
			const int to = (int)pick(&s.random, 2);

			if (forge(&s, 1 - to, mad))
				net_inject(s.net, to, mad);
			for (int side = 0; side < 2; side++)
				if (pick(&s.random, 4) == 0)
					hear(&s, side, NULL);
			if (pick(&s.random, 64) == 0)
				rdma_disconnect(s.client);
		}
		random = s.random;
		scene_close(&s);
		lives++;
	} while (test_now_ns() < until_ns);
	printf("  %llu clients\n", (unsigned long long)lives);
}

/* Whether it names the ids of the connection to *to*, or the request that made it. */
static bool names(const struct scene *s, int to, const uint8_t *mad)
{
	const struct nupa_cm_id *id = rdma_private_of(to ? s->server : s->client)->cm;

	return nupa_be32_get(mad + REMOTE_ID) == id->far.number &&
	       nupa_be32_get(mad + LOCAL_ID) == id->remote;
}

TEST(a_connection_survives_all_that_do_not_name_its_ids)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(2), random = test_seed();

	do {
		struct scene s = scene_open(random);
		struct cm_pair pair = { .side = { s.net->side[0], s.net->side[1] } };
		uint8_t mad[NUPA_CM_MAD_BYTES];

		cm_make_qp(&s.net->side[0], s.client);
		CHECK_EQ(rdma_connect(s.client, NULL), 0);
		s.server = NULL;
		{
			struct rdma_cm_event *event =
			    cm_expect(pair.side[1].channel, NULL, RDMA_CM_EVENT_CONNECT_REQUEST, 0);

			s.server = event->id;
			CHECK_EQ(rdma_ack_cm_event(event), 0);
		}
		cm_make_qp(&s.net->side[1], s.server);
		CHECK_EQ(rdma_accept(s.server, NULL), 0);
		cm_expect_ack(pair.side[0].channel, s.client, RDMA_CM_EVENT_ESTABLISHED, 0);
		cm_expect_ack(pair.side[1].channel, s.server, RDMA_CM_EVENT_ESTABLISHED, 0);
		set_blocking(&s, false);
		for (uint32_t i = 0; i < MUTATIONS; i++) {
			const int to = (int)pick(&s.random, 2);

			if (!forge(&s, 1 - to, mad) || names(&s, to, mad))
				continue;
			net_inject(s.net, to, mad);
			CHECK_EQ(hear(&s, 0, s.client), 0);
			CHECK_EQ(hear(&s, 1, s.server), 0);
		}
		CHECK_EQ(rdma_private_of(s.client)->cm->state, CM_ESTABLISHED);
		CHECK_EQ(rdma_private_of(s.server)->cm->state, CM_ESTABLISHED);
		random = s.random;
		scene_close(&s);
	} while (test_now_ns() < until_ns);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
