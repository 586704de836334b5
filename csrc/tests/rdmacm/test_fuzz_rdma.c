/* SPDX-License-Identifier: BSD-3-Clause
 * Random calls of rdma_cm by three attachments and another process, which is killed at random.
 * There are lies in their rings, faults, and ports that go down.  Each requested connection ends
 * with an event, and nothing is left (AddressSanitizer).  NUPA_FUZZ_SECONDS is the duration; the
 * seed is printed. */
#include "tests/support/cm_end.h"
#include "engine/device/device.h"
#include "engine/cm/internal.h"
#include "tests/support/faults.h"
#include "region/region.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIDES 3
#define IDS 12
#define STEPS 300
#define FIRST_PORT 7000

/* A new owner of a slot clears rings that a peer may still read.  The peer then finds that the line
 * is no longer intact (nupa_rx_intact).  To ThreadSanitizer that is a race. */
#ifdef __SANITIZE_THREAD__
#define SLOTS_CHANGE_OWNERS false
#else
#define SLOTS_CHANGE_OWNERS true
#endif

struct ident {
	struct rdma_cm_id *id;
	struct party *party;
	bool asked, answered; /* rdma_connect; an event that says what became of it */
};

struct party {
	struct cm_side side;
	struct rdma_event_channel *other; /* side.channel is the first */
	struct ident ids[IDS];
};

struct scene {
	struct nupa_fabric *fabric;
	struct party parties[SIDES];
	uint32_t n_parties;
	uint64_t random;
	uint64_t connections, lies;
};

static uint32_t pick(struct scene *s, uint32_t n)
{
	return (uint32_t)(test_random(&s->random) >> 20) % n;
}

static struct nupa_engine *engine_of(const struct party *party)
{
	return nupa_engine_of(party->side.context);
}

/* --- parties ------------------------------------------------------------------------- */

static struct rdma_event_channel *open_channel(void)
{
	struct rdma_event_channel *channel = rdma_channel_open();

	CHECK(channel);
	CHECK_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	return channel;
}

static void open_party(struct scene *s, uint32_t n, int host)
{
	struct party *party = &s->parties[n];
	char why[256] = "";

	memset(party, 0, sizeof(*party));
	/* By another mover: an attachment of its own on the same host. */
	party->side.context = nupa_open_host(
	    s->fabric, host, n < 2 ? NUPA_MOVER_NONE : NUPA_MOVER_RELAY, why, sizeof(why));
	CHECK(party->side.context);
	party->side.pd = nupa_alloc_pd(party->side.context);
	party->side.cq = nupa_create_cq(party->side.context, 256, NULL, NULL, 0);
	party->side.channel = open_channel();
	party->other = open_channel();
	CHECK(party->side.pd && party->side.cq);
}

static void drop(struct ident *ident)
{
	if (ident->id)
		cm_destroy(ident->id);
	memset(ident, 0, sizeof(*ident));
}

static void close_party(struct party *party)
{
	for (uint32_t i = 0; i < IDS; i++)
		drop(&party->ids[i]);
	rdma_destroy_event_channel(party->other);
	cm_side_close(&party->side);
}

static struct ident *free_ident(struct party *party)
{
	for (uint32_t i = 0; i < IDS; i++)
		if (!party->ids[i].id)
			return &party->ids[i];
	return NULL;
}

static struct rdma_event_channel *any_channel(struct scene *s, struct party *party)
{
	return pick(s, 2) ? party->side.channel : party->other;
}

/* --- ids ----------------------------------------------------------------------------- */

static void make_id(struct scene *s, struct party *party)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_UDP,
						       RDMA_PS_IB };
	const enum rdma_port_space ps = spaces[pick(s, 4)];
	struct ident *ident = free_ident(party);
	struct sockaddr_storage addr;

	if (!ident)
		return;
	CHECK_EQ(rdma_create_id_on(party->side.context, any_channel(s, party), &ident->id, ident,
				   ps, ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC),
		 0);
	ident->party = party;
	if (pick(s, 3) == 0) {
		if (cm_bind(ident->id, "", (uint16_t)(FIRST_PORT + pick(s, 4))) == 0)
			(void)rdma_listen(ident->id, (int)pick(s, 4));
		return;
	}
	cm_addr(&addr, pick(s, 2) ? "10.0.0.1" : "10.0.0.2", (uint16_t)(FIRST_PORT + pick(s, 4)));
	(void)rdma_resolve_addr(ident->id, NULL, (struct sockaddr *)(void *)&addr, 100);
}

