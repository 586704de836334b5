/* SPDX-License-Identifier: BSD-3-Clause
 * TLPs at the ports of hosts, as if the engines that move the data were in the switch.  They read
 * and write hosts' memory through the hosts' ports.  The host itself loads and stores data in the
 * pool. */
#include "capture/expand/expand.h"

#include "abi/verbs_abi.h"

/* Addresses that no memory has, so that accesses to them are recognisable: the device's doorbells,
 * and the completion queues in a host's memory. */
#define DOORBELLS_AT UINT64_C(0xd000000000)
#define CQS_AT UINT64_C(0xc000000000)
#define CQ_BYTES (1u << 20)
#define CQE_BYTES 64u

/* Requester IDs: bus, device, function of a host's root port, and of the engine in the switch. */
#define HOST_ID 0x0000
#define ENGINE_ID 0x0100

void nupa_tlp_remember(struct nupa_watch *watch, uint64_t transfer,
		       const struct nupa_trace_wqe *wqe)
{
	struct nupa_memory *memory;

	if (!watch->memories || !transfer)
		return;
	memory = &watch->memories[nupa_transfer_place(transfer) % NUPA_MEMORIES];
	*memory = (struct nupa_memory){
		.transfer = transfer,
		.is_inline = wqe->flags & IBV_SEND_INLINE,
	};
	for (uint32_t i = 0; i < wqe->n_sge && !memory->is_inline; i++) {
		struct ibv_sge sge;

		memcpy(&sge, (const uint8_t *)(wqe + 1) + i * sizeof(sge), sizeof(sge));
		if (sge.length && memory->n < NUPA_PIECES_MAX)
			memory->pieces[memory->n++] = (struct nupa_piece){ sge.addr, sge.length };
	}
}

/* Where [offset, +bytes) of a work request's data lies; false: in the request itself. */
static bool locate(const struct nupa_watch *watch, uint64_t transfer, uint64_t offset,
		   uint64_t bytes, struct nupa_tlp *tlp)
{
	const struct nupa_memory *memory =
	    &watch->memories[nupa_transfer_place(transfer) % NUPA_MEMORIES];

	tlp->n_pieces = 0;
	if (transfer && memory->transfer == transfer) {
		if (memory->is_inline)
			return false;
		for (uint32_t i = 0; i < memory->n && bytes; i++) {
			struct nupa_piece piece = memory->pieces[i];
			uint64_t skip = offset < piece.bytes ? offset : piece.bytes;

			offset -= skip;
			piece.address += skip;
			piece.bytes -= skip;
			if (piece.bytes > bytes)
				piece.bytes = bytes;
			bytes -= piece.bytes;
			if (piece.bytes)
				tlp->pieces[tlp->n_pieces++] = piece;
		}
	}
	if (bytes) { /* not recorded: the place is unknown */
		if (tlp->n_pieces == NUPA_PIECES_MAX)
			tlp->pieces[NUPA_PIECES_MAX - 1].bytes += bytes;
		else
			tlp->pieces[tlp->n_pieces++] = (struct nupa_piece){ 0, bytes };
	}
	return true;
}

static struct nupa_run *add_run(struct nupa_watch *watch, enum nupa_access access, uint32_t host,
				enum nupa_direction direction, uint64_t transfer, uint16_t flags)
{
	const bool cxl = access >= NUPA_ACCESS_CXL_LOAD;
	struct nupa_run *run = nupa_run_add(
	    watch, NUPA_LEVEL_TLP, cxl ? NUPA_KIND_CXL_MEM : NUPA_KIND_PCIE_TLP, transfer, flags);

	run->how = NUPA_RUN_TLP;
	run->tlp.access = (uint8_t)access;
	run->tlp.host = (uint16_t)host;
	run->tlp.requester = direction == NUPA_OUTBOUND ? HOST_ID : ENGINE_ID;
	run->tlp.completer = direction == NUPA_OUTBOUND ? ENGINE_ID : HOST_ID;
	run->tlp.poisoned = flags & NUPA_FLAG_POISON;
	nupa_sights_port(watch, host, direction, &run->cast);
	return run;
}

static void at_one(struct nupa_tlp *tlp, uint64_t address, uint64_t bytes)
{
	tlp->n_pieces = 1;
	tlp->pieces[0] = (struct nupa_piece){ address, bytes };
}

/* --- queues -------------------------------------------------------------------------- */

