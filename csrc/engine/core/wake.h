/* SPDX-License-Identifier: BSD-3-Clause
 * The sleep of port threads, and the ways to wake them. */
#ifndef NUPA_WAKE_H
#define NUPA_WAKE_H

#include "engine/core/engine.h"

/* wake.c */
void nupa_port_wake(struct nupa_engine *engine);      /* our own port thread, if it sleeps */
void nupa_port_wake_hard(struct nupa_engine *engine); /* the same without a look */

/* A peer's, regardless of its doorbell. */
void nupa_port_knock(struct nupa_engine *engine, struct nupa_slot *slot);

void nupa_port_app_drives(struct nupa_engine *engine); /* the program spins on poll_cq */
void nupa_port_takes_over(struct nupa_engine *engine); /* it waits for events instead */
/* P3, P4, P8: the fence of all producers; false: those had none that only learn now that they are
 * to fence by themselves. */
bool nupa_port_barrier(struct nupa_engine *engine);
/* Whether the kernel has that fence. */
bool nupa_barrier(void);

/* *engine->bell while the port thread sleeps: on that word, or in nupa_bell_sleep(). */
enum nupa_asleep { NUPA_ON_FUTEX = 1, NUPA_AT_DOORBELL = 2 };

/* bell.c.  Opens the fabric's bell, if NUPA_BELL says where; engine->rings says whether. */
void nupa_bell_attach(struct nupa_engine *engine);
void nupa_bell_detach(struct nupa_engine *engine);
/* C3: the port thread is about to sleep, or is awake. */
void nupa_bell_announce(struct nupa_engine *engine);
void nupa_bell_awake(struct nupa_engine *engine);
/* Whether all attached processes can ring. */
bool nupa_bell_heard_by_all(const struct nupa_engine *engine);
/* Sleeps until a process rings or nupa_bell_wake() is called, or may have been. */
void nupa_bell_sleep(struct nupa_engine *engine, uint64_t timeout_ns);
void nupa_bell_wake(struct nupa_engine *engine);
/* P3: our message was stored; rings the owner of the slot if it sleeps.  rung: the last of its
 * sleeps for which we rang. */
void nupa_bell_call(struct nupa_engine *engine, const struct nupa_slot *slot, uint32_t *rung);

#endif
