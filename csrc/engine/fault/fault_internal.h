/* SPDX-License-Identifier: BSD-3-Clause
 * What the files behind fault.h share, and what the engine sees of them. */
#ifndef NUPA_FAULT_INTERNAL_H
#define NUPA_FAULT_INTERNAL_H

#include "engine/core/engine.h"
#include "engine/fault/fault.h"

/* --- fault.c: the table -------------------------------------------------------------- */

/* When a fault is over: by its time, or, its hits used up, when the last one's effect is. */
uint64_t nupa_fault_end_ns(const struct nupa_fault_entry *entry);
bool nupa_fault_lasts(const struct nupa_fault_entry *entry, uint64_t now_ns);
/* Tells all attachments that the table has changed. */
void nupa_fault_announce(struct nupa_fabric *fabric);
/* Brings the port of a flap up, if it is time and nobody else does it. */
bool nupa_fault_heal(struct nupa_fabric *fabric, struct nupa_fault_entry *entry, uint64_t now_ns);

/* --- fault_view.c: an attachment's view of it ---------------------------------------- */

/* A fault as it was found: what of an entry may change under us is read of the entry. */
struct nupa_fault_view {
	uint32_t id; /* 0: none here */
	uint32_t kind;
	uint32_t port;
	uint32_t probability;
	uint64_t seed, after, count;
	uint64_t end_ns;
	uint64_t duration_ns, bytes_per_s;
	struct nupa_fault_entry *entry;
};

struct nupa_faults {
	struct nupa_fault_view views[NUPA_FAULTS_MAX]; /* by place in the table */
	uint64_t next_ns;                              /* when there is something to do */
	struct nupa_list retries;                      /* struct nupa_qp_faults.retry_link */
	struct nupa_list stuck;                        /* struct nupa_qp_faults.stuck_link */
};

/* Something is due at this time. */
void nupa_fault_due(struct nupa_engine *engine, uint64_t at_ns);
/* Whether the fault is still in the table, and lasts. */
bool nupa_fault_is_on(const struct nupa_engine *engine, uint32_t id, uint64_t now_ns);

/* UC, UD: how much longer a message may take than without faults: what holds it back on its way. */
uint64_t nupa_fault_slowest_ns(const struct nupa_engine *engine, uint64_t now_ns);

/* --- fault_judge.c: what becomes of a message ---------------------------------------- */

struct nupa_verdict {
	bool drop, passes, poisoned;
	uint8_t copies;
	uint8_t trace; /* enum nupa_trace_flag */
	uint32_t by;
	uint64_t due_ns;
};

/* Whether no fault concerns it: no link would carry it. */
bool nupa_fault_is_exempt(const struct nupa_msg *msg);
/* By all faults on its way; counts, and does what concerns ports and QPs at once. */
void nupa_fault_judge(struct nupa_engine *engine, const struct nupa_channel *channel,
		      const struct nupa_msg *msg, uint64_t now_ns, struct nupa_verdict *verdict);

/* --- fault_hold.c -------------------------------------------------------------------- */

/* Gives on what is held and due; everything, if all.  When to come again. */
uint64_t nupa_fault_release_held(struct nupa_engine *engine, struct nupa_channel *channel,
				 uint64_t now_ns, bool all);

/* --- retry.c ------------------------------------------------------------------------- */

/* All timers that are due; when the next one is. */
uint64_t nupa_retry_run(struct nupa_engine *engine, uint64_t now_ns);
/* The path of this QP has a fault from now on; or none any more. */
void nupa_retry_begin(struct nupa_qp *qp);
void nupa_retry_end(struct nupa_qp *qp);

#endif
