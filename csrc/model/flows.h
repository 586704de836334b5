/* SPDX-License-Identifier: BSD-3-Clause
 * The flow engine of nupa.model: operations that share links, max-min fair, without packets.
 *
 * The same as nupa/model/engine/flows/operations.py, which says how; tests compare both.  Times are
 * in ns, rates in bytes/s.  A class is the flows over the same resources: it counts the bytes that
 * each of them was sent, and a flow ends when that count reaches its own mark. */
#ifndef NUPA_MODEL_FLOWS_H
#define NUPA_MODEL_FLOWS_H

#include <stdint.h>

/* cffi: begin */
enum nupa_model_flow_cause {
	NUPA_MODEL_AT_ONCE, /* it waited for nothing */
	NUPA_MODEL_AFTER,   /* for the completion of `cause` */
	NUPA_MODEL_IN_TURN, /* for its lane, which `cause` occupied */
};

/* An operation has a class, or takes `before_ns` alone: then its class is NONE (UINT32_MAX). */
struct nupa_model_flow_work {
	uint32_t operations, classes, resources, lanes, connections;
	const uint32_t *lane; /* a thread: it starts one operation at a time */
	const uint32_t *class_of;
	const uint32_t *connection;  /* its flows follow each other; of a class, or NONE */
	const double *bytes;         /* on the wire */
	const double *before_ns;     /* from its start to its first byte on the wire */
	const double *after_ns;      /* from its last byte to its completion */
	const double *busy_ns;       /* from its start until its lane starts another */
	const uint32_t *after_start; /* operations + 1 indices into `after` */
	const uint32_t *after;       /* operations that must have completed */
	const double *limit;         /* of a flow of each class; or infinite */
	const uint32_t *use_start;   /* classes + 1 indices into `use` */
	const uint32_t *use;         /* resources */
	const double *part;          /* of a flow's rate that the resource carries */
	const double *capacity;      /* of each resource */
};

/* The caller's arrays, an entry for each operation.  `bound`: the resource that set a flow's rate
 * when it ended; NONE: its limit. */
struct nupa_model_flow_result {
	double *ready_ns, *end_ns;
	uint32_t *cause, *bound;
	uint8_t *why; /* enum nupa_model_flow_cause */
	double received_bytes;
	uint64_t events;
};

/* The number of operations that never complete, whose end is -1; or -1: no memory; -2: an index
 * beyond its array, starts that fall, or a number that is none, is negative, or 0 where it divides.
 */
int64_t nupa_model_flows_run(const struct nupa_model_flow_work *work,
			     struct nupa_model_flow_result *result);
/* cffi: end */

#endif
