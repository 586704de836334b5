/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that is not coherent (NUPA_SEGMENT_SOFTWARE).  A kernel sees another's stores when the
 * latter has written them back and the former has dropped its own copy.  All points where that
 * happens are named here.  They lie in ring_apart.c (messages), channel/apart.c, slot/apart.c and
 * attachment/look.c.
 *
 *   flush   after the stores of a point: written back, then a fence
 *   fetch   before its loads: dropped from our caches, then a fence
 *
 * A line has writers in one kernel only, and is never fetched there. */
#ifndef NUPA_COHERENCE_H
#define NUPA_COHERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nupa_point {
	/* Rings, ring.h.              bytes; the writer; the readers */
	NUPA_POINT_LINE,    /* a message with its tag; producer; consumer */
	NUPA_POINT_PAYLOAD, /* its payload; producer, before the line; consumer, behind it
			     */
	NUPA_POINT_HEAD,    /* lines and DMA bytes taken; consumer; producer when it needs room */
	NUPA_POINT_EMPTY,   /* all lines and both heads; producer when it opens; as LINE and HEAD */
	NUPA_POINT_PAIR,    /* the epochs that may use the ring; producer; consumer when it opens */
	/* Slots. */
	NUPA_POINT_CLAIM,   /* line 0: state, host, tables' sizes; owner; all that look around */
	NUPA_POINT_QUEUE,   /* line 1: netdev queue, leaving; owner; all that look around */
	NUPA_POINT_BEAT,    /* heartbeat and kernel; owner; all that listen */
	NUPA_POINT_CONTACT, /* words to peers; owner; the peer it is meant for */
	/* Tables. */
	NUPA_POINT_QP, /* a QP's entry; owner; the responder that meets it */
	NUPA_POINT_CM, /* a bucket of bound ports; its host; those that resolve a port there */
	NUPA_POINT_COUNTERS, /* flows and counters; owner with each beat; those that show them */
	NUPA_POINT_PORTS,    /* the state of ports; the creator's kernel; all that look around */
	NUPA_POINT_EPOCH,    /* that PORTS have changed; the creator's kernel; likewise */
	NUPA_POINTS,
};

struct nupa_coherence {
	void (*flush)(enum nupa_point point, const void *at, size_t bytes);
	void (*fetch)(enum nupa_point point, const void *at, size_t bytes);
};

/* The implementation: this processor's instructions, unless a test puts its own in their place. */
extern const struct nupa_coherence *nupa_coherence;
/* Whether this processor has such instructions.  The first call, when a segment is joined, chooses
 * among them. */
bool nupa_coherence_possible(void);

static inline void nupa_flush(bool apart, enum nupa_point point, const void *at, size_t bytes)
{
	if (__builtin_expect(apart, 0))
		nupa_coherence->flush(point, at, bytes);
}

static inline void nupa_fetch(bool apart, enum nupa_point point, const void *at, size_t bytes)
{
	if (__builtin_expect(apart, 0))
		nupa_coherence->fetch(point, at, bytes);
}

#endif
