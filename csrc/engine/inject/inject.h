/* SPDX-License-Identifier: BSD-3-Clause
 * Injection: a transport packet made by hand enters the fabric at a host's port.  The attachment
 * that owns the destination QP judges it as an adapter judges packets from the wire.
 *
 * PSNs are the engine's, which programs see as rq_psn: a message takes as many as it has packets, a
 * READ one. */
#ifndef NUPA_INJECT_H
#define NUPA_INJECT_H

#include "packet/roce.h"
#include "segment/segment.h"

/* cffi: begin */
enum nupa_inject_verdict {
	NUPA_INJECT_EXECUTED = 0, /* an answer: it was accepted */
	NUPA_INJECT_NAKED = 1,    /* syndrome: of the AETH */
	NUPA_INJECT_DROPPED = 2,  /* reason says why */
};
enum nupa_inject_reason {
	NUPA_INJECT_NONE = 0,
	NUPA_INJECT_MALFORMED, /* no RoCE v2, cut off, or lengths that contradict each other */
	NUPA_INJECT_ICRC,
	NUPA_INJECT_VERSION, /* of the BTH */
	NUPA_INJECT_NO_HOST, /* no host has its destination address */
	NUPA_INJECT_NO_QP,   /* or in a state that takes nothing */
	NUPA_INJECT_OPCODE,  /* of another type of QP, or reserved */
	NUPA_INJECT_PKEY,
	NUPA_INJECT_SOURCE, /* a connected QP: it is not from the partner's host */
	NUPA_INJECT_QKEY,
	NUPA_INJECT_PSN,         /* a gap, RC: that was NAKed before */
	NUPA_INJECT_DUPLICATE,   /* RC: answered again, not executed again */
	NUPA_INJECT_SEQUENCE,    /* UC: first, middle and last do not go together */
	NUPA_INJECT_LENGTH,      /* UC, UD: not what the opcode, the MTU or the RETH says */
	NUPA_INJECT_ACCESS,      /* UC: key, bounds or rights */
	NUPA_INJECT_NO_RECEIVE,  /* UC, UD */
	NUPA_INJECT_RECEIVE,     /* UC, UD: the receive was too short, or its memory not there */
	NUPA_INJECT_UNASKED,     /* an answer to no request */
	NUPA_INJECT_UNSUPPORTED, /* MADs, multicast, CNPs, an SRQ of another process than the QP's
				  */
	NUPA_INJECT_PATH,        /* a port on the way is down */
	NUPA_INJECT_FAULT,       /* a fault on the way took it */
	NUPA_INJECT_REASONS,
};
struct nupa_inject_result {
	uint32_t verdict, reason, syndrome;
	uint32_t expected_psn; /* of the QP, before; ~0: it is not connected, or was not asked */
};

struct nupa_injector;
/* An attachment to *host* for packets that enter there.  NULL with errno and *why*. */
struct nupa_injector *nupa_injector_open(struct nupa_fabric *fabric, uint32_t host, char *why,
					 size_t why_bytes);
void nupa_injector_close(struct nupa_injector *injector);
/* Asks for *expected_psn of a QP, RC or UC, and injects nothing; verdict and reason say whether
 * there is one.  Errors as nupa_inject. */
int nupa_inject_ask(struct nupa_injector *injector, uint32_t qpn, uint64_t timeout_ns,
		    struct nupa_inject_result *result);
/* The longest frame whose packet fits into a message. */
uint32_t nupa_injector_max_bytes(const struct nupa_injector *injector);
/* cffi: end */

#define NUPA_INJECT_FRAME_MAX_BYTES 9216u /* a jumbo frame: more than any MTU here */

/* Sends a packet to the QP that it names: 0 and *result.
 * -EMSGSIZE: it does not fit into a message.  -ETIMEDOUT: the process that owns the QP gives no
 * verdict within timeout_ns.  -ENOTCONN: its channel to us is closed.  -EAGAIN: its ring is full.
 * -ENOSPC: no memory for a channel to it. */
int nupa_inject(struct nupa_injector *injector, const struct nupa_roce_packet *packet,
		const void *payload, uint64_t timeout_ns, struct nupa_inject_result *result);

#endif
