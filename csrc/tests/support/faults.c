/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of faults: see faults.h. */
#include "tests/support/faults.h"
#include "segment/slot/counters.h"

struct nupa_fault_info fault_of(uint32_t kind, double probability)
{
	return (struct nupa_fault_info){
		.kind = kind,
		.port = test_fabric_port(0),
		.probability = (uint32_t)(probability * UINT32_MAX),
		.seed = 7,
	};
}

uint32_t fault_add(struct nupa_fabric *fabric, const struct nupa_fault_info *fault)
{
	char why[256] = "";
	int64_t id = nupa_fault_add(fabric, fault, why, sizeof(why));

	if (id <= 0)
		fprintf(stderr, "%s\n", why);
	CHECK(id > 0);
	return (uint32_t)id;
}

uint32_t fault_lose(struct nupa_fabric *fabric, uint64_t n)
{
	struct nupa_fault_info fault = fault_of(NUPA_FAULT_DROP, 1);

	fault.after = n;
	fault.count = 1;
	return fault_add(fabric, &fault);
}

struct nupa_fault_info fault_get(struct nupa_fabric *fabric, uint32_t id)
{
	struct nupa_fault_info all[NUPA_FAULTS_MAX];
	uint32_t n = nupa_fault_list(fabric, all, NUPA_FAULTS_MAX);

	for (uint32_t i = 0; i < n; i++)
		if (all[i].id == id)
			return all[i];
	fprintf(stderr, "there is no fault %u\n", id);
	abort();
}

struct nupa_hw_counters fault_hw(struct nupa_fabric *fabric, uint32_t host)
{
	struct nupa_hw_counters counters;

	CHECK_EQ(nupa_fabric_hw_counters(fabric, host, &counters), 0);
	return counters;
}

struct end_options fault_options(uint8_t timeout)
{
	struct end_options options = end_options_of(NUPA_MOVER_NONE);

	options.timeout = timeout;
	return options;
}
