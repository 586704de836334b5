/* SPDX-License-Identifier: BSD-3-Clause
 * Mixtures of faults that come and go at random, under traffic of all kinds between three hosts: RC
 * delivers exactly once, in order, intact.  The seed is printed.
 *
 * Each flow is a QP that asks its partner for all operations.  Sends and writes with immediate data
 * bear their number, reads have known data, and results of atomics count those before them. */
#include "tests/support/end.h"
#include "engine/fault/fault.h"
#include "segment/slot/counters.h"

#include <string.h>

#define HOSTS 3u
#define PORTS (2 * HOSTS)
#define ENDS 6u
#define SLOT_BYTES 40960u /* some messages take several parts */
#define SLOTS 8u
#define RECEIVES 16u
#define FAULTS 8u /* at a time */

/* Where things are in an end's memory. */
#define RECEIVE_AT 0u
#define WRITTEN_AT (RECEIVE_AT + RECEIVES * SLOT_BYTES)
#define READ_AT (WRITTEN_AT + SLOTS * SLOT_BYTES)
#define LOCAL_AT (READ_AT + SLOT_BYTES)
#define COUNTERS_AT (LOCAL_AT + SLOTS * SLOT_BYTES)
#define MEMORY_BYTES (COUNTERS_AT + 4096u)

#define READ_SEED 0x5eedu

struct flow {
	struct end *end, *peer;
	uint64_t posted, completed; /* requests */
	uint64_t messages, arrived; /* of them, those that take a receive */
	uint64_t receives;          /* posted at the peer */
	uint64_t adds, swaps;
	struct {
		enum ibv_wr_opcode opcode;
		uint32_t length, number;
		uint64_t expected; /* the value that an atomic finds */
	} request[SLOTS];
	struct {
		uint32_t length, slot;
		bool is_write;
	} message[RECEIVES];
};

static struct nupa_fabric *three_hosts(void)
{
	static const struct nupa_config config = {
		.slots = 8,
		.ring_lines = TEST_RING_LINES,
		.dma_bytes = TEST_DMA_BYTES,
		.qp_entries = 256,
		.mr_entries = 256,
		.extent_bytes = 4096,
		.pool_bytes = 1u << 20,
	};
	struct nupa_host hosts[HOSTS] = { 0 };
	struct nupa_port ports[PORTS] = { 0 };
	struct nupa_route routes[HOSTS * HOSTS] = { 0 };
	struct nupa_fabric *fabric = NULL;
	char why[256] = "";

