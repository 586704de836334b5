/* SPDX-License-Identifier: BSD-3-Clause
 * Records of attachments while a watch exists, read from their rings as a watch reads them. */
#include "engine/device/device.h"
#include "tests/support/target.h"

#include <string.h>

#define FULL 0xfffffffu
#define ALL_LEVELS (NUPA_TRACE_TLP | NUPA_TRACE_QUEUE | NUPA_TRACE_TRANSPORT | NUPA_TRACE_NET)

struct stage {
	struct nupa_fabric *fabric;
	struct end *a, *b;
};

static struct stage stage_open(enum nupa_mover mover)
{
	struct stage s = { .fabric = test_fabric() };
	struct end_options options = end_options_of(mover);

	pair_open(s.fabric, &options, &s.a, &s.b);
	return s;
}

static struct nupa_engine *engine_of(const struct end *end)
{
	return nupa_engine_of(end->context);
}

static void watcher_is(struct stage *s, uint32_t pid)
{
	struct nupa_watcher *watcher = &s->fabric->sb->watchers[0];

	watcher->pid_ns = nupa_pid_namespace();
	watcher->start_time = nupa_process_start_time((uint32_t)getpid());
	nupa_store_release(&watcher->pid, pid);
}

/* As a watcher does: says so, rings, waits until it has been heard. */
static void watch(struct stage *s, uint32_t levels, uint32_t snap_bytes)
{
	uint32_t word = levels ? NUPA_TRACE_WORD(levels, snap_bytes) : 0;
	uint64_t deadline_ns = nupa_clock_ns() + WAIT_NS;

	watcher_is(s, (uint32_t)getpid());
	nupa_store_release(&s->fabric->sb->trace, word);
	nupa_fetch_add_seq(&s->fabric->sb->port_epoch, 1);
	for (struct end *end = s->a;; end = s->b) {
		struct nupa_engine *engine = engine_of(end);

		while (nupa_load_acquire(&engine->slot->trace_seen) != word) {
			nupa_port_wake(engine);
			sched_yield();
			CHECK(nupa_clock_ns() < deadline_ns);
		}
		if (end == s->b)
			return;
	}
}

/* The next record of an attachment from *at* on; NULL: there is none. */
static const struct nupa_trace_record *next(const struct end *end, uint64_t *at)
{
	const struct nupa_trace_header *tracer = engine_of(end)->tracer;
	const uint8_t *ring = (const uint8_t *)(tracer + 1);

	while (tracer && *at < nupa_load_acquire(&tracer->tail)) {
		const struct nupa_trace_record *record =
		    (const struct nupa_trace_record *)(const void *)(ring +
								     (*at &
								      (NUPA_TRACE_BYTES - 1)));

		CHECK_EQ(record->bytes % 8, 0);
		CHECK(record->bytes >= 8 && record->bytes <= NUPA_TRACE_RECORD_MAX_BYTES);
		CHECK((*at & (NUPA_TRACE_BYTES - 1)) + record->bytes <= NUPA_TRACE_BYTES);
		*at += record->bytes;
		if (record->kind != NUPA_TRACE_PAD)
			return record;
	}
	return NULL;
}

/* The next record of this kind, any others passed over. */
/* It says that the ring grows. */
static bool is_of_ring(const struct nupa_trace_record *record)
{
	const struct nupa_trace_message *message = (const void *)(record + 1);

	return record->kind == NUPA_TRACE_MESSAGE && message->msg.op == NUPA_OP_GROW;
}

static const struct nupa_trace_record *find(const struct end *end, uint64_t *at, uint8_t kind)
{
	const struct nupa_trace_record *record;

	do {
		record = next(end, at);
		CHECK(record);
	} while (record->kind != kind || is_of_ring(record));
	return record;
}

static const void *body(const struct nupa_trace_record *record)
{
	return record + 1;
}

static uint64_t tail_of(const struct end *end)
{
	const struct nupa_trace_header *tracer = engine_of(end)->tracer;

	return tracer ? nupa_load_acquire(&tracer->tail) : 0;
}

static void send(struct stage *s, uint64_t wr_id, uint32_t bytes)
{
	end_post_recv(s->b, wr_id, 0, bytes);
	end_start(s->a, IBV_WR_SEND, wr_id, 0, bytes);
	cq_expect(s->a->send_cq, wr_id, IBV_WC_SUCCESS);
	cq_expect(s->b->recv_cq, wr_id, IBV_WC_SUCCESS);
}

TEST(recording_without_a_watcher_costs_nothing)
{
	struct stage s = stage_open(NUPA_MOVER_LOCAL);

	send(&s, 1, 8);
	CHECK(!engine_of(s.a)->tracer);
	watch(&s, ALL_LEVELS, 64);
	send(&s, 2, 8);
	CHECK(tail_of(s.a) > 0 && tail_of(s.b) > 0);
	watch(&s, 0, 0);
	uint64_t a = tail_of(s.a), b = tail_of(s.b);

	send(&s, 3, 8);
	CHECK_EQ(tail_of(s.a), a);
	CHECK_EQ(tail_of(s.b), b);
	fabric_close(s.fabric, s.a, s.b);
}

