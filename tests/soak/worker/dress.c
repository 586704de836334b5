/* SPDX-License-Identifier: BSD-3-Clause
 * Possessions of some ends: QPs and an SRQ of XRC, a memory window, words of atomics in device
 * memory.
 */
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define WORDS_BYTES 64u

/* --- XRC ------------------------------------------------------------------------------------- */

void xrc_open(void)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = SRQ_BUFFERS, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = worker.pd,
		.cq = worker.cq,
	};

	worker.xrcd = ibv_open_xrcd(worker.context, &domain);
	must(worker.xrcd, "ibv_open_xrcd");
	attr.xrcd = worker.xrcd;
	worker.xrc_srq = ibv_create_srq_ex(worker.context, &attr);
	must(worker.xrc_srq, "ibv_create_srq_ex");
}

void xrc_close(void)
{
	if (ibv_destroy_srq(worker.xrc_srq) || ibv_close_xrcd(worker.xrcd))
		wrong("the XRC SRQ or its domain did not go");
}

uint32_t xrc_srq_number(void)
{
	uint32_t number = 0;

	must(ibv_get_srq_num(worker.xrc_srq, &number) == 0, "ibv_get_srq_num");
	return number;
}

void xrc_make_qps(struct end *end)
{
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = worker.xrcd,
	};
	struct ibv_qp_init_attr_ex initiator = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = worker.pd,
		.send_cq = worker.cq,
		.cap = { .max_send_wr = STAGES * 2 + 4,
			 .max_send_sge = 4,
			 .max_inline_data = INLINE_BYTES },
	};

	end->recv_qp = ibv_create_qp_ex(worker.context, &target);
	end->qp = ibv_create_qp_ex(worker.context, &initiator);
	must(end->recv_qp && end->qp, "ibv_create_qp_ex of XRC");
}

/* --- windows and device memory --------------------------------------------------------------- */

void dress_put_on(struct end *end, const struct plan *plan)
{
	const uint64_t zeros[WORDS_BYTES / 8] = { 0 };
	struct ibv_alloc_dm_attr device = { .length = WORDS_BYTES, .log_align_req = 3 };

	if (plan->dress & (DRESS_WINDOW_1 | DRESS_WINDOW_2)) {
		end->mw = ibv_alloc_mw(worker.pd, plan->dress & DRESS_WINDOW_1 ? IBV_MW_TYPE_1
									       : IBV_MW_TYPE_2);
		must(end->mw, "ibv_alloc_mw");
	}
	if (!(plan->dress & DRESS_DEVICE))
		return;
	end->dm = ibv_alloc_dm(worker.context, &device);
	must(end->dm, "ibv_alloc_dm");
	must(ibv_memcpy_to_dm(end->dm, 0, zeros, sizeof(zeros)) == 0, "ibv_memcpy_to_dm");
	end->dm_mr = ibv_reg_dm_mr(worker.pd, end->dm, 0, WORDS_BYTES,
				   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
				       IBV_ACCESS_REMOTE_ATOMIC);
	must(end->dm_mr, "ibv_reg_dm_mr");
}

void dress_bind(struct end *end)
{
	struct ibv_mw_bind_info info = {
		.mr = end->mr,
		.addr = (uintptr_t)end->memory + PLACE_WINDOW,
		.length = WINDOWS * MESSAGE_MAX_BYTES,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_mw_bind bind = { .wr_id = WR_ID(WR_BIND, end->id, 0),
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = info };
	struct ibv_send_wr *bad,
	    wr = { .wr_id = bind.wr_id, .send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_BIND_MW };
	int error;

	if (!end->mw)
		return;
	if (end->mw->type == IBV_MW_TYPE_1) {
		error = ibv_bind_mw(end->qp, end->mw, &bind);
	} else {
		wr.bind_mw.mw = end->mw;
		wr.bind_mw.rkey = ibv_inc_rkey(end->mw->rkey);
		wr.bind_mw.bind_info = info;
		error = ibv_post_send(end->qp, &wr, &bad);
		end->mw->rkey = wr.bind_mw.rkey;
	}
	if (error)
		give_up("end %u: binding its window: %s", end->id, strerror(error));
}

static int dealloc_window(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static int free_device(void *dm)
{
	return ibv_free_dm(dm);
}

void dress_take_off(struct end *end)
{
	if (end->mw)
		until_free(dealloc_window, end->mw, "ibv_dealloc_mw");
	if (!end->dm)
		return;
	until_free(dereg, end->dm_mr, "ibv_dereg_mr of device memory");
	must(ibv_memcpy_from_dm(end->memory + PLACE_WORDS, end->dm, 0, WORDS_BYTES) == 0,
	     "ibv_memcpy_from_dm");
	until_free(free_device, end->dm, "ibv_free_dm");
}
