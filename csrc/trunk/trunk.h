/* SPDX-License-Identifier: BSD-3-Clause
 * The trunk: a process on each machine of a fabric that spans several.  It carries messages of
 * channels between slots of this machine and slots of others, and keeps the others' slots in this
 * machine's copy of the segment. */
#ifndef NUPA_TRUNK_H
#define NUPA_TRUNK_H

#include "segment/slot/machine.h"

/* cffi: begin */
struct nupa_trunk;

/* Numbers of IPv4 or IPv6, no names. */
struct nupa_trunk_address {
	char address[64];
	uint32_t port;
};

struct nupa_trunk_config {
	struct nupa_trunk_address listen;    /* port 0: any; see nupa_trunk_port */
	struct nupa_trunk_address *machines; /* by number, `machines` of them; ours is not read */
	uint32_t n_machines;                 /* as in the segment */
	const char *library;                 /* libucp's name or path; NULL: libucp.so.0 */
};

/* Opens the trunk of this machine: nothing of it runs yet.  0 or a negative errno, and *why*:
 * EINVAL: the fabric has no trunk, or addresses are wrong; EBUSY: another trunk process serves the
 * fabric; ENOENT: no such library; ELIBBAD: it is not UCX 1.11 or later, or it loaded a drop-in
 * library of NUPA; EADDRINUSE, ...: it cannot listen. */
int nupa_trunk_open(struct nupa_fabric *fabric, const struct nupa_trunk_config *config,
		    struct nupa_trunk **out, char *why, size_t why_bytes);
/* Where it listens. */
uint32_t nupa_trunk_port(const struct nupa_trunk *trunk);
/* UCX's version, "1.13.1", and the path of its library. */
const char *nupa_trunk_engine(const struct nupa_trunk *trunk);
/* Carries messages until nupa_trunk_stop: 0, or a negative errno, and *why*. */
int nupa_trunk_run(struct nupa_trunk *trunk, char *why, size_t why_bytes);
/* Makes nupa_trunk_run return.  From any thread or signal handler. */
void nupa_trunk_stop(struct nupa_trunk *trunk);
/* The other machines' slots are free then.  NULL is ignored. */
void nupa_trunk_close(struct nupa_trunk *trunk);
/* cffi: end */

#endif
