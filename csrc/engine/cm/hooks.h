/* SPDX-License-Identifier: BSD-3-Clause
 * Functions of connection management that the engine calls, all with its lock. */
#ifndef NUPA_CM_HOOKS_H
#define NUPA_CM_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

struct nupa_channel;
struct nupa_engine;
struct nupa_msg;

/* A message of op NUPA_OP_CM; false: nonsense. */
bool nupa_cm_receive(struct nupa_engine *engine, struct nupa_channel *channel,
		     const struct nupa_msg *msg, const uint8_t *payload);
/* A datagram of QP 1 from the host of a wire: the index of its entry, and the GID of the address
 * from which it came. */
void nupa_cm_receive_mad(struct nupa_engine *engine, uint32_t index, const uint8_t *mad,
			 uint32_t bytes, const uint8_t source[16]);
/* The peer at its end is gone. */
void nupa_cm_lose_peer(struct nupa_engine *engine, const struct nupa_channel *channel);
/* engine->cm_owes, or a port changed: what waits for room or for a path may go. */
void nupa_cm_flush(struct nupa_engine *engine);
/* When nupa_cm_run_timers is to be called; UINT64_MAX: not. */
uint64_t nupa_cm_next_timer_ns(const struct nupa_engine *engine);
void nupa_cm_run_timers(struct nupa_engine *engine);
void nupa_cm_free(struct nupa_engine *engine);

#endif