void nupa_tlp_doorbell(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t host, const struct nupa_trace_doorbell *bell)
{
	struct nupa_run *run =
	    add_run(watch, NUPA_ACCESS_WRITE, host, NUPA_OUTBOUND, record->transfer, 0);
	const uint64_t at =
	    (uint64_t)(bell->number & 0xffffff) * 16 + (bell->queue == NUPA_QUEUE_CQ ? 8 : 0);

	at_one(&run->tlp, DOORBELLS_AT + at, 8);
	run->tlp.data = (struct nupa_data){ (const uint8_t *)&bell->index, 8, 8, 8 };
}

void nupa_tlp_cqe(struct nupa_watch *watch, const struct nupa_trace_record *record,
		  uint64_t transfer, uint32_t host, const struct nupa_trace_cqe *cqe)
{
	struct nupa_run *run =
	    add_run(watch, NUPA_ACCESS_WRITE, host, NUPA_INBOUND, transfer, nupa_flags_of(record));
	const uint64_t at =
	    (uint64_t)(cqe->cq & 0xffff) * CQ_BYTES + (uint64_t)cqe->index * CQE_BYTES % CQ_BYTES;

	at_one(&run->tlp, CQS_AT + at, CQE_BYTES);
	run->tlp.data = (struct nupa_data){ watch->entry, CQE_BYTES, CQE_BYTES, CQE_BYTES };
	run->cast.ends_transfer = !cqe->is_receive;
}

/* --- data ---------------------------------------------------------------------------- */

static struct nupa_data data_of(const struct nupa_trace_record *record,
				const struct nupa_trace_data *data, const void *from)
{
	return (struct nupa_data){ from, record->data_bytes, data->mtu_bytes, data->piece_bytes };
}

/* The engine's read or write at a host; NULL: none. */
static struct nupa_run *move(struct nupa_watch *watch, enum nupa_access access, uint32_t host,
			     uint64_t transfer, uint16_t flags, uint64_t bytes,
			     struct nupa_data data)
{
	struct nupa_run *run;

	if (!bytes)
		return NULL;
	run = add_run(watch, access, host, NUPA_INBOUND, transfer, flags);
	run->tlp.data = data;
	return run;
}

/* The data that a work request sends, or fetches, at its host. */
static void move_local(struct nupa_watch *watch, enum nupa_access access, uint32_t host,
		       uint64_t transfer, uint16_t flags, uint64_t offset, uint64_t bytes,
		       struct nupa_data data)
{
	struct nupa_run *run = move(watch, access, host, transfer, flags, bytes, data);

	if (run && !locate(watch, transfer, offset, bytes, &run->tlp))
		run->n = 0;
}

/* The same in a peer's memory. */
static void move_remote(struct nupa_watch *watch, enum nupa_access access, uint32_t host,
			uint64_t transfer, uint16_t flags, uint64_t address, uint64_t bytes,
			struct nupa_data data)
{
	struct nupa_run *run = move(watch, access, host, transfer, flags, bytes, data);

	if (run)
		at_one(&run->tlp, address, bytes);
}

static struct nupa_data word(const uint64_t *value)
{
	return (struct nupa_data){ (const uint8_t *)value, 8, 8, 8 };
}

/* An atomic at its target, whose operands are in the record or known from the request. */
static void change_remote(struct nupa_watch *watch, uint32_t host, enum nupa_direction direction,
			  enum nupa_access access, uint64_t transfer, uint16_t flags,
			  uint64_t address, bool swaps, uint64_t compare_add, uint64_t swap,
			  uint64_t original)
{
	struct nupa_run *run;

	if (address & 7)
		return; /* it is refused */
	run = add_run(watch, access, host, direction, transfer, flags);
	at_one(&run->tlp, address, 8);
	run->tlp.words[0] = compare_add;
	run->tlp.words[1] = swap;
	run->tlp.words[2] = original;
	run->tlp.words[3] = original;
	if (!swaps)
		run->tlp.words[3] += compare_add;
	else if (original == compare_add)
		run->tlp.words[3] = swap;
}