	for (uint32_t i = 0; i < HOSTS; i++) {
		snprintf(hosts[i].name, sizeof(hosts[i].name), "host%u", i);
		hosts[i].port = i;
		hosts[i].link_layer = NUPA_LINK_ETHERNET;
		hosts[i].ipv4 = 0x0a000001 + i;
		hosts[i].mac[0] = 2;
		hosts[i].mac[5] = (uint8_t)(i + 1);
		snprintf(ports[i].name, sizeof(ports[i].name), "host%u/1", i);
		ports[i] = (struct nupa_port){ .peer = HOSTS + i, .node = i, .number = 1 };
		ports[HOSTS + i] = (struct nupa_port){ .peer = i, .is_switch = 1, .number = i + 1 };
		snprintf(ports[i].name, sizeof(ports[i].name), "host%u/1", i);
		snprintf(ports[HOSTS + i].name, sizeof(ports[i].name), "switch0/%u", i + 1);
		for (uint32_t to = 0; to < HOSTS; to++)
			if (to != i)
				routes[i * HOSTS + to] =
				    (struct nupa_route){ 4,
							 { (uint16_t)i, (uint16_t)(HOSTS + i),
							   (uint16_t)(HOSTS + to), (uint16_t)to } };
	}
	for (uint32_t i = 0; i < PORTS; i++) {
		ports[i].width_lanes = 4;
		ports[i].speed_mtps = 32000;
		ports[i].state = NUPA_PORT_ACTIVE;
	}
	if (nupa_fabric_create(NULL, "test", &config, hosts, HOSTS, ports, PORTS, routes, &fabric,
			       why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	return fabric;
}

/* --- faults -------------------------------------------------------------------------- */

/* Of what a requester can make good, so much that it does. */
static struct nupa_fault_info draw_fault(uint64_t *random)
{
	static const struct {
		uint32_t kind;
		double most;
		uint64_t duration_ns, count;
	} kinds[] = {
		{ NUPA_FAULT_DROP, 0.05, 0, 0 },        { NUPA_FAULT_DUPLICATE, 0.5, 0, 0 },
		{ NUPA_FAULT_REORDER, 0.3, 300000, 0 }, { NUPA_FAULT_DELAY, 0.1, 300000, 0 },
		{ NUPA_FAULT_CORRUPT, 0.2, 20000, 0 },  { NUPA_FAULT_BANDWIDTH, 1, 0, 0 },
		{ NUPA_FAULT_FLAP, 0.01, 1000000, 1 },  { NUPA_FAULT_STUCK, 0.02, 2000000, 3 },
	};
	uint32_t which = (uint32_t)(test_random(random) % (sizeof(kinds) / sizeof(kinds[0])));
	uint64_t kind_random = test_random(random);

	return (struct nupa_fault_info){
		.kind = kinds[which].kind,
		.port = (uint32_t)(test_random(random) % PORTS),
		.probability =
		    (uint32_t)(kinds[which].most * (double)(test_random(random) % UINT32_MAX)),
		.seed = test_random(random),
		.after = test_random(random) % 20,
		.count = kinds[which].count ? kinds[which].count
			 : kind_random % 3  ? 0
					    : 50,
		.duration_ns = kinds[which].duration_ns,
		.bytes_per_s = 200000000 + test_random(random) % 800000000,
		.for_ns = kind_random % 4 ? 0 : 20000000,
	};
}

static uint32_t add_fault(struct nupa_fabric *fabric, uint64_t *random)
{
	struct nupa_fault_info fault = draw_fault(random);
	char why[256] = "";
	int64_t id = nupa_fault_add(fabric, &fault, why, sizeof(why));

	if (id <= 0)
		fprintf(stderr, "%s\n", why);
	CHECK(id > 0);
	return (uint32_t)id;
}

/* --- traffic ------------------------------------------------------------------------- */

static void post_receive(struct flow *flow)
{
	end_post_recv(flow->peer, flow->receives,
		      RECEIVE_AT + (uint32_t)(flow->receives % RECEIVES) * SLOT_BYTES, SLOT_BYTES);
	flow->receives++;
}

static uint32_t draw_length(uint64_t *random)
{
	uint64_t kind = test_random(random) % 4;

	return (uint32_t)(kind == 0   ? test_random(random) % 33
			  : kind == 1 ? test_random(random) % 9000
			  : kind == 2 ? SLOT_BYTES - test_random(random) % 100
				      : 8);
}

static void post_message(struct flow *flow, struct request *request, uint32_t slot, uint32_t length)
{
	uint64_t number = flow->messages++;
	bool is_write = request->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

	pattern_fill(flow->end->memory + LOCAL_AT + slot * SLOT_BYTES, length, (uint32_t)number);
	request->wr.imm_data = (uint32_t)number;
	request->wr.wr.rdma.remote_addr = flow->end->peer.memory + WRITTEN_AT + slot * SLOT_BYTES;
	flow->message[number % RECEIVES].length = length;
	flow->message[number % RECEIVES].slot = slot;
	flow->message[number % RECEIVES].is_write = is_write;
}

static void post(struct flow *flow, uint64_t *random)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND_WITH_IMM,        IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_WRITE_WITH_IMM,  IBV_WR_RDMA_READ,          IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	uint32_t slot = (uint32_t)(flow->posted % SLOTS), length = draw_length(random);
	enum ibv_wr_opcode opcode = opcodes[test_random(random) % 8];
	bool is_atomic =
	    opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct request request;

	length = is_atomic ? 8 : length;
	request = request_of(flow->end, opcode, flow->posted, LOCAL_AT + slot * SLOT_BYTES, length);
	if (opcode == IBV_WR_RDMA_READ) {
		request.wr.wr.rdma.remote_addr = flow->end->peer.memory + READ_AT;
		memset(flow->end->memory + LOCAL_AT + slot * SLOT_BYTES, 0, length);
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		request.wr.wr.atomic.remote_addr = flow->end->peer.memory + COUNTERS_AT;
		request.wr.wr.atomic.compare_add = 1;
		flow->request[slot].expected = flow->adds++;
	} else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		request.wr.wr.atomic.remote_addr = flow->end->peer.memory + COUNTERS_AT + 8;
		request.wr.wr.atomic.compare_add = flow->swaps;
		request.wr.wr.atomic.swap = flow->swaps + 1;
		flow->request[slot].expected = flow->swaps++;
	} else {
		post_message(flow, &request, slot, length);
	}
	flow->request[slot].opcode = opcode;
	flow->request[slot].length = length;
	end_post(flow->end, &request);
	flow->posted++;
}

