/* SPDX-License-Identifier: BSD-3-Clause
 * The keeper of wires behind one local address.  Processes speak RoCE v2 by sockets that the keeper
 * makes for them; it attends to all that is not one process's: who gets which packet, connection
 * management on QP 1, the path MTU, and whether the other end answers.
 *
 *   keeper.c   the loop; wires that come and go
 *   member.c   processes: hello, welcome, hang-up
 *   medium.h   what a kind of wire is made of: udp.c, with its steering program in steer.c
 *   forward.c  packets for others: QP 1, and those that came by another socket
 *   notes.c    connections, whose other ends are told of a death
 *   probe.c    round trips, the path MTU, the state of a wire
 *
 * One thread uses a keeper. */
#ifndef NUPA_KEEPER_H
#define NUPA_KEEPER_H

#include "segment/slot/wire.h"

/* cffi: begin */
struct nupa_keeper;

/* For the wires whose local address is *local*, a GID; NULL with errno and *why*. */
struct nupa_keeper *nupa_keeper_open(struct nupa_fabric *fabric, const uint8_t local[16], char *why,
				     size_t why_bytes);
/* Ends its wires, too; the caller holds the control lock. */
void nupa_keeper_close(struct nupa_keeper *keeper);

/* Attaches to a host and makes it a wire to *remote*: its index; the caller holds the control lock.
 * *medium*: enum nupa_wire_medium.  *path*: of the socket for processes, which is replaced; what
 * FRAMES opens for its guest is at *guest*.  Errors: as nupa_wire_add; -EADDRINUSE,
 * -EADDRNOTAVAIL, -ENETUNREACH, -EMSGSIZE, -EPERM; *why* says what to do. */
int nupa_keeper_add(struct nupa_keeper *keeper, uint32_t host, const uint8_t remote[16],
		    uint32_t medium, const char *path, const char *guest, char *why,
		    size_t why_bytes);
/* Ends the wire to a host: 0 or -ENOENT; same lock. */
int nupa_keeper_remove(struct nupa_keeper *keeper, uint32_t host);
/* How many it has. */
uint32_t nupa_keeper_wires(const struct nupa_keeper *keeper);

enum nupa_keeper_event {
	NUPA_KEEPER_TIME,    /* timeout_ms have passed */
	NUPA_KEEPER_WOKEN,   /* *wake* is readable */
	NUPA_KEEPER_REQUEST, /* a command (`nupa wire`) has a request */
	NUPA_KEEPER_FENCED,  /* others declared this process dead */
};
/* Serves its wires until an event.  A request is *text*, which ends, and the answer goes to *fd*,
 * the caller's then. */
enum nupa_keeper_event nupa_keeper_run(struct nupa_keeper *keeper, int wake, int timeout_ms,
				       char *text, size_t text_bytes, int *fd);

/* The address that the network sends from towards *remote*, and the largest IP packet that goes
 * there.  *local* of zeros is filled; 0 or -errno and *why*. */
int nupa_wire_path(const uint8_t remote[16], uint8_t local[16], uint32_t *ip_bytes, char *why,
		   size_t why_bytes);
/* The largest RoCE MTU in IP packets of that size; 0: even the least does not fit. */
uint32_t nupa_wire_mtu_of_path(uint32_t ip_bytes);
/* cffi: end */

#endif