static void make_qp(struct scene *s, struct party *party, struct rdma_cm_id *id)
{
	if (!id->qp && id->verbs && pick(s, 8))
		cm_make_qp(&party->side, id);
}

static struct rdma_conn_param param_of(struct scene *s)
{
	static const uint8_t data[256];

	return (struct rdma_conn_param){
		.qp_num = pick(s, 1000),
		.private_data = data,
		.private_data_len = (uint8_t)(pick(s, 8) ? pick(s, 40) : pick(s, 256)),
		.retry_count = 7,
		.rnr_retry_count = 7,
		.responder_resources = (uint8_t)pick(s, 4),
		.initiator_depth = (uint8_t)pick(s, 4),
	};
}

static void use(struct scene *s, struct ident *ident)
{
	struct rdma_conn_param param = param_of(s);
	struct rdma_cm_id *id = ident->id;

	switch (pick(s, 8)) {
	case 0:
	case 1:
		make_qp(s, ident->party, id);
		(void)rdma_accept(id, &param);
		break;
	case 2:
		ident->answered |= rdma_reject(id, "no", 2) == 0; /* by itself */
		break;
	case 3:
		if (id->qp)
			(void)rdma_disconnect(id);
		break;
	case 4:
		(void)rdma_notify(id, IBV_EVENT_COMM_EST);
		break;
	case 5:
		(void)rdma_establish(id);
		break;
	case 6:
		if (id->qp)
			rdma_destroy_qp(id);
		break;
	default:
		CHECK_EQ(rdma_migrate_id(id, any_channel(s, ident->party)), 0);
		break;
	}
}

static void connect_id(struct scene *s, struct ident *ident)
{
	struct rdma_conn_param param = param_of(s);

	make_qp(s, ident->party, ident->id);
	if (rdma_connect(ident->id, &param) == 0) {
		ident->asked = true;
		s->connections++;
	}
}

/* As programs do; the child of a request is taken over if there is room. */
static void answer(struct scene *s, struct party *party, struct rdma_cm_id *child)
{
	struct ident *ident = free_ident(party);

	if (!ident || pick(s, 8) == 0) {
		CHECK_EQ(rdma_destroy_id(child), 0);
		return;
	}
	ident->id = child;
	ident->party = party;
	child->context = ident;
	if (pick(s, 4)) {
		make_qp(s, party, child);
		(void)rdma_accept(child, &(struct rdma_conn_param){ .retry_count = 7 });
	}
}

static bool hear(struct scene *s, struct party *party, struct rdma_event_channel *channel)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(channel, &event)) {
		CHECK_EQ(errno, EAGAIN);
		return false;
	}
	id = event->id;
	type = event->event;
	CHECK(type <= RDMA_CM_EVENT_TIMEWAIT_EXIT);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		answer(s, party, id);
		return true;
	}
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED)
		(void)rdma_resolve_route(id, 100);
	else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED)
		connect_id(s, id->context);
	else
		((struct ident *)id->context)->answered = true;
	return true;
}

static void act(struct scene *s, struct party *party)
{
	struct ident *ident = &party->ids[pick(s, IDS)];

	switch (pick(s, 8)) {
	case 0:
	case 1:
		make_id(s, party);
		break;
	case 2:
		if (ident->id)
			use(s, ident);
		break;
	case 3:
		if (pick(s, 3) == 0)
			drop(ident);
		break;
	default:
		(void)hear(s, party, any_channel(s, party));
		break;
	}
}

/* --- events -------------------------------------------------------------------------- */

