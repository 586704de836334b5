/* SPDX-License-Identifier: BSD-3-Clause
 * The backlog of a QP of UC or UD: messages that wait for a receive (backlog.c). */
#ifndef NUPA_BACKLOG_H
#define NUPA_BACKLOG_H

#include "engine/queue/queue.h"

/* A message that has passed all checks but that of a receive.  True: it is in the backlog, or was
 * dropped and counted; false: it goes on.  grh: UD. */
bool nupa_backlog_take(struct nupa_qp *qp, const struct nupa_channel *channel,
		       const struct nupa_msg *msg, const uint8_t *payload, const uint8_t *grh);
/* Delivers what has found a receive, drops what has waited for too long.  polled: the program has
 * found this CQ empty; NULL: none. */
void nupa_backlog_run(struct nupa_engine *engine, const struct nupa_cq *polled);
/* The QP does not receive any more. */
void nupa_backlog_drop(struct nupa_qp *qp);
void nupa_backlog_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel);
/* When to run again; UINT64_MAX: there is none. */
uint64_t nupa_backlog_next_timer_ns(const struct nupa_engine *engine, uint64_t now_ns);

#endif
