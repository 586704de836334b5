/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/pkeys.h"

#include "tests/support/faults.h"
#include "tests/support/runner.h"

void pkey_set(struct nupa_fabric *fabric, uint32_t host, uint32_t index, uint16_t pkey)
{
	char why[256];

	CHECK_EQ(nupa_pkey_table_set(fabric, host, index, &pkey, 1, why, sizeof(why)), 0);
}

uint64_t pkey_violations(struct nupa_fabric *fabric, uint32_t host)
{
	return fault_hw(fabric, host).pkey_violations;
}