/* Anything at all, often about ids that there are. */
static void lie(struct scene *s, const struct party *from, const struct party *to)
{
	const struct ident *ident = &to->ids[pick(s, IDS)], *own = &from->ids[pick(s, IDS)];
	const uint32_t bytes = pick(s, 4) ? (uint32_t)sizeof(struct cm_wire) : 0;
	struct nupa_engine *engine = engine_of(from);
	struct nupa_channel *channel;
	struct cm_wire wire = { .ps = RDMA_PS_TCP, .family = AF_INET, .qp_type = IBV_QPT_RC };
	struct nupa_msg *msg = NULL;
	uint8_t *payload = NULL;

	for (uint32_t i = 0; i < sizeof(wire) / 4; i++) {
		const uint32_t word = (uint32_t)test_random(&s->random);

		if (pick(s, 8) == 0)
			memcpy((uint8_t *)&wire + i * 4, &word, sizeof(word));
	}
	wire.dst_port = (uint16_t)(FIRST_PORT + pick(s, 4));
	if (pick(s, 64)) { /* or its channel is closed */
		wire.family = pick(s, 2) ? AF_INET : AF_INET6;
		wire.dst_kind = (uint8_t)pick(s, CM_ADDR_KINDS);
		wire.param.private_bytes %= NUPA_CM_PRIVATE_MAX_BYTES;
	}
	nupa_engine_lock(engine);
	channel = nupa_channel_get(engine, (uint32_t)nupa_context_slot(to->side.context));
	if (channel &&
	    (!bytes || channel->dma_backed || nupa_channel_back_dma(engine, channel) == 0))
		msg = nupa_tx_reserve(&channel->tx, bytes, &payload);
	if (msg) {
		memset(&msg->op, 0, sizeof(*msg) - sizeof(msg->tag));
		msg->op = NUPA_OP_CM;
		msg->flags = bytes ? NUPA_F_DMA : 0;
		msg->syndrome = (uint8_t)(1 + pick(s, CM_MESSAGE_MAX - 1));
		if (!bytes && (msg->syndrome == CM_REQ || msg->syndrome == CM_SIDR_REQ))
			msg->syndrome = CM_DREQ;
		msg->timer = (uint8_t)pick(s, 40);
		msg->dest_qpn =
		    ident->id && pick(s, 4) ? rdma_private_of(ident->id)->cm->local : pick(s, 16);
		msg->src_qpn =
		    own->id && pick(s, 2) ? rdma_private_of(own->id)->cm->local : pick(s, 16);
		msg->length_bytes = bytes;
		if (bytes)
			memcpy(payload, &wire, bytes);
		nupa_channel_publish(channel, msg, bytes);
		s->lies++;
	}
	nupa_engine_unlock(engine);
}

static void lose_channel(const struct party *a, const struct party *b)
{
	struct nupa_engine *engine = engine_of(a);
	struct nupa_channel *channel;

	nupa_engine_lock(engine);
	channel = engine->channels[nupa_context_slot(b->side.context)];
	if (channel && !channel->broken)
		nupa_channel_fail(engine, channel);
	nupa_engine_unlock(engine);
}

static void pass(struct scene *s, uint64_t ns)
{
	for (uint32_t n = 0; n < s->n_parties; n++)
		cm_pass(&s->parties[n].side, ns);
}

static void change_fault(struct scene *s)
{
	static const uint32_t kinds[] = { NUPA_FAULT_DROP, NUPA_FAULT_DUPLICATE, NUPA_FAULT_REORDER,
					  NUPA_FAULT_DELAY };
	struct nupa_fault_info fault = fault_of(kinds[pick(s, 4)], 0.1 * (1 + pick(s, 9)));

	if (pick(s, 2)) {
		(void)nupa_fault_clear(s->fabric, 0);
		return;
	}
	fault.seed = test_random(&s->random);
	fault.duration_ns = MS * pick(s, 3);
	fault_add(s->fabric, &fault);
}