static void check_completion(struct flow *flow, const struct ibv_wc *wc)
{
	uint32_t slot = (uint32_t)(flow->completed % SLOTS);
	const uint8_t *local = flow->end->memory + LOCAL_AT + slot * SLOT_BYTES;
	uint64_t found;

	if (wc->status != IBV_WC_SUCCESS)
		fprintf(stderr, "request %llu of opcode %d has status %d\n",
			(unsigned long long)wc->wr_id, flow->request[slot].opcode, wc->status);
	CHECK_EQ(wc->status, IBV_WC_SUCCESS);
	CHECK_EQ(wc->wr_id, flow->completed);
	switch (flow->request[slot].opcode) {
	case IBV_WR_RDMA_READ:
		CHECK_PATTERN(local, flow->request[slot].length, READ_SEED);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		memcpy(&found, local, sizeof(found));
		CHECK_EQ(found, flow->request[slot].expected);
		break;
	default:
		break;
	}
	flow->completed++;
}

static void check_message(struct flow *flow, const struct ibv_wc *wc)
{
	uint32_t at = (uint32_t)(flow->arrived % RECEIVES);
	uint32_t length = flow->message[at].length;
	uint32_t from = flow->message[at].is_write
			    ? WRITTEN_AT + flow->message[at].slot * SLOT_BYTES
			    : RECEIVE_AT + at * SLOT_BYTES;

	CHECK_EQ(wc->status, IBV_WC_SUCCESS);
	CHECK_EQ(wc->wr_id, flow->arrived);
	CHECK_EQ(wc->imm_data, (uint32_t)flow->arrived);
	CHECK_EQ(wc->byte_len, length);
	CHECK_EQ(wc->opcode, flow->message[at].is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	CHECK_PATTERN(flow->peer->memory + from, length, (uint32_t)flow->arrived);
	flow->arrived++;
	post_receive(flow);
}

/* One turn of a flow; false: all of it is done. */
static bool turn(struct flow *flow, uint64_t total, uint64_t *random)
{
	struct ibv_wc wc;

	while (nupa_poll_cq(flow->end->send_cq, 1, &wc) == 1)
		check_completion(flow, &wc);
	/* A message arrives before its request completes: those of all that are done are there. */
	while (nupa_poll_cq(flow->peer->recv_cq, 1, &wc) == 1)
		check_message(flow, &wc);
	while (flow->posted < total && flow->posted - flow->completed < SLOTS &&
	       flow->arrived + RECEIVES > flow->messages && test_random(random) % 4)
		post(flow, random);
	return flow->completed < total || flow->arrived < flow->messages;
}

static void open_flows(struct nupa_fabric *fabric, struct flow flows[ENDS])
{
	struct end_options options = end_options_of(NUPA_MOVER_NONE);

	options.memory_bytes = MEMORY_BYTES;
	options.timeout =
	    13; /* 34 ms: the machine may stand still for a while, eight times in a row */
	for (uint32_t i = 0; i < ENDS; i += 2) {
		struct end *ends[2];

		for (uint32_t side = 0; side < 2; side++) {
			options.host = (int)((i / 2 + side) % HOSTS);
			ends[side] = end_open(fabric, &options);
			pattern_fill(ends[side]->memory + READ_AT, SLOT_BYTES, READ_SEED);
		}
		for (uint32_t side = 0; side < 2; side++) {
			end_connect(ends[side], &ends[!side]->self);
			flows[i + side] = (struct flow){ .end = ends[side], .peer = ends[!side] };
		}
		for (uint32_t side = 0; side < 2; side++)
			for (uint32_t n = 0; n < RECEIVES; n++)
				post_receive(&flows[i + side]);
	}
}

static void close_flows(struct nupa_fabric *fabric, struct flow flows[ENDS])
{
	for (uint32_t i = 0; i < ENDS; i++) {
		const uint64_t *counters =
		    (const uint64_t *)(const void *)(flows[i].peer->memory + COUNTERS_AT);

		CHECK_EQ(counters[0], flows[i].adds);
		CHECK_EQ(counters[1], flows[i].swaps);
	}
	for (uint32_t i = 0; i < ENDS; i++)
		end_close(flows[i].end);
	nupa_fabric_put(fabric);
}

/* Identifies a failure. */
static void print_counters(struct nupa_fabric *fabric, uint64_t seed)
{
	struct nupa_hw_counters sum = { 0 }, one;

	for (uint32_t host = 0; host < HOSTS; host++) {
		CHECK_EQ(nupa_fabric_hw_counters(fabric, host, &one), 0);
		for (size_t i = 0; i < sizeof(sum) / sizeof(uint64_t); i++)
			((uint64_t *)&sum)[i] += ((uint64_t *)&one)[i];
	}
	printf("  seed %llu: dropped %llu, twice %llu, reordered %llu, delayed %llu, corrupt %llu, "
	       "flaps %llu, stuck %llu; duplicates %llu, NAKs %llu, timeouts %llu\n",
	       (unsigned long long)seed, (unsigned long long)sum.fault_dropped,
	       (unsigned long long)sum.fault_duplicated, (unsigned long long)sum.fault_reordered,
	       (unsigned long long)sum.fault_delayed, (unsigned long long)sum.link_retries,
	       (unsigned long long)sum.fault_flaps, (unsigned long long)sum.fault_stuck,
	       (unsigned long long)sum.duplicate_request, (unsigned long long)sum.packet_seq_err,
	       (unsigned long long)sum.local_ack_timeout_err);
}

static void mixture(uint64_t seed, uint64_t total)
{
	struct nupa_fabric *fabric = three_hosts();
	struct flow flows[ENDS];
	uint64_t random = seed, turns = 0, next_change = 0;
	uint32_t ids[FAULTS], n_ids = 0;
	bool more = true;

	open_flows(fabric, flows);
	while (more) {
		if (turns++ == next_change) {
			if (n_ids == FAULTS || (n_ids > 3 && test_random(&random) % 2))
				CHECK_EQ(nupa_fault_clear(fabric, ids[--n_ids]), 0);
			else
				ids[n_ids++] = add_fault(fabric, &random);
			next_change = turns + (n_ids < 3 ? 1 : 1 + test_random(&random) % 300);
		}
		more = false;
		for (uint32_t i = 0; i < ENDS; i++)
			more |= turn(&flows[i], total, &random);
	}
	CHECK_EQ(nupa_fault_clear(fabric, 0), 0);
	CHECK_EQ(nupa_fault_list(fabric, NULL, 0), 0);
	for (uint32_t i = 0; i < ENDS; i++) /* and without */
		while (turn(&flows[i], total + 20, &random))
			;
	print_counters(fabric, seed);
	close_flows(fabric, flows);
}

TEST(rc_is_exactly_once_in_order_and_intact)
{
	mixture(test_seed(), 2000);
}

TEST(rc_is_so_in_many_mixtures)
{
	uint64_t seed = test_seed();

	for (uint32_t i = 0; i < 8; i++)
		mixture(seed + i, 200);
}