void nupa_tlp_request(struct nupa_watch *watch, const struct nupa_trace_record *record,
		      uint32_t from, uint32_t to, uint64_t transfer)
{
	const struct nupa_trace_message *body = (const void *)(record + 1);
	const struct nupa_msg *msg = &body->msg;
	const struct nupa_data data = data_of(record, &body->data, body + 1);
	const uint32_t bytes = body->data.total_bytes;
	const uint16_t flags = nupa_flags_of(record);
	const bool received = record->flags & NUPA_TRACE_BY_RECEIVER;
	uint64_t offset = 0;

	if (!watch->memories)
		return;
	if (msg->op == NUPA_OP_WRITE)
		offset = msg->reth.raddr - nupa_requester_origin(watch, msg->src_qpn,
								 msg->flags & NUPA_F_FIRST,
								 msg->reth.raddr);
	else if (msg->flags & NUPA_F_DMA && body->qp_type != IBV_QPT_UD)
		offset = msg->offset_bytes;
	if (!received)
		move_local(watch, NUPA_ACCESS_READ, from, transfer, flags, offset, bytes, data);
	if (flags & NUPA_FLAG_DROPPED)
		return;
	/* The sender does not know where a receive lies, so no record has it. */
	move_remote(watch, NUPA_ACCESS_WRITE, to, transfer, flags,
		    msg->op == NUPA_OP_WRITE ? msg->reth.raddr : 0, bytes, data);
}

void nupa_tlp_response(struct nupa_watch *watch, const struct nupa_trace_record *record,
		       uint32_t from, uint32_t to, const struct nupa_sent *sent)
{
	const struct nupa_trace_message *body = (const void *)(record + 1);
	const struct nupa_msg *msg = &body->msg;
	const struct nupa_data data = data_of(record, &body->data, body + 1);
	const uint32_t bytes = body->data.total_bytes;
	const uint16_t flags = nupa_flags_of(record);
	const uint64_t transfer = sent->transfer;

	if (!watch->memories || record->flags & NUPA_TRACE_BY_RECEIVER)
		return;
	if (msg->op == NUPA_OP_READ_RESP) {
		move_remote(watch, NUPA_ACCESS_READ, from, transfer, flags,
			    sent->raddr + msg->offset_bytes, bytes, data);
		move_local(watch, NUPA_ACCESS_WRITE, to, transfer, flags, msg->offset_bytes, bytes,
			   data);
		return;
	}
	switch (sent->atomic) {
	case NUPA_ATOMIC_FLUSH: /* a read of nothing comes back when all writes before it are done
				 */
		at_one(&add_run(watch, NUPA_ACCESS_READ, from, NUPA_INBOUND, transfer, flags)->tlp,
		       sent->raddr, 0);
		return;
	case NUPA_ATOMIC_WRITE:
		change_remote(watch, from, NUPA_INBOUND, NUPA_ACCESS_WRITE, transfer, flags,
			      sent->raddr, false, sent->compare_add, 0, 0);
		return;
	default:
		change_remote(watch, from, NUPA_INBOUND,
			      sent->atomic == NUPA_ATOMIC_CAS ? NUPA_ACCESS_CAS
							      : NUPA_ACCESS_FETCH_ADD,
			      transfer, flags, sent->raddr, sent->atomic == NUPA_ATOMIC_CAS,
			      sent->compare_add, sent->swap, msg->original);
		move_local(watch, NUPA_ACCESS_WRITE, to, transfer, flags, 0, 8,
			   word(&msg->original));
		return;
	}
}

void nupa_tlp_direct(struct nupa_watch *watch, const struct nupa_trace_record *record,
		     uint32_t from)
{
	const struct nupa_trace_direct *body = (const void *)(record + 1);
	const struct nupa_data data = data_of(record, &body->data, body + 1);
	const uint64_t bytes = body->data.total_bytes, transfer = record->transfer;
	const bool in_pool = body->pool_off != UINT64_MAX, reads = body->opcode == IBV_WR_RDMA_READ;
	const bool swaps = body->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	const uint16_t flags = nupa_flags_of(record);
	/* The pool is shared: the host itself reaches it, through its own port. */
	const enum nupa_direction direction = in_pool ? NUPA_OUTBOUND : NUPA_INBOUND;
	const uint32_t target = in_pool ? from : body->dest_host;
	const uint64_t address =
	    (in_pool ? body->pool_off & ((UINT64_C(1) << 51) - 1) : body->raddr) +
	    body->offset_bytes;
	struct nupa_run *run;

	if (!watch->memories)
		return;
	if (body->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || swaps) {
		change_remote(watch, target, direction,
			      in_pool ? NUPA_ACCESS_CXL_ATOMIC
			      : swaps ? NUPA_ACCESS_CAS
				      : NUPA_ACCESS_FETCH_ADD,
			      transfer, flags, address, swaps, body->compare_add, body->swap,
			      body->original);
		move_local(watch, NUPA_ACCESS_WRITE, from, transfer, flags, 0, 8,
			   word(&body->original));
		return;
	}
	if (!bytes)
		return;
	if (!reads)
		move_local(watch, NUPA_ACCESS_READ, from, transfer, flags, body->offset_bytes,
			   bytes, data);
	if (in_pool)
		run = add_run(watch, reads ? NUPA_ACCESS_CXL_LOAD : NUPA_ACCESS_CXL_STORE, target,
			      direction, transfer, flags);
	else
		run = add_run(watch, reads ? NUPA_ACCESS_READ : NUPA_ACCESS_WRITE, target,
			      direction, transfer, flags);
	run->tlp.data = data;
	at_one(&run->tlp, address, bytes);
	if (reads)
		move_local(watch, NUPA_ACCESS_WRITE, from, transfer, flags, body->offset_bytes,
			   bytes, data);
}

