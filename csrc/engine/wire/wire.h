/* SPDX-License-Identifier: BSD-3-Clause
 * Wires: hosts that are reached by RoCE v2.  Requester and responder write messages for such a host
 * into the ring of the channel to the keeper's slot, as for any peer.  This folder takes them out
 * again in the same process, makes a packet of each and sends it; packets that come are judged as
 * injected ones are (engine/inject).
 *
 *   W4  A channel to a keeper is `wired`: faulty for ever, as messages may be lost, and open, as
 *       nobody opens the other direction.  Its ring has us at both ends.
 *   W5  All is done with the engine's lock, by whoever runs the engine: the program's thread while
 *       it polls, else the wire's thread, which sleeps on the sockets. */
#ifndef NUPA_ENGINE_WIRE_H
#define NUPA_ENGINE_WIRE_H

#include "engine/transport/transport.h"

/* Whether this attachment has wires; false: hosts of wires are out of its reach. */
bool nupa_wires_carried(void);
/* A channel to a keeper has been made: the port to its wire is opened.  And: the channel ends. */
void nupa_wire_opened(struct nupa_engine *engine, struct nupa_channel *channel);
void nupa_wire_closed(struct nupa_engine *engine, const struct nupa_channel *channel);
/* The table of wires may have changed. */
void nupa_wires_follow(struct nupa_engine *engine);
/* Opens the ports of all wires, now and when there are more. */
void nupa_wires_meet(struct nupa_engine *engine);
/* Takes what has come, and sends what is due; returns how many packets came. */
uint32_t nupa_wires_run(struct nupa_engine *engine);
/* Sends what lies in the rings. */
void nupa_wires_flush(struct nupa_engine *engine);
/* The program has posted requests to this QP. */
void nupa_wires_posted(struct nupa_engine *engine, struct nupa_qp *qp);
/* A datagram from QP 1 to the host of a wire: lost, if it cannot leave now. */
void nupa_wire_send_mad(struct nupa_engine *engine, uint32_t index, uint16_t pkey,
			const uint8_t *mad);
/* The program does not poll any more: the wires' threads take over. */
void nupa_wires_wake(struct nupa_engine *engine);
/* Without the engine's lock: ends the threads and closes the ports. */
void nupa_wires_stop(struct nupa_engine *engine);

#endif
