/* SPDX-License-Identifier: BSD-3-Clause
 * Random MADs, and random bytes in what a subnet manager has set: no agent crashes or reads beyond
 * its data (sanitizers tell), and each answer is one.  NUPA_FUZZ_SECONDS is the duration; the seed
 * is printed. */
#include "tests/mad/subnet_end.h"

#include <string.h>

/* Mostly what a subnet manager would send, with bytes of it changed. */
static void make(uint8_t mad[NUPA_MAD_BYTES], uint64_t *random)
{
	static const uint8_t classes[] = { 0x01, 0x81, 0x04, 0x03, 0x32 };
	static const uint8_t methods[] = { 1, 2, 2, 1, 0x81, 7, 5 };

	for (uint32_t i = 0; i < NUPA_MAD_BYTES; i += 8) {
		const uint64_t bits = test_random(random);

		memcpy(mad + i, &bits, 8);
	}
	mad[NUPA_MAD_AT_BASE_VERSION] = mad[NUPA_MAD_AT_CLASS_VERSION] = 1;
	mad[NUPA_MAD_AT_CLASS] = classes[test_random(random) % sizeof(classes)];
	mad[NUPA_MAD_AT_METHOD] = methods[test_random(random) % sizeof(methods)];
	nupa_be16_put(mad + NUPA_MAD_AT_ATTRIBUTE, 0x10 + test_random(random) % 18);
	nupa_be32_put(mad + NUPA_MAD_AT_MODIFIER,
		      test_random(random) >> (32 + test_random(random) % 32));
	if (test_random(random) % 8) {
		mad[NUPA_MAD_AT_HOP_POINTER] = 0;
		mad[NUPA_MAD_AT_HOP_COUNT] = (uint8_t)(test_random(random) % 6);
		nupa_be16_put(mad + NUPA_MAD_AT_DR_SLID, NUPA_LID_PERMISSIVE);
		for (uint32_t i = 0; i < 64; i++)
			mad[NUPA_MAD_AT_INITIAL_PATH + i] = (uint8_t)(test_random(random) % 4);
	}
	for (uint64_t n = test_random(random) % 3; n; n--)
		mad[test_random(random) % NUPA_MAD_BYTES] = (uint8_t)test_random(random);
}

TEST(random_mads_are_answered_lost_or_delivered)
{
	const uint64_t seed = test_seed(), until_ns = test_now_ns() + test_fuzz_ns(2.0);
	struct nupa_subnet subnet = subnet_create();
	uint64_t random = seed, fates[3] = { 0 }, n = 0;
	uint8_t mad[NUPA_MAD_BYTES];

	while (n++ % 256 || test_now_ns() < until_ns) {
		const struct nupa_mad_target to = {
			.lid = (uint16_t)(test_random(&random) % (SUBNET_LIDS + 2)),
			.gid = test_random(&random) % 8 ? NULL : mad,
		};
		enum nupa_mad_fate fate;
		uint32_t host = UINT32_MAX;

		make(mad, &random);
		fate = nupa_mad_send(&subnet, (uint32_t)(test_random(&random) % SUBNET_HOSTS), &to,
				     mad, &host);
		fates[fate]++;
		if (fate == NUPA_MAD_DELIVER)
			CHECK(host < SUBNET_HOSTS);
		if (fate == NUPA_MAD_ANSWERED)
			CHECK_EQ(mad[NUPA_MAD_AT_METHOD], NUPA_MAD_GET_RESPONSE);
		if (subnet.rows && test_random(&random) % 64 == 0)
			((uint8_t *)&subnet.rows[test_random(&random) %
						 NUPA_SUBNET_ROWS])[test_random(&random) %
								    sizeof(*subnet.rows)] ^= 1;
		/* Links that came to be down would make all paths lost. */
		for (uint32_t i = 0; test_random(&random) % 16 == 0 && i < SUBNET_PORTS; i++)
			subnet.fabric->ports[i].state = NUPA_PORT_ACTIVE;
	}
	printf("lost %llu, answered %llu, delivered %llu\n", (unsigned long long)fates[0],
	       (unsigned long long)fates[1], (unsigned long long)fates[2]);
	CHECK(fates[0] && fates[1] && fates[2]);
	subnet_destroy(&subnet);
}

TEST(the_table_is_full_at_its_last_row_and_no_earlier)
{
	struct nupa_subnet subnet = subnet_create();
	uint8_t value[NUPA_SUBNET_VALUE_BYTES] = { 0 }, found[NUPA_SUBNET_VALUE_BYTES];

	for (uint32_t i = 0; i < NUPA_SUBNET_ROWS; i++) {
		nupa_be32_put(value, i);
		CHECK_EQ(nupa_subnet_set(&subnet, nupa_subnet_key(0x19, true, 0, i), value), 0);
	}
	CHECK(nupa_subnet_set(&subnet, nupa_subnet_key(0x19, true, 1, 0), value) < 0);
	CHECK(!nupa_subnet_get(&subnet, nupa_subnet_key(0x19, true, 1, 0), found));
	CHECK(nupa_subnet_get(&subnet, nupa_subnet_key(0x19, true, 0, 77), found));
	CHECK_EQ(nupa_be32_get(found), 77);
	subnet_destroy(&subnet);
}
