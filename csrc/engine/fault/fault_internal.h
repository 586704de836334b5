/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by the files behind fault.h, and called by the engine. */
#ifndef NUPA_FAULT_INTERNAL_H
#define NUPA_FAULT_INTERNAL_H

#include "engine/fault/fault.h"
#include "engine/transport/transport.h"

/* --- fault.c: the table -------------------------------------------------------------- */

/* When a fault is over: by its time, or, its hits used up, when the last one's effect is. */
uint64_t nupa_fault_end_ns(const struct nupa_fault_entry *entry);
bool nupa_fault_lasts(const struct nupa_fault_entry *entry, uint64_t now_ns);
/* Whether the fault is still in the table, and lasts. */
bool nupa_fault_is_on(const struct nupa_engine *engine, uint32_t id, uint64_t now_ns);
/* Tells all attachments that the table has changed. */
void nupa_fault_announce(struct nupa_fabric *fabric);
/* Brings the port of a flap up, if it is time and no other process does it. */
bool nupa_fault_heal(struct nupa_fabric *fabric, struct nupa_fault_entry *entry, uint64_t now_ns);

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

/* --- calls of the engine ------------------------------------------------------------- */

/* fault_view.c: takes over the table of faults as it is now; executes what is due. */
void nupa_fault_follow(struct nupa_engine *engine);
/* Timers of requesters may run from now on, without a fault. */
void nupa_fault_need(struct nupa_engine *engine);
void nupa_fault_run(struct nupa_engine *engine);
uint64_t nupa_fault_next_timer_ns(const struct nupa_engine *engine);
/* The faults on the way to and from this peer. */
void nupa_fault_look(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_fault_free(struct nupa_engine *engine);
/* fault_hold.c: true: what comes next stays in the ring. */
bool nupa_fault_blocks(struct nupa_engine *engine, struct nupa_channel *channel);
/* Judges a message and does with it what it finds; false: nonsense. */
bool nupa_fault_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			const struct nupa_msg *msg, const uint8_t *payload);
void nupa_fault_free_held(struct nupa_channel *channel);

#endif
