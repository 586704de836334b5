/* SPDX-License-Identifier: BSD-3-Clause
 * Records of an attachment for watchers (trace.h).  Recording never waits and never fails: without
 * memory for the ring nothing is recorded, and a hint is printed. */
#include "engine/trace/trace_internal.h"
#include "segment/layout/geometry.h"

/* --- the ring ------------------------------------------------------------------------ */

static bool back_ring(struct nupa_engine *engine)
{
	const struct nupa_fabric *fabric = engine->fabric;
	uint64_t off = nupa_arena_map(&fabric->geometry).trace_off;
	int error;

	if (engine->tracer)
		return true;
	error =
	    nupa_fabric_back(engine->fabric, nupa_arena_offset(fabric, engine->slot_index) + off,
			     sizeof(struct nupa_trace_header) + NUPA_TRACE_BYTES);
	if (error) {
		nupa_hint("nothing is recorded of this process: no memory in %s (%s)", fabric->path,
			  strerror(-error));
		return false;
	}
	engine->tracer = (struct nupa_trace_header *)(void *)(engine->arena + off);
	/* Records of a former owner may still be there. */
	nupa_store_release(&engine->tracer->epoch, 0);
	nupa_store_release(&engine->tracer->begun, 0);
	nupa_store_release(&engine->tracer->tail, 0);
	nupa_store_release(&engine->tracer->epoch, engine->epoch);
	return true;
}

bool nupa_watcher_lives(const struct nupa_watcher *watcher)
{
	uint32_t pid = nupa_load_acquire(&watcher->pid);

	if (!pid)
		return false;
	if (watcher->pid_ns != nupa_pid_namespace())
		return true; /* whether it does cannot be said from here */
	return nupa_process_alive(pid, watcher->start_time);
}

static bool anybody_watches(const struct nupa_superblock *sb)
{
	for (uint32_t i = 0; i < NUPA_WATCHERS_MAX; i++)
		if (nupa_watcher_lives(&sb->watchers[i]))
			return true;
	return false;
}

/* Watchers that were killed could not say that they are gone.  A watcher that begins just now
 * enters the table before it stores the word. */
static void forget_the_dead(struct nupa_superblock *sb)
{
	uint32_t word = nupa_load_relaxed(&sb->trace), none = 0;

	if (!word || anybody_watches(sb) || !nupa_cas_seq(&sb->trace, &word, 0))
		return;
	if (anybody_watches(sb))
		nupa_cas_seq(&sb->trace, &none, word);
	nupa_fetch_add_seq(&sb->port_epoch, 1);
}

void nupa_trace_follow(struct nupa_engine *engine)
{
	uint32_t word = nupa_load_relaxed(&engine->fabric->sb->trace);
	uint8_t note;

	if (word && word != nupa_load_relaxed(&engine->slot->trace_seen)) {
		forget_the_dead(engine->fabric->sb);
		word = nupa_load_relaxed(&engine->fabric->sb->trace);
	}
	if (word == nupa_load_relaxed(&engine->slot->trace_seen))
		return;
	engine->trace = word && back_ring(engine) ? word : 0;
	note = engine->trace & NUPA_TRACE_ENTRIES ? NUPA_CQ_TRACED : 0;
	for (struct nupa_list *at = engine->cqs.next; at != &engine->cqs; at = at->next) {
		struct nupa_cq *cq = container_of(at, struct nupa_cq, link);

		cq->notes = (uint8_t)((cq->notes & ~NUPA_CQ_TRACED) | note);
	}
	nupa_store_release(&engine->slot->trace_seen, word);
}

static uint8_t *at_tail(struct nupa_trace_header *tracer, uint64_t tail)
{
	return (uint8_t *)(tracer + 1) + (tail & (NUPA_TRACE_BYTES - 1));
}

