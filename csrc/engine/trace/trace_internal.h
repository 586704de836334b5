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
/* Where the line lies that is published next. */
void nupa_trace_put_place(struct nupa_trace_record *record, const struct nupa_tx *tx);

#endif
