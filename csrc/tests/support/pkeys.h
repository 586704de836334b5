/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of partitions. */
#ifndef NUPA_TESTS_PKEYS_H
#define NUPA_TESTS_PKEYS_H

#include "segment/control/pkey.h"

#define RED 0x8011u
#define BLUE 0x8022u
#define BLUE_LIMITED 0x0022u

/* Stores an entry of a host's table. */
void pkey_set(struct nupa_fabric *fabric, uint32_t host, uint32_t index, uint16_t pkey);
/* Messages that a host dropped for their P_Key. */
uint64_t pkey_violations(struct nupa_fabric *fabric, uint32_t host);

#endif