struct nupa_trace_record *nupa_trace_begin(struct nupa_engine *engine, uint8_t kind,
					   uint32_t body_bytes, uint64_t time_ns)
{
	struct nupa_trace_header *tracer = engine->tracer;
	uint32_t bytes = ((uint32_t)sizeof(struct nupa_trace_record) + body_bytes + 7) & ~7u;
	uint64_t tail =
	    nupa_load_relaxed(&tracer->tail) & ~UINT64_C(7); /* we alone should store it */
	uint32_t left = NUPA_TRACE_BYTES - (uint32_t)(tail & (NUPA_TRACE_BYTES - 1));
	struct nupa_trace_record *record;

	/* T1 */
	nupa_store_relaxed(&tracer->begun, tail + bytes + (left < bytes ? left : 0));
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (unlikely(left < bytes)) { /* T2; there is always room for the part that is read */
		record = (struct nupa_trace_record *)(void *)at_tail(tracer, tail);
		record->bytes = left;
		record->kind = NUPA_TRACE_PAD;
		tail += left;
		nupa_store_release(&tracer->tail, tail);
		forget_the_dead(engine->fabric->sb); /* once a lap */
	}
	record = (struct nupa_trace_record *)(void *)at_tail(tracer, tail);
	*record = (struct nupa_trace_record){
		.bytes = bytes,
		.kind = kind,
		.sequence = engine->trace_records++,
		.time_ns = time_ns,
	};
	return record;
}

void nupa_trace_end(struct nupa_engine *engine)
{
	struct nupa_trace_header *tracer = engine->tracer;

	nupa_store_release(&tracer->tail, nupa_load_relaxed(&tracer->begun)); /* T1 */
}

/* --- data ---------------------------------------------------------------------------- */

struct nupa_trace_data nupa_trace_plan(const struct nupa_engine *engine, uint32_t bytes,
				       uint32_t mtu_bytes)
{
	uint32_t packets = bytes / mtu_bytes + 1;
	uint32_t piece_bytes = NUPA_TRACE_SNAP_BYTES(engine->trace);

	if (piece_bytes > mtu_bytes)
		piece_bytes = mtu_bytes;
	if (piece_bytes > NUPA_TRACE_CHUNK_BYTES / packets && bytes > NUPA_TRACE_CHUNK_BYTES)
		piece_bytes = NUPA_TRACE_CHUNK_BYTES / packets;
	return (struct nupa_trace_data){
		.total_bytes = bytes,
		.mtu_bytes = mtu_bytes,
		.piece_bytes = piece_bytes,
	};
}

uint32_t nupa_trace_kept_bytes(const struct nupa_trace_data *data)
{
	uint32_t whole = data->total_bytes / data->mtu_bytes;
	uint32_t rest = data->total_bytes % data->mtu_bytes;

	return whole * data->piece_bytes + (rest < data->piece_bytes ? rest : data->piece_bytes);
}

void nupa_trace_keep(uint8_t *to, const struct nupa_trace_data *data, const struct nupa_span *spans,
		     uint32_t n_spans, uint64_t offset)
{
	uint32_t step = data->piece_bytes == data->mtu_bytes ? data->total_bytes : data->mtu_bytes;

	for (uint32_t at = 0; at < data->total_bytes && data->piece_bytes; at += step) {
		uint32_t n = data->total_bytes - at;

		if (step == data->mtu_bytes && n > data->piece_bytes)
			n = data->piece_bytes;
		if (nupa_spans_copy(spans, n_spans, offset + at, to, n, false))
			memset(to, 0, n); /* gone since */
		to += n;
	}
}

static const uint8_t *inline_payload(const struct nupa_msg *msg, const struct nupa_qp *qp)
{
	if (msg->op == NUPA_OP_WRITE)
		return msg->write_data;
	return qp && qp->type == IBV_QPT_UD ? msg->ud_data : msg->data;
}

static bool has_payload(const struct nupa_msg *msg)
{
	return msg->length_bytes && (msg->op == NUPA_OP_SEND || msg->op == NUPA_OP_WRITE ||
				     msg->op == NUPA_OP_READ_RESP || msg->op == NUPA_OP_CM);
}

/* --- messages ------------------------------------------------------------------------ */

/* Field by field, as the line was filled just now: a wider load of what was stored in smaller
 * pieces would stall. */
static void copy_line(struct nupa_msg *to, const struct nupa_msg *from, bool with_body)
{
	to->tag = 0;
	to->op = from->op;
	to->flags = from->flags;
	to->syndrome = from->syndrome;
	to->timer = from->timer;
	to->dest_qpn = from->dest_qpn;
	to->src_qpn = from->src_qpn;
	to->psn = from->psn;
	to->ack_psn = from->ack_psn;
	to->length_bytes = from->length_bytes;
	to->imm = from->imm;
	if (with_body)
		memcpy(to->data, from->data, sizeof(to->data));
	else
		memset(to->data, 0, sizeof(to->data));
}

