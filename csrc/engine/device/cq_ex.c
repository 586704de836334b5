/* SPDX-License-Identifier: BSD-3-Clause
 * Extended completion queues (man ibv_create_cq_ex): a cursor over completions, read field by
 * field.  From start_poll to end_poll the cursor belongs to one thread; the engine's lock is held
 * for a moment only, because programs post in between.  A batch is the completions that start_poll
 * found.  Later ones show after one ENOENT.  A completion that raised an event of its own is left
 * for that event.  So a program that polls once for each event finds something each time. */
#include "engine/device/device.h"

#include <errno.h>
#include <time.h>

static struct nupa_cq *cq_of(struct ibv_cq_ex *ibv)
{
	return container_of(ibv, struct nupa_cq, ibv_ex);
}

/* Puts the next completion of the batch under the cursor: 0, ENOENT, or EIO after an overrun. */
static int take(struct nupa_cq *cq)
{
	if (cq->head == cq->tail)
		return cq->overrun ? EIO : ENOENT;
	if (cq->batch == 0) {
		cq->batch = (uint32_t)(cq->tail - cq->head);
		return ENOENT;
	}
	cq->batch--;
	cq->cursor = cq->ring[cq->head++ & cq->mask];
	if (unlikely(cq->notes & NUPA_CQ_RECORDED))
		nupa_record_taken(nupa_engine_of(cq->ibv.context)->recorder, cq, cq->head - 1);
	cq->ibv_ex.status = cq->cursor.status;
	cq->ibv_ex.wr_id = cq->cursor.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibv, struct ibv_poll_cq_attr *attr)
{
	struct nupa_cq *cq = cq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(cq->ibv.context);
	int error;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->cursor_mutex);
	nupa_engine_lock(engine);
	if (cq->head == cq->tail)
		nupa_cq_drive(engine, cq);
	cq->batch = (uint32_t)(cq->tail - cq->head);
	error = take(cq);
	nupa_engine_unlock(engine);
	if (error)
		pthread_mutex_unlock(&cq->cursor_mutex);
	return error;
}

static int next_poll(struct ibv_cq_ex *ibv)
{
	struct nupa_cq *cq = cq_of(ibv);
	struct nupa_engine *engine = nupa_engine_of(cq->ibv.context);
	int error;

	nupa_engine_lock(engine);
	error = take(cq);
	nupa_engine_unlock(engine);
	return error;
}

static void end_poll(struct ibv_cq_ex *ibv)
{
	pthread_mutex_unlock(&cq_of(ibv)->cursor_mutex);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ibv)
{
	return cq_of(ibv)->cursor.opcode;
}

#define READER(type, name, value)                                                                  \
	static type read_##name(struct ibv_cq_ex *ibv)                                             \
	{                                                                                          \
		return (type)(value);                                                              \
	}
READER(uint32_t, vendor_err, cq_of(ibv)->cursor.vendor_err)
READER(uint32_t, byte_len, cq_of(ibv)->cursor.byte_len)
READER(uint32_t, imm_data, cq_of(ibv)->cursor.imm)
READER(uint32_t, qp_num, cq_of(ibv)->cursor.qp_num)
READER(uint32_t, src_qp, cq_of(ibv)->cursor.src_qp)
READER(unsigned int, wc_flags, cq_of(ibv)->cursor.wc_flags)
READER(uint32_t, slid, cq_of(ibv)->cursor.slid)
READER(uint8_t, sl, cq_of(ibv)->cursor.sl)
READER(uint64_t, completion_ts, cq_of(ibv)->cursor.timestamp_ns)
#undef READER

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ibv)
{
	(void)ibv; /* LMC is 0 */
	return 0;
}

/* The fabric's clock is CLOCK_MONOTONIC; a wall clock reading is that, shifted. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ibv)
{
	struct timespec wall;

	clock_gettime(CLOCK_REALTIME, &wall);
	return (uint64_t)wall.tv_sec * UINT64_C(1000000000) + (uint64_t)wall.tv_nsec -
	       (nupa_clock_ns() - cq_of(ibv)->cursor.timestamp_ns);
}

#define SUPPORTED_WC_FLAGS                                                                         \
	((uint64_t)IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |                   \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

struct ibv_cq_ex *nupa_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	uint32_t known_flags =
	    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	bool in_domain = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct nupa_cq *cq;

	if (attr->comp_mask & ~known || attr->wc_flags & ~SUPPORTED_WC_FLAGS ||
	    flags & ~known_flags) {
		nupa_unsupported("ibv_create_cq_ex with VLAN, flow tag or tag matching");
		return NULL;
	}
	if (in_domain && (!attr->parent_domain || attr->parent_domain->context != context ||
			  !container_of(attr->parent_domain, struct nupa_pd, ibv)->parent)) {
		errno = EINVAL;
		return NULL;
	}
	cq = nupa_cq_new(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector,
			 in_domain ? attr->parent_domain : NULL);
	if (!cq)
		return NULL;
	cq->ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
	if (attr->wc_flags &
	    (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
		cq->notes |= NUPA_CQ_STAMPED;
	cq->ibv_ex.start_poll = start_poll;
	cq->ibv_ex.next_poll = next_poll;
	cq->ibv_ex.end_poll = end_poll;
	cq->ibv_ex.read_opcode = read_opcode;
	cq->ibv_ex.read_vendor_err = read_vendor_err;
	cq->ibv_ex.read_byte_len = read_byte_len;
	cq->ibv_ex.read_imm_data = read_imm_data;
	cq->ibv_ex.read_qp_num = read_qp_num;
	cq->ibv_ex.read_src_qp = read_src_qp;
	cq->ibv_ex.read_wc_flags = read_wc_flags;
	cq->ibv_ex.read_slid = read_slid;
	cq->ibv_ex.read_sl = read_sl;
	cq->ibv_ex.read_dlid_path_bits = read_dlid_path_bits;
	cq->ibv_ex.read_completion_ts = read_completion_ts;
	cq->ibv_ex.read_completion_wallclock_ns = read_completion_wallclock_ns;
	return &cq->ibv_ex;
}
