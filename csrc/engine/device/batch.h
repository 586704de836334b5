/* SPDX-License-Identifier: BSD-3-Clause
 * Arrays of work requests and completions in one call: for callers, such as Python, to whom each
 * call is dear. */
#ifndef NUPA_BATCH_H
#define NUPA_BATCH_H

#include "engine/core/nupa.h"

/* cffi: begin */
/* Links wr[0 .. n) into one list and posts it: 0 or an errno value.  The first *posted ones were
 * accepted; wr[*posted] was refused.  n = 0 posts nothing. */
int nupa_batch_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, uint32_t n, uint32_t *posted);
int nupa_batch_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, uint32_t n, uint32_t *posted);
int nupa_batch_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, uint32_t n,
			     uint32_t *posted);

/* Polls until *at_least* completions are in wc[0 .. n), or timeout_ns have passed: returns how
 * many there are.  Where ibv_poll_cq fails this does likewise, after what was polled before was
 * returned.  at_least = 0 polls once. */
int nupa_batch_poll(struct ibv_cq *cq, uint32_t at_least, uint32_t n, struct ibv_wc *wc,
		    uint64_t timeout_ns);
/* cffi: end */

#endif
