/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of regions. */
#ifndef NUPA_TESTS_SHARED_REGION_H
#define NUPA_TESTS_SHARED_REGION_H

#include "tests/support/end.h"
#include "region/region.h"
#include "segment/layout/region_layout.h"

#define EXTENT 4096u
#define BIT(host) (UINT64_C(1) << (host))

/* Of this process on host 0, shared with host 1 if share is BIT(1); pid 0: the host's. */
struct nupa_region_info region_wish(uint64_t bytes, uint64_t share, uint32_t pid);
/* Made, or the test ends. */
struct nupa_region_info region_made(struct nupa_fabric *fabric, uint64_t bytes, uint64_t share);
/* How many extents are claimed; how many regions and windows there are. */
uint32_t region_extents(const struct nupa_fabric *fabric);
uint32_t region_count(struct nupa_fabric *fabric);
uint32_t region_windows(const struct nupa_fabric *fabric);
/* The table; there is one. */
struct nupa_region_header *region_table(const struct nupa_fabric *fabric);
struct nupa_region_row *region_rows(const struct nupa_fabric *fabric);
struct nupa_region_mapping *region_mappings(const struct nupa_fabric *fabric);
uint64_t region_backed_bytes(const struct nupa_fabric *fabric);
/* The child's exit code is 0, or it was killed. */
void region_reaped(pid_t child);

#endif