/* A SEND's life: request, bell, message, the receiver's completion, the sender's. */
static void a_send(uint32_t bytes)
{
	struct stage s = stage_open(NUPA_MOVER_LOCAL);
	const struct nupa_trace_record *wqe, *bell, *record, *done;
	const struct nupa_trace_message *message;
	uint64_t at_a = 0, at_b = 0, transfer;
	uint32_t left = bytes;

	watch(&s, ALL_LEVELS, FULL);
	pattern_fill(s.a->memory, bytes, 7);
	send(&s, 42, bytes);
	wqe = find(s.a, &at_a, NUPA_TRACE_WQE);
	transfer = wqe->transfer;
	CHECK_EQ(transfer >> 40, s.a->self.qpn);
	CHECK_EQ(((const struct nupa_trace_wqe *)body(wqe))->wr_id, 42);
	CHECK_EQ(((const struct nupa_trace_wqe *)body(wqe))->length_bytes, bytes);
	CHECK_EQ(wqe->data_bytes, sizeof(struct ibv_sge));
	bell = find(s.a, &at_a, NUPA_TRACE_DOORBELL);
	CHECK_EQ(bell->transfer, transfer);
	do {
		record = find(s.a, &at_a, NUPA_TRACE_MESSAGE);
		message = body(record);
		CHECK_EQ(message->msg.op, NUPA_OP_SEND);
		CHECK_EQ(record->transfer, transfer);
		CHECK_EQ(message->dest_host, 1);
		CHECK_EQ(record->data_bytes, message->msg.length_bytes);
		CHECK(!memcmp(message + 1, s.a->memory + (bytes - left), record->data_bytes));
		left -= record->data_bytes;
	} while (left);
	CHECK(message->msg.flags & NUPA_F_LAST);
	done = find(s.b, &at_b, NUPA_TRACE_CQE);
	CHECK_EQ(((const struct nupa_trace_cqe *)body(done))->psn, message->msg.psn);
	CHECK_EQ(((const struct nupa_trace_cqe *)body(done))->src_qpn, s.a->self.qpn);
	CHECK(done->time_ns >= record->time_ns);
	done = find(s.a, &at_a, NUPA_TRACE_CQE);
	CHECK_EQ(done->transfer, transfer);
	CHECK(wqe->time_ns <= bell->time_ns && bell->time_ns <= record->time_ns);
	fabric_close(s.fabric, s.a, s.b);
}

TEST(a_send_is_recorded_from_request_to_completions)
{
	a_send(8);
	a_send(5000);
	a_send(200000); /* in parts, and not pulled */
}

/* Of each packet's payload the first bytes. */
TEST(of_each_packet_the_first_bytes_are_kept)
{
	struct stage s = stage_open(NUPA_MOVER_LOCAL);
	const struct nupa_trace_record *record;
	const struct nupa_trace_message *message;
	uint64_t at = 0;
	uint32_t mtu;

	watch(&s, NUPA_TRACE_TRANSPORT, 16);
	pattern_fill(s.a->memory, 8000, 3);
	send(&s, 1, 8000);
	record = find(s.a, &at, NUPA_TRACE_MESSAGE);
	message = body(record);
	mtu = message->data.mtu_bytes;
	CHECK_EQ(message->data.piece_bytes, 16);
	CHECK_EQ(message->data.total_bytes, 8000);
	CHECK_EQ(record->data_bytes, (8000 + mtu - 1) / mtu * 16);
	for (uint32_t i = 0; i < record->data_bytes / 16; i++)
		CHECK(!memcmp((const uint8_t *)(message + 1) + i * 16,
			      s.a->memory + (size_t)i * mtu, 16));
	fabric_close(s.fabric, s.a, s.b);
}