/* --- one by one ---------------------------------------------------------------------- */

static uint16_t *tags_of(struct nupa_watch *watch, const struct nupa_tlp *tlp)
{
	return &watch->tags[tlp->requester != HOST_ID][tlp->access >= NUPA_ACCESS_CXL_LOAD]
			   [tlp->host];
}

/* The next TLP, of this piece of memory or of the one behind it. */
static bool move_on(struct nupa_watch *watch, struct nupa_tlp *tlp)
{
	while (!nupa_split_next(&tlp->split)) {
		const struct nupa_piece *piece = &tlp->pieces[tlp->piece];

		*tags_of(watch, tlp) = (uint16_t)tlp->split.tag;
		if (tlp->piece == tlp->n_pieces)
			return false;
		tlp->before += tlp->piece ? piece[-1].bytes : 0;
		tlp->piece++;
		nupa_split_begin(&tlp->split, (enum nupa_access)tlp->access, piece->address,
				 piece->bytes, *tags_of(watch, tlp));
	}
	return true;
}

bool nupa_tlp_begin(struct nupa_watch *watch, struct nupa_tlp *tlp)
{
	tlp->split.done = true;
	tlp->split.tag = *tags_of(watch, tlp);
	return move_on(watch, tlp);
}

bool nupa_tlp_next(struct nupa_watch *watch, struct nupa_tlp *tlp)
{
	return move_on(watch, tlp);
}

bool nupa_tlp_is_last(const struct nupa_tlp *tlp)
{
	return tlp->piece == tlp->n_pieces && nupa_split_is_last(&tlp->split);
}

/* [offset, +bytes) of the recorded data, up to the first byte that was not recorded. */
static uint32_t copy_data(const struct nupa_data *data, uint64_t offset, uint32_t bytes,
			  uint8_t *out)
{
	uint32_t done = 0;

	while (done < bytes && data->piece_bytes) {
		const uint64_t packet = (offset + done) / data->mtu_bytes;
		const uint32_t in = (uint32_t)((offset + done) % data->mtu_bytes);
		const uint64_t at = packet * data->piece_bytes + in;
		uint32_t n = bytes - done;

		if (in >= data->piece_bytes || at >= data->bytes)
			break;
		if (n > data->piece_bytes - in)
			n = data->piece_bytes - in;
		if (n > data->bytes - at)
			n = (uint32_t)(data->bytes - at);
		memcpy(out + done, data->at + at, n);
		done += n;
	}
	return done;
}

uint32_t nupa_tlp_build(const struct nupa_tlp *tlp, uint8_t *out, uint32_t *original_bytes)
{
	const struct nupa_split *split = &tlp->split;
	uint32_t data_at, got, wanted = split->bytes;

	*original_bytes =
	    nupa_split_build(split, tlp->requester, tlp->completer, tlp->poisoned, out, &data_at);
	switch (split->carries) {
	case NUPA_CARRIES_DATA:
		if (!tlp->data.at) { /* an ATOMIC WRITE's */
			memcpy(out + data_at, tlp->words, split->bytes);
			return *original_bytes;
		}
		got = copy_data(&tlp->data, tlp->before + split->offset, wanted, out + data_at);
		return got == wanted ? *original_bytes : data_at + got;
	case NUPA_CARRIES_OPERANDS:
		memcpy(out + data_at, tlp->words, (size_t)4 * split->dw);
		break;
	case NUPA_CARRIES_OLD:
		memcpy(out + data_at, &tlp->words[2], 8);
		break;
	case NUPA_CARRIES_NEW:
		memcpy(out + data_at, &tlp->words[3], 8);
		break;
	default:
		break;
	}
	return *original_bytes;
}
