/* SPDX-License-Identifier: BSD-3-Clause
 * A subnet in memory for tests, and MADs to it: four hosts on two switches with a trunk.
 *
 *   host0 (LID 1) - [1] switch0 (LID 5) [3] - [3] switch1 (LID 6) [1] - host2 (LID 3)
 *   host1 (LID 2) - [2]                                           [2] - host3 (LID 4) */
#ifndef NUPA_TESTS_MAD_SUBNET_END_H
#define NUPA_TESTS_MAD_SUBNET_END_H

#include "mad/mad.h"
#include "tests/support/runner.h"

#define SUBNET_HOSTS 4u
#define SUBNET_PORTS 10u
#define SUBNET_LIDS 6u

struct nupa_subnet subnet_create(void);
void subnet_destroy(struct nupa_subnet *subnet);

/* A request without data: by LID, or by a directed route, a text of ports ("" is the sender). */
void subnet_ask(uint8_t mad[NUPA_MAD_BYTES], uint8_t class, uint8_t method, uint16_t attribute,
		uint32_t modifier);
void subnet_direct(uint8_t mad[NUPA_MAD_BYTES], const char *ports);
/* Sends it from a host: the status of the answer, or -1 if there is none. */
int subnet_send(struct nupa_subnet *subnet, uint32_t host, uint16_t lid,
		uint8_t mad[NUPA_MAD_BYTES]);
/* Get of an attribute of a LID: its data, in *mad*. */
uint8_t *subnet_get(struct nupa_subnet *subnet, uint16_t lid, uint16_t attribute, uint32_t modifier,
		    uint8_t mad[NUPA_MAD_BYTES]);

#endif
