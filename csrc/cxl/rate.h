/* SPDX-License-Identifier: BSD-3-Clause
 * The loop of `nupa fabric transactions`: writes and reads lines, one request at a time.  It is in
 * C, as a loop in Python would measure Python. */
#ifndef NUPA_CXL_RATE_H
#define NUPA_CXL_RATE_H

#include "cxl/transact.h"

/* cffi: begin */
struct nupa_cxl_rate {
	uint64_t elapsed_ns;
	uint64_t wrong;                /* lines read that differ from the data written */
	struct nupa_cxl_result result; /* the first request that failed, at which the run stopped */
};

/* Calls nupa_cxl_write or nupa_cxl_read for `count` lines of 64 bytes at random places of `bytes`
 * from `base` on.  These are whole lines, and at least one.  The content of a line follows from
 * its address, so that each line read is compared with the expected content. */
struct nupa_cxl_rate nupa_cxl_rate(struct nupa_cxl_bus *bus, uint64_t base, uint64_t bytes,
				   uint64_t count, uint64_t seed, bool write);

/* The same, each line of `bytes` once, in order. */
struct nupa_cxl_rate nupa_cxl_rate_fill(struct nupa_cxl_bus *bus, uint64_t base, uint64_t bytes);
/* cffi: end */

#endif
