/* SPDX-License-Identifier: BSD-3-Clause
 * Connections by rdma_cm: a message, its echo, and the end.  Peers may die at any moment; each
 * connection must then end by an event or a completion. */
#include "soak.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#define DIALS 8u
#define MESSAGE_BYTES 4096u
#define RESOLVE_MS 2000
/* Longer than any worker is stopped, and than the QP's timeout. */
#define HANG_NS UINT64_C(20000000000)
/* An outage takes away repetitions, which come 4.3 s apart. */
#define NETWORK_HANG_NS UINT64_C(40000000000)

struct message {
	uint64_t seed;
	uint8_t bytes[MESSAGE_BYTES - 8];
};

struct dial {
	struct rdma_cm_id *id; /* NULL: free */
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct message *messages; /* to receive, to send */
	uint64_t seed, since_ns;
	bool active;
	bool over; /* destroyed at the next turn */
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct dial dials[DIALS];

static struct dial *take(struct rdma_cm_id *id, bool active)
{
	for (uint32_t i = 0; i < DIALS; i++) {
		if (dials[i].id)
			continue;
		dials[i] = (struct dial){ .id = id, .since_ns = clock_ns(), .active = active };
		id->context = &dials[i];
		return &dials[i];
	}
	return NULL;
}

static void destroy(struct dial *dial)
{
	if (dial->id->qp)
		rdma_destroy_qp(dial->id);
	if (dial->mr)
		until_free(dereg, dial->mr, "ibv_dereg_mr of a dial");
	if ((dial->cq && ibv_destroy_cq(dial->cq)) || (dial->pd && ibv_dealloc_pd(dial->pd)) ||
	    rdma_destroy_id(dial->id))
		wrong("what a dial had could not be destroyed");
	free(dial->messages);
	*dial = (struct dial){ 0 };
}

/* --- a connection's QP ----------------------------------------------------------------------- */

static void make_qp(struct dial *dial)
{
	struct ibv_qp_init_attr init = {
		.cap = { 2, 2, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_context *context = dial->id->verbs;

	dial->messages = calloc(2, sizeof(*dial->messages));
	must(dial->messages, "a dial's messages");
	dial->pd = ibv_alloc_pd(context);
	dial->cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	must(dial->pd && dial->cq, "a dial's PD and CQ");
	dial->mr = ibv_reg_mr(dial->pd, dial->messages, 2 * sizeof(*dial->messages),
			      IBV_ACCESS_LOCAL_WRITE);
	must(dial->mr, "a dial's ibv_reg_mr");
	init.send_cq = init.recv_cq = dial->cq;
	must(rdma_create_qp(dial->id, dial->pd, &init) == 0, "rdma_create_qp");
}

static void post_recv(struct dial *dial)
{
	struct ibv_sge sge = { (uintptr_t)&dial->messages[0], MESSAGE_BYTES, dial->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	if (ibv_post_recv(dial->id->qp, &wr, &bad))
		give_up("ibv_post_recv of a dial failed");
}

static void send_message(struct dial *dial, uint64_t seed)
{
	struct ibv_sge sge = { (uintptr_t)&dial->messages[1], MESSAGE_BYTES, dial->mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	dial->messages[1].seed = seed;
	pattern_fill(dial->messages[1].bytes, sizeof(dial->messages[1].bytes), seed, 0);
	if (ibv_post_send(dial->id->qp, &wr, &bad))
		dial->over = true; /* it is in error: the peer has ended */
}

static struct rdma_conn_param parameters(void)
{
	return (struct rdma_conn_param){
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

/* --- events ---------------------------------------------------------------------------------- */

static void answer(struct rdma_cm_id *id)
{
	struct rdma_conn_param parameter = parameters();
	struct dial *dial = take(id, false);

	if (!dial) {
		/* Either may fail if the peer has ended. */
		(void)rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return;
	}
	make_qp(dial);
	post_recv(dial);
	if (rdma_accept(id, &parameter))
		dial->over = true;
}

static void advance(struct dial *dial, enum rdma_cm_event_type type)
{
	struct rdma_conn_param parameter = parameters();

	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(dial->id, RESOLVE_MS))
			dial->over = true;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(dial);
		post_recv(dial);
		if (rdma_connect(dial->id, &parameter))
			dial->over = true;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (dial->active)
			send_message(dial, dial->seed);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default: /* DISCONNECTED, or any of the errors */
		dial->over = true;
	}
}

static void hear_events(void)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(channel, &event) == 0) {
		enum rdma_cm_event_type type = event->event;
		struct rdma_cm_id *id = event->id;

		rdma_ack_cm_event(event);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			answer(id);
		else if (id != listener)
			advance(id->context, type);
	}
}

/* --- completions ----------------------------------------------------------------------------- */

static void received(struct dial *dial, uint32_t bytes)
{
	const struct message *message = &dial->messages[0];
	uint64_t seed = dial->active ? dial->seed + 1 : message->seed;

	if (bytes != MESSAGE_BYTES || message->seed != seed ||
	    pattern_match(message->bytes, sizeof(message->bytes), seed, 0) !=
		sizeof(message->bytes))
		wrong("%s of %u bytes by rdma_cm is not what was sent",
		      dial->active ? "an echo" : "a message", bytes);
	board->operations++;
	board->bytes += bytes;
	if (!dial->active) {
		send_message(dial, seed + 1);
		return;
	}
	board->dials++;
	(void)rdma_disconnect(dial->id); /* EINVAL: the peer did before */
	dial->over = true;
}

static void poll_dial(struct dial *dial)
{
	struct ibv_wc wc;

	while (dial->cq && !dial->over && ibv_poll_cq(dial->cq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			dial->over = true;
		else if (wc.opcode == IBV_WC_RECV)
			received(dial, wc.byte_len);
	}
	if (dial->over ||
	    clock_ns() - dial->since_ns < (worker.network ? NETWORK_HANG_NS : HANG_NS))
		return;
	dial->over = true;
	if (worker.network) {
		/* Nothing tells of a death once a keeper has died; the director knows whether one
		 * has. */
		board->untold++;
		tell("untold");
	} else {
		wrong("%s by rdma_cm hangs", dial->active ? "a connection" : "an answer");
	}
}

void dials_turn(void)
{
	hear_events();
	for (uint32_t i = 0; i < DIALS; i++) {
		if (!dials[i].id)
			continue;
		poll_dial(&dials[i]);
		if (dials[i].over)
			destroy(&dials[i]);
	}
}

/* --- beginning and end ----------------------------------------------------------------------- */

void dials_begin(const char *address, unsigned int port, uint64_t seed)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct rdma_cm_id *id;
	struct dial *dial;

	must(inet_pton(AF_INET, address, &to.sin_addr) == 1, address);
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	dial = take(id, true);
	if (!dial) {
		rdma_destroy_id(id);
		return;
	}
	dial->seed = seed;
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS)) {
		must(worker.network, "rdma_resolve_addr");
		dial->over = true;
	}
}

static void start_listening(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	channel = rdma_create_event_channel();
	must(channel, "rdma_create_event_channel");
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	must(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0, "rdma_bind_addr");
	must(rdma_listen(listener, DIALS) == 0, "rdma_listen");
}

static void stop_listening(void)
{
	if (rdma_destroy_id(listener))
		wrong("the listener did not go");
	rdma_destroy_event_channel(channel);
}

void dials_warm_up(void)
{
	start_listening();
	stop_listening();
}

void dials_open(void)
{
	start_listening();
	tell("listens %u", ntohs(rdma_get_src_port(listener)));
}

void dials_close(void)
{
	hear_events();
	for (uint32_t i = 0; i < DIALS; i++)
		if (dials[i].id)
			destroy(&dials[i]);
	stop_listening();
}
