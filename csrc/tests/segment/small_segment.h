/* SPDX-License-Identifier: BSD-3-Clause
 * A small segment for tests: two hosts, a switch, and a folder of its own. */
#ifndef NUPA_TESTS_SMALL_SEGMENT_H
#define NUPA_TESTS_SMALL_SEGMENT_H

#include "segment/segment.h"
#include "tests/support/runner.h"

#define SEGMENT_HOSTS 2u
#define SEGMENT_PORTS 4u
#define EXTENT UINT64_C(4096)

extern char segment_folder[34];
extern char segment_path[64], segment_other_path[64]; /* in the folder */
extern char segment_why[512];                         /* of the last refusal */
extern struct nupa_host segment_hosts[SEGMENT_HOSTS];
extern struct nupa_port segment_ports[SEGMENT_PORTS];
extern struct nupa_route segment_routes[SEGMENT_HOSTS * SEGMENT_HOSTS];
/* Small, so that whole files can be rewritten. */
extern const struct nupa_config segment_small;

/* test_main with the folder; it has to be empty afterwards. */
int segment_main(int argc, char **argv);

int segment_try_create(const char *at, const struct nupa_config *config, struct nupa_fabric **out);
struct nupa_fabric *segment_create(const char *at, const struct nupa_config *config);

/* Claims a slot as the engine does. */
void segment_claim(struct nupa_fabric *fabric, uint32_t slot, pid_t pid, uint32_t state,
		   uint64_t start_time);
uint64_t segment_arena_at(const struct nupa_fabric *fabric, uint32_t slot);
uint64_t segment_backed_bytes(const struct nupa_fabric *fabric);

#endif
