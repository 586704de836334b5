/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that is really not coherent, for tests: each process is a kernel with a copy of the whole
 * segment.  No other process sees a store until it is flushed to the file.  A line that is not
 * fetched from there is stale for ever. */
#ifndef NUPA_TESTS_APART_H
#define NUPA_TESTS_APART_H

#include "segment/coherence.h"
#include "tests/support/end.h"

#define APART_RING_LINES 16u /* wraps soon */
#define APART_DMA_BYTES (512u << 10)

/* The omitted step: a point's flush or its fetch. */
struct apart_damage {
	enum nupa_point point; /* NUPA_POINTS: all happens */
	bool fetch;
};

/* Two hosts with two slots each, in a memfd; this process is the creator's kernel, 1, and host 0.
 * Its descriptor. */
int apart_create(void);
/* The fabric as kernel *kernel* sees it, whose caches are empty now. */
struct nupa_fabric *apart_open(int fd, uint64_t kernel, struct apart_damage damage);

#endif