/* A datagram has it; of other messages both QPs are of one partition. */
static uint16_t pkey_of(const struct nupa_msg *msg, const struct nupa_qp *qp)
{
	if (!qp)
		return 0;
	return qp->type == IBV_QPT_UD && msg->op == NUPA_OP_SEND ? msg->deth.pkey : qp->pkey;
}

struct nupa_trace_record *nupa_trace_put_message(struct nupa_engine *engine,
						 const struct nupa_msg *msg,
						 const struct nupa_qp *qp, uint32_t dest_host,
						 const uint8_t *payload, uint32_t bytes,
						 uint64_t now_ns)
{
	struct nupa_span span = { (uint8_t *)(uintptr_t)payload, bytes };
	struct nupa_trace_data data =
	    nupa_trace_plan(engine, bytes, qp ? nupa_qp_mtu_bytes(qp) : NUPA_MTU_BYTES);
	uint32_t kept = nupa_trace_kept_bytes(&data);
	struct nupa_trace_record *record = nupa_trace_begin(
	    engine, NUPA_TRACE_MESSAGE, (uint32_t)sizeof(struct nupa_trace_message) + kept, now_ns);
	struct nupa_trace_message *body = (struct nupa_trace_message *)(void *)(record + 1);

	record->data_bytes = kept;
	/* Payload in the line is kept as data, and an ACK has nothing there. */
	copy_line(&body->msg, msg, !(bytes && payload == msg->data) && msg->op != NUPA_OP_ACK);
	body->data = data;
	body->qp_type = qp ? qp->type : 0;
	body->is_xrc = qp && qp->xrc;
	body->line = 0;
	body->line_shift = body->is_fresh = 0;
	body->dest_host = dest_host;
	body->pkey = pkey_of(msg, qp);
	memset(body->pad, 0, sizeof(body->pad));
	if (bytes > NUPA_SEND_INLINE_BYTES || kept != bytes ||
	    !nupa_guard_copy_small(body + 1, payload, bytes))
		nupa_trace_keep((uint8_t *)(body + 1), &data, &span, 1, 0);
	return record;
}

void nupa_trace_put_place(struct nupa_trace_record *record, const struct nupa_tx *tx)
{
	struct nupa_trace_message *body = (struct nupa_trace_message *)(void *)(record + 1);

	body->msg.tag = (uint32_t)(tx->tail >> tx->lap_shift) + 1;
	body->line = (uint16_t)(tx->tail & (tx->n_lines - 1));
	body->line_shift = (uint8_t)tx->lap_shift;
	body->is_fresh = nupa_tx_is_fresh(tx);
	body->data.ahead = (uint32_t)(tx->tail - tx->head_seen);
}

static bool is_request(const struct nupa_msg *msg)
{
	return msg->op >= NUPA_OP_SEND && msg->op <= NUPA_OP_ATOMIC;
}

/* I5: what a line has room for. */
static uint32_t in_line(const struct nupa_msg *msg, const uint8_t *payload, uint32_t bytes)
{
	return bytes <= sizeof(*msg) - (size_t)(payload - (const uint8_t *)msg) ? bytes : 0;
}

void nupa_trace_send(struct nupa_engine *engine, const struct nupa_channel *channel,
		     const struct nupa_msg *line)
{
	const struct nupa_msg copy = *line, *msg = &copy; /* others may write to it (I5) */
	const struct nupa_qp *qp = nupa_qp_find(engine, msg->src_qpn);
	bool request = qp && is_request(msg);
	uint32_t bytes = has_payload(msg) ? msg->length_bytes : 0;
	struct nupa_trace_record *record;
	const uint8_t *payload;
	uint64_t start;

	__atomic_signal_fence(__ATOMIC_SEQ_CST); /* the copy is what counts from here on */
	if (channel->wired) {                    /* T4: the packet that it becomes is recorded */
		if (request)
			nupa_trace_note(channel, qp);
		return;
	}
	if (request && msg->op == NUPA_OP_WRITE && !bytes && msg->reth.total_bytes)
		return; /* its data went directly, and is recorded so */
	payload = inline_payload(msg, qp);
	if (msg->flags & NUPA_F_DMA) {
		if (bytes > nupa_dma_payload_max(channel->tx.dma_bytes))
			bytes = 0;
		nupa_dma_span(channel->tx.dma_tail, channel->tx.dma_bytes, bytes, &start);
		payload = channel->tx.dma + start;
	} else {
		bytes = in_line(msg, payload, bytes);
	}
	record = nupa_trace_put_message(engine, msg, qp, channel->peer_host, payload, bytes,
					engine->now_ns());
	record->peer = (uint16_t)channel->peer;
	nupa_trace_put_place(record, &channel->tx);
	if (request) {
		record->transfer = NUPA_TRANSFER(msg->src_qpn, qp->sq.issued);
		record->flags = nupa_trace_is_again(qp);
	}
	nupa_trace_end(engine);
}

