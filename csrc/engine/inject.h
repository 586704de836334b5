/* SPDX-License-Identifier: BSD-3-Clause
 * Injection: a transport packet that somebody made by hand enters the fabric at a host's port, and
 * is judged by the attachment that owns its destination QP as an adapter judges what comes in. */
#ifndef NUPA_INJECT_H
#define NUPA_INJECT_H

#include "segment.h"

/* cffi: begin */
enum nupa_inject_verdict {
	NUPA_INJECT_EXECUTED = 0,
	NUPA_INJECT_NAKED = 1,   /* syndrome: of the AETH */
	NUPA_INJECT_DROPPED = 2, /* reason says why */
};
enum nupa_inject_reason {
	NUPA_INJECT_NONE = 0,
	NUPA_INJECT_MALFORMED, /* no BTH, headers cut off, lengths that contradict each other */
	NUPA_INJECT_ICRC,
	NUPA_INJECT_PKEY,
	NUPA_INJECT_QKEY,
	NUPA_INJECT_NO_QP,      /* or in a state or of a type that does not take it */
	NUPA_INJECT_PSN,        /* a duplicate, or a gap that was NAKed before */
	NUPA_INJECT_NO_RECEIVE, /* UC, UD */
	NUPA_INJECT_UNSUPPORTED,
	NUPA_INJECT_PATH, /* a port on the way is down */
	NUPA_INJECT_FAULT,
};
struct nupa_inject_result {
	uint32_t verdict, reason, syndrome;
	uint32_t expected_psn; /* of the QP, before */
};

struct nupa_injector;
/* An attachment to *host* for packets that enter there.  NULL with errno and *why*. */
struct nupa_injector *nupa_injector_open(struct nupa_fabric *fabric, uint32_t host, char *why,
					 size_t why_bytes);
void nupa_injector_close(struct nupa_injector *injector);
/* Sends a packet: an Ethernet frame of RoCE v2, as captures have them; its IP destination says
 * which host it is for, its BTH which QP.  0 and *result, -EHOSTUNREACH (no such host; *result is
 * not filled), or -ETIMEDOUT where the process that owns the QP gives no verdict within timeout_ns.
 */
int nupa_inject(struct nupa_injector *injector, const void *frame, uint32_t bytes,
		uint64_t timeout_ns, struct nupa_inject_result *result);
/* cffi: end */

#endif