static void happen(struct scene *s)
{
	struct party *a = &s->parties[pick(s, SIDES)], *b = &s->parties[pick(s, SIDES)];
	const uint32_t n = (uint32_t)(a - s->parties);

	switch (pick(s, 24)) {
	case 0:
		nupa_fabric_set_port(s->fabric, test_fabric_port(pick(s, 2)),
				     pick(s, 3) ? NUPA_PORT_ACTIVE : NUPA_PORT_DOWN);
		break;
	case 1:
		change_fault(s);
		break;
	case 2:
		pass(s, pick(s, 2) ? CM_RESPONSE_NS : 16 * CM_RESPONSE_NS);
		break;
	case 3:
		if (SLOTS_CHANGE_OWNERS &&
		    pick(s, 8) == 0) { /* it leaves, and its slot has a new owner */
			close_party(a);
			open_party(s, n, n & 1);
		}
		break;
	case 4:
		if (a != b && pick(s, 16) == 0)
			lose_channel(a, b);
		break;
	default:
		lie(s, a, b);
		break;
	}
}

/* --- the whole ----------------------------------------------------------------------- */

/* Another process on host 1, to be killed. */
static pid_t fork_victim(struct scene *s)
{
	const uint64_t random = test_random(&s->random);
	const pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	s->random = random | 1;
	s->n_parties = 1;
	open_party(s, 0, 1);
	for (;;)
		act(s, &s->parties[0]);
}

static bool waits(const struct ident *ident)
{
	return ident->id && ident->asked && !ident->answered;
}

static void describe_and_abort(const struct scene *s)
{
	for (uint32_t n = 0; n < SIDES; n++) {
		for (uint32_t i = 0; i < IDS; i++) {
			const struct ident *ident = &s->parties[n].ids[i];
			const struct nupa_cm_id *id;

			if (!waits(ident))
				continue;
			id = rdma_private_of(ident->id)->cm;
			fprintf(stderr,
				"party %u: id %#x in state %u, tries %u, unsent %d, owed %u\n", n,
				id->local, id->state, id->sent.tries, id->unsent, id->sent.owed);
		}
	}
	abort();
}

/* Nothing is lost any more, and time flies. */
static void all_end(struct scene *s)
{
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	bool any = true;

	(void)nupa_fault_clear(s->fabric, 0);
	for (uint32_t host = 0; host < 2; host++)
		nupa_fabric_set_port(s->fabric, test_fabric_port(host), NUPA_PORT_ACTIVE);
	while (any) {
		if (test_now_ns() > until_ns)
			describe_and_abort(s);
		any = false;
		pass(s, 16 * CM_RESPONSE_NS);
		for (uint32_t n = 0; n < SIDES; n++) {
			struct party *party = &s->parties[n];

			while (hear(s, party, party->side.channel) || hear(s, party, party->other))
				;
			for (uint32_t i = 0; i < IDS; i++)
				any |= waits(&party->ids[i]);
		}
	}
}

TEST(by_all_that_may_happen)
{
	uint64_t until_ns = test_now_ns() + test_fuzz_ns(3);
	struct scene s = { .random = test_seed() };
	uint64_t scenes = 0;

	alarm((unsigned int)(test_fuzz_ns(3) / 1000000000) + 60);
	while (test_now_ns() < until_ns) {
		uint32_t struck = pick(&s, STEPS);
		pid_t victim;

		s.fabric = test_fabric();
		victim = fork_victim(&s);
		s.n_parties = SIDES;
		for (uint32_t n = 0; n < SIDES; n++)
			open_party(&s, n, n & 1);
		for (uint32_t step = 0; step < STEPS; step++) {
			act(&s, &s.parties[pick(&s, SIDES)]);
			if (pick(&s, 3) == 0)
				happen(&s);
			if (step == struck)
				CHECK_EQ(kill(victim, SIGKILL), 0);
		}
		CHECK_EQ(waitpid(victim, NULL, 0), victim);
		all_end(&s);
		for (uint32_t n = 0; n < SIDES; n++)
			close_party(&s.parties[n]);
		nupa_fabric_put(s.fabric);
		scenes++;
	}
	printf("  %llu scenes, %llu connections, %llu lies\n", (unsigned long long)scenes,
	       (unsigned long long)s.connections, (unsigned long long)s.lies);
}

int main(int argc, char **argv)
{
	setenv("NUPA_QUIET", "1", 1);
	return test_main(argc, argv);
}