TEST(direct_accesses_are_recorded_in_chunks)
{
	struct stage s = stage_open(NUPA_MOVER_LOCAL);
	const struct nupa_trace_record *record;
	const struct nupa_trace_direct *access;
	const uint32_t bytes = NUPA_TRACE_CHUNK_BYTES + 4096;
	uint64_t at = 0;

	watch(&s, NUPA_TRACE_TLP, FULL);
	pattern_fill(s.a->memory, bytes, 11);
	end_start(s.a, IBV_WR_RDMA_WRITE, 5, 0, bytes);
	cq_expect(s.a->send_cq, 5, IBV_WC_SUCCESS);
	for (uint32_t offset = 0; offset < bytes; offset += record->data_bytes) {
		record = find(s.a, &at, NUPA_TRACE_DIRECT);
		access = body(record);
		CHECK_EQ(access->opcode, IBV_WR_RDMA_WRITE);
		CHECK_EQ(access->message_bytes, bytes);
		CHECK_EQ(access->offset_bytes, offset);
		CHECK_EQ(access->rkey, s.b->self.rkey);
		CHECK_EQ(access->raddr, s.b->self.memory);
		CHECK(!memcmp(access + 1, s.a->memory + offset, record->data_bytes));
	}
	memset(s.b->memory, 0, 8);
	s.b->memory[0] = 9;
	end_start(s.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 6, 0, 8);
	cq_expect(s.a->send_cq, 6, IBV_WC_SUCCESS);
	access = body(find(s.a, &at, NUPA_TRACE_DIRECT));
	CHECK_EQ(access->opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
	CHECK_EQ(access->original, 9);
	fabric_close(s.fabric, s.a, s.b);
}

/* The message that tells of a WRITE's immediate data is not recorded beside the data. */
TEST(immediate_data_is_recorded_once)
{
	struct stage s = stage_open(NUPA_MOVER_LOCAL);
	const struct nupa_trace_record *record;
	uint64_t at = 0;
	uint32_t psn = UINT32_MAX, writes = 0;

	watch(&s, NUPA_TRACE_TRANSPORT, FULL);
	end_post_recv(s.b, 2, 0, 64);
	end_start(s.a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64);
	cq_expect(s.a->send_cq, 1, IBV_WC_SUCCESS);
	while ((record = next(s.a, &at))) {
		const struct nupa_trace_message *message = body(record);

		if (record->kind == NUPA_TRACE_DIRECT)
			psn = ((const struct nupa_trace_direct *)body(record))->psn;
		else if (record->kind == NUPA_TRACE_MESSAGE)
			writes += message->msg.op == NUPA_OP_WRITE;
	}
	CHECK_EQ(writes, 0);
	at = 0;
	CHECK_EQ(((const struct nupa_trace_message *)body(find(s.b, &at, NUPA_TRACE_MESSAGE)))
		     ->msg.ack_psn,
		 psn);
	fabric_close(s.fabric, s.a, s.b);
}

/* Many laps: records stay whole, in sequence, and end where the ring does. */
TEST(records_stay_whole_and_in_sequence_over_laps)
{
	struct stage s = stage_open(NUPA_MOVER_RELAY);
	const struct nupa_trace_record *record;
	uint64_t at = 0;
	uint32_t sequence = 0;

	watch(&s, ALL_LEVELS, FULL);
	for (uint32_t i = 0; tail_of(s.a) < 3 * (uint64_t)NUPA_TRACE_BYTES; i++) {
		send(&s, i, 1 + i * 7919 % 60000);
		while ((record = next(s.a, &at))) {
			CHECK_EQ(record->sequence, sequence);
			sequence++;
		}
	}
	CHECK_EQ(nupa_load_relaxed(&engine_of(s.a)->tracer->begun), tail_of(s.a));
	fabric_close(s.fabric, s.a, s.b);
}

/* A later attachment or queue records from its first event on. */
TEST(late_attachments_and_queues_record_from_their_first_event_on)
{
	struct stage s = stage_open(NUPA_MOVER_LOCAL);
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct end *c, *d;
	uint64_t at = 0;

	watch(&s, NUPA_TRACE_QUEUE, 0);
	pair_open(s.fabric, &options, &c, &d);
	CHECK_EQ(nupa_load_relaxed(&engine_of(c)->slot->trace_seen),
		 nupa_load_relaxed(&s.fabric->sb->trace));
	end_start(c, IBV_WR_RDMA_WRITE, 1, 0, 8);
	cq_expect(c->send_cq, 1, IBV_WC_SUCCESS);
	find(c, &at, NUPA_TRACE_WQE);
	find(c, &at, NUPA_TRACE_CQE);
	CHECK(!next(c, &at)); /* at this level no messages */
	pair_close(c, d);
	fabric_close(s.fabric, s.a, s.b);
}

/* Recording for a watcher ends after the watcher was killed. */
TEST(a_dead_watcher_is_forgotten_within_a_lap)
{
	struct stage s = stage_open(NUPA_MOVER_RELAY);

	watch(&s, NUPA_TRACE_TRANSPORT, FULL);
	watcher_is(&s, UINT32_MAX); /* no pid is so large */
	for (uint32_t i = 0; tail_of(s.a) < NUPA_TRACE_BYTES + 65536 && s.fabric->sb->trace; i++)
		send(&s, i, 60000);
	CHECK_EQ(nupa_load_relaxed(&s.fabric->sb->trace), 0);
	fabric_close(s.fabric, s.a, s.b);
}

TEST(attachments_record_nothing_when_all_watchers_are_dead)
{
	struct stage s = stage_open(NUPA_MOVER_LOCAL);
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);
	struct end *c, *d;

	watch(&s, NUPA_TRACE_TRANSPORT, FULL);
	watcher_is(&s, UINT32_MAX);
	pair_open(s.fabric, &options, &c, &d);
	CHECK(!engine_of(c)->tracer);
	CHECK_EQ(nupa_load_relaxed(&s.fabric->sb->trace), 0);
	pair_close(c, d);
	fabric_close(s.fabric, s.a, s.b);
}