void nupa_trace_received(struct nupa_engine *engine, uint32_t peer, const struct nupa_msg *msg,
			 const uint8_t *payload, uint8_t flags)
{
	const struct nupa_qp *qp = nupa_qp_find(engine, msg->dest_qpn);
	uint32_t bytes = has_payload(msg) ? msg->length_bytes : 0;
	struct nupa_trace_record *record;

	if (!payload) {
		payload = inline_payload(msg, qp);
		bytes = in_line(msg, payload, bytes);
	}
	record =
	    nupa_trace_put_message(engine, msg, qp, engine->host, payload, bytes, engine->now_ns());
	record->peer = (uint16_t)peer;
	record->flags = flags;
	nupa_trace_end(engine);
}

/* --- direct access ------------------------------------------------------------------- */

static uint64_t pool_off_of(const struct nupa_qp *qp, const struct nupa_wqe *wqe)
{
	const struct nupa_window *window = nupa_window_find(qp->channel, wqe->rkey);
	uint64_t pool_off;

	if (!window || !window->word)
		return UINT64_MAX;
	pool_off =
	    nupa_load_relaxed(&qp->channel->peer_mrs[wqe->rkey >> NUPA_KEY_VARIANT_BITS].pool_off);
	return pool_off == UINT64_MAX ? UINT64_MAX : pool_off + (wqe->raddr - window->iova);
}

void nupa_trace_direct(struct nupa_qp *qp, const struct nupa_wqe *wqe,
		       const struct nupa_span *spans, uint32_t n_spans, uint64_t begun_ns)
{
	struct nupa_engine *engine = qp->engine;
	bool atomic =
	    wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint32_t total = atomic ? 0 : wqe->length_bytes;
	uint32_t offset = 0;
	struct nupa_trace_direct body = {
		.opcode = wqe->opcode,
		.src_qpn = qp->ibv.qp_num,
		.dest_qpn = qp->dest_qpn,
		.dest_host = qp->channel->peer_host,
		.rkey = wqe->rkey,
		.imm = wqe->imm,
		.raddr = wqe->raddr,
		.pool_off = pool_off_of(qp, wqe),
		.message_bytes = wqe->length_bytes,
		.compare_add = wqe->compare_add,
		.swap = wqe->swap,
		.mover = (uint8_t)qp->channel->mover,
		.qp_type = qp->type,
		.is_xrc = qp->xrc != 0,
		.psn = nupa_psn_of(qp->incarnation, qp->next_psn),
		.pkey = qp->pkey,
		.peer_pkey = (uint16_t)(qp->peer_identity >> 48),
	};

	if (!total && wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return; /* the message that tells of it is all of it */
	if (atomic)
		(void)nupa_spans_copy(spans, n_spans, 0, &body.original, sizeof(body.original),
				      false);
	do {
		uint32_t chunk = total - offset < NUPA_TRACE_CHUNK_BYTES ? total - offset
									 : NUPA_TRACE_CHUNK_BYTES;
		struct nupa_trace_record *record;
		uint32_t kept;

		body.offset_bytes = offset;
		body.data = nupa_trace_plan(engine, chunk, nupa_qp_mtu_bytes(qp));
		kept = nupa_trace_kept_bytes(&body.data);
		record = nupa_trace_begin(engine, NUPA_TRACE_DIRECT, (uint32_t)sizeof(body) + kept,
					  begun_ns);
		memcpy(record + 1, &body, sizeof(body));
		record->peer = (uint16_t)qp->channel->peer;
		record->data_bytes = kept;
		record->transfer = NUPA_TRANSFER(qp->ibv.qp_num, qp->sq.issued);
		nupa_trace_keep((uint8_t *)(record + 1) + sizeof(body), &body.data, spans, n_spans,
				offset);
		nupa_trace_end(engine);
		offset += chunk;
	} while (offset < total);
}
