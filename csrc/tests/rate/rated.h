/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of rates. */
#ifndef NUPA_TESTS_RATED_H
#define NUPA_TESTS_RATED_H

#include "segment/control/rate.h"
#include "tests/support/end.h"

#define RATED_MEMORY_BYTES (8u << 20)
#define RATED_TENANT 1u

/* Two hosts of one tenant. */
struct nupa_fabric *rated_fabric(void);
struct end_options rated_options(enum ibv_qp_type type);
/* 0: none.  A tenant's is that of RATED_TENANT. */
void rate_set(struct nupa_fabric *fabric, uint32_t scope, uint32_t host, uint32_t pkey,
	      uint64_t bytes_per_s);
/* The first one of the table. */
struct nupa_rate_info rate_get(struct nupa_fabric *fabric);

#endif
