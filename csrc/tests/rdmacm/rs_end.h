/* SPDX-License-Identifier: BSD-3-Clause
 * rsockets for tests: the fabric that they find in the environment, and connected pairs. */
#ifndef NUPA_TESTS_RS_END_H
#define NUPA_TESTS_RS_END_H

#include "tests/support/cm_end.h"
#include "abi/rsocket_abi.h"

#include <stdbool.h>

/* Rsockets of this process are on host 0 of *fabric* from now on. */
void rs_use_fabric(struct nupa_fabric *fabric);
/* Listens on 10.0.0.1; *port gets where. */
int rs_listener(uint16_t *port);
/* -1 with errno. */
int rs_connect(int fd, const char *host, uint16_t port);
/* Two ends of one connection. */
void rs_pair(int fds[2]);
/* Bytes that tell where they belong. */
void rs_pattern(uint8_t *bytes, size_t n, uint64_t at, uint8_t stream);
bool rs_is_pattern(const uint8_t *bytes, size_t n, uint64_t at, uint8_t stream);

#endif
