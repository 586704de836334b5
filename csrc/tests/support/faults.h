/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of faults. */
#ifndef NUPA_TESTS_FAULTS_H
#define NUPA_TESTS_FAULTS_H

#include "tests/support/end.h"
#include "engine/fault/fault.h"

/* At the port of host 0 of test_fabric: it lies on the way there and back. */
struct nupa_fault_info fault_of(uint32_t kind, double probability);
/* Its number. */
uint32_t fault_add(struct nupa_fabric *fabric, const struct nupa_fault_info *fault);
/* The n-th message that passes the port of host 0 is lost, from 0 on, and no other. */
uint32_t fault_lose(struct nupa_fabric *fabric, uint64_t n);
/* As it is listed. */
struct nupa_fault_info fault_get(struct nupa_fabric *fabric, uint32_t id);
/* The counts of a host's attachments. */
struct nupa_hw_counters fault_hw(struct nupa_fabric *fabric, uint32_t host);
/* By messages or by what moves best, and this timeout (IBTA: 4.096 us * 2^timeout). */
struct end_options fault_options(uint8_t timeout);

#endif
