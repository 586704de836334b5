/* SPDX-License-Identifier: BSD-3-Clause
 * Writing records, for the files behind trace.h. */
#ifndef NUPA_TRACE_INTERNAL_H
#define NUPA_TRACE_INTERNAL_H

#include "engine/channel/channel.h"
#include "engine/core/qp.h"
#include "engine/trace/trace.h"

/* Room for a record with *body_bytes* behind its head: all of it is the caller's to fill. */
struct nupa_trace_record *nupa_trace_begin(struct nupa_engine *engine, uint8_t kind,
					   uint32_t body_bytes, uint64_t time_ns);
void nupa_trace_end(struct nupa_engine *engine);
struct nupa_trace_record *nupa_trace_put_message(struct nupa_engine *engine,
						 const struct nupa_msg *msg,
						 const struct nupa_qp *qp, uint32_t dest_host,
						 const uint8_t *payload, uint32_t bytes,
						 uint64_t now_ns);
/* The parts to keep of a payload of *bytes* in packets of *mtu_bytes*; how much that is; and takes
 * them. */
struct nupa_trace_data nupa_trace_plan(const struct nupa_engine *engine, uint32_t bytes,
				       uint32_t mtu_bytes);
uint32_t nupa_trace_kept_bytes(const struct nupa_trace_data *data);
void nupa_trace_keep(uint8_t *to, const struct nupa_trace_data *data, const struct nupa_span *spans,
		     uint32_t n_spans, uint64_t offset);
/* A request is about to be published in the ring of a wire. */
void nupa_trace_note(const struct nupa_channel *channel, const struct nupa_qp *qp);
/* The flag of a request that was sent before. */
static inline uint8_t nupa_trace_is_again(const struct nupa_qp *qp)
{
	return qp->sq.issued < qp->sq.begun ? NUPA_TRACE_RETRY : 0;
}
/* Where the line lies that is published next. */
void nupa_trace_put_place(struct nupa_trace_record *record, const struct nupa_tx *tx);

#endif
