/* SPDX-License-Identifier: BSD-3-Clause
 * The control table: its limits, each with one past it, and rows that hold anything. */
#include "base/atomics.h"
#include "segment/control/admit.h"
#include "segment/control/control.h"
#include "segment/control/event.h"
#include "segment/control/pkey.h"
#include "segment/control/quota.h"
#include "segment/control/table.h"
#include "segment/layout/geometry.h"
#include "tests/support/end.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static char why[512];

static int64_t add_tenant(struct nupa_fabric *fabric, const char *name)
{
	struct nupa_tenant wish = { .rate = 0 };

	snprintf(wish.name, sizeof(wish.name), "%s", name);
	return nupa_tenant_add(fabric, &wish, why, sizeof(why));
}

static int64_t add_partition(struct nupa_fabric *fabric, const char *name, uint32_t pkey,
			     uint32_t tenant)
{
	struct nupa_partition wish = { .pkey = pkey, .tenant = tenant };

	snprintf(wish.name, sizeof(wish.name), "%s", name);
	return nupa_partition_add(fabric, &wish, why, sizeof(why));
}

static int join(struct nupa_fabric *fabric, uint32_t pkey, uint8_t kind, uint32_t index)
{
	struct nupa_member wish = { .pkey = pkey, .kind = kind, .full = 1, .index = index };

	if (kind == NUPA_MEMBER_DEVICE)
		snprintf(wish.name, sizeof(wish.name), "device%u", index);
	return nupa_member_join(fabric, &wish, 0, why, sizeof(why));
}

static int set_newcomer(struct nupa_fabric *fabric, uint8_t kind, uint32_t index, uint8_t state)
{
	struct nupa_member wish = { .kind = kind, .index = index, .state = state };

	if (kind == NUPA_MEMBER_DEVICE)
		snprintf(wish.name, sizeof(wish.name), "device%u", index);
	return nupa_newcomer_set(fabric, &wish, why, sizeof(why));
}

TEST(a_fabric_has_256_tenants)
{
	struct nupa_fabric *fabric = test_fabric();
	char name[32];

	for (uint32_t i = 1; i <= NUPA_TENANTS_MAX; i++) {
		snprintf(name, sizeof(name), "tenant%u", i);
		CHECK_EQ(add_tenant(fabric, name), i);
	}
	CHECK_EQ(add_tenant(fabric, "more"), -ENOSPC);
	CHECK(strstr(why, "256 tenants"));
	CHECK_EQ(nupa_tenant_remove(fabric, 7, 0, why, sizeof(why)), 0);
	CHECK_EQ(add_tenant(fabric, "more"), 7);
	CHECK_EQ(add_tenant(fabric, "more"), -EEXIST);
	CHECK_EQ(nupa_tenant_remove(fabric, 0, 1, why, sizeof(why)), -ENOENT);
	CHECK_EQ(nupa_tenant_remove(fabric, NUPA_TENANTS_MAX + 1, 1, why, sizeof(why)), -ENOENT);
	nupa_fabric_put(fabric);
}

TEST(names_have_31_bytes_of_a_few_letters)
{
	static const char *const wrong[] = { "", "a b", "a/b", ".a", "-a", "a\n", "\xc3\xa4" };
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_tenant wish = { .rate = 0 };

	for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK_EQ(add_tenant(fabric, wrong[i]), -EINVAL);
		CHECK_EQ(add_partition(fabric, wrong[i], 0, 0), -EINVAL);
	}
	CHECK_EQ(add_tenant(fabric, "1234567890123456789012345678901"), 1);
	memset(wish.name, 'a', sizeof(wish.name)); /* without an end */
	CHECK_EQ(nupa_tenant_add(fabric, &wish, why, sizeof(why)), -EINVAL);
	CHECK_EQ(add_partition(fabric, "default", 0, 0), -EINVAL);
	CHECK_EQ(add_partition(fabric, "pkey-0x0001", 0, 0), -EINVAL);
	nupa_fabric_put(fabric);
}

TEST(a_fabric_has_1024_partitions)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_partition found[2];
	char name[32];

	for (uint32_t i = 1; i <= NUPA_PARTITIONS_MAX; i++) {
		snprintf(name, sizeof(name), "partition%u", i);
		CHECK_EQ(add_partition(fabric, name, 0, 0), i); /* the lowest free P_Key */
	}
	CHECK_EQ(add_partition(fabric, "more", 0, 0), -ENOSPC);
	CHECK_EQ(nupa_partition_remove(fabric, 5, why, sizeof(why)), 0);
	CHECK_EQ(add_partition(fabric, "more", 0x7fff, 0), -EINVAL);
	CHECK_EQ(add_partition(fabric, "more", 0x8001, 0), -EINVAL);
	CHECK_EQ(add_partition(fabric, "more", 4, 0), -EEXIST);
	CHECK_EQ(add_partition(fabric, "partition4", 5, 0), -EEXIST);
	CHECK_EQ(add_partition(fabric, "more", 5, 1), -ENOENT);
	CHECK_EQ(add_partition(fabric, "more", 0x7ffe, 0), 0x7ffe);
	CHECK_EQ(nupa_partition_list(fabric, found, 2), NUPA_PARTITIONS_MAX + 1);
	CHECK_EQ(nupa_partition_remove(fabric, 0x7fff, why, sizeof(why)), -EINVAL);
	CHECK_EQ(nupa_partition_remove(fabric, 5, why, sizeof(why)), -ENOENT);
	nupa_fabric_put(fabric);
}

TEST(service_levels_are_16_and_kinds_two)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_partition wish = { .name = "one", .service_level = 15 };
	struct nupa_member member = { .kind = NUPA_MEMBER_HOST, .service_level = 16 };

	CHECK_EQ(nupa_partition_add(fabric, &wish, why, sizeof(why)), 1);
	wish.pkey = 1;
	wish.service_level = 16;
	CHECK_EQ(nupa_partition_set(fabric, &wish, why, sizeof(why)), -EINVAL);
	wish = (struct nupa_partition){ .name = "two", .service_level = 16 };
	CHECK_EQ(nupa_partition_add(fabric, &wish, why, sizeof(why)), -EINVAL);
	wish = (struct nupa_partition){ .name = "two", .kind = NUPA_PARTITION_VPOD + 1 };
	CHECK_EQ(nupa_partition_add(fabric, &wish, why, sizeof(why)), -EINVAL);
	member.pkey = 1;
	CHECK_EQ(nupa_member_join(fabric, &member, 0, why, sizeof(why)), -EINVAL);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_DEVICE + 1, 0), -EINVAL);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_HOST, 2), -EINVAL);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_ACCELERATOR, NUPA_ACCELERATORS_MAX), -EINVAL);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_ACCELERATOR, NUPA_ACCELERATORS_MAX - 1), 0);
	CHECK_EQ(join(fabric, 2, NUPA_MEMBER_HOST, 0), -ENOENT);
	nupa_fabric_put(fabric);
}

TEST(a_host_is_in_128_partitions)
{
	struct nupa_fabric *fabric = test_fabric();
	char name[32];

	for (uint32_t i = 1; i <= NUPA_PKEYS_MAX + 1; i++) {
		snprintf(name, sizeof(name), "partition%u", i);
		CHECK_EQ(add_partition(fabric, name, 0, 0), i);
		CHECK_EQ(join(fabric, i, NUPA_MEMBER_HOST, 0), i <= NUPA_PKEYS_MAX ? 0 : -ENOSPC);
	}
	CHECK_EQ(nupa_pkey_at(fabric, 0, 127), 0x8080);
	nupa_fabric_put(fabric);
}

TEST(a_fabric_has_8192_members)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_control t;

	CHECK_EQ(add_partition(fabric, "one", 0, 0), 1);
	CHECK_EQ(nupa_control(fabric, false, &t), 0);
	/* By hand, as each join looks for its row. */
	for (uint32_t i = 0; i + 1 < NUPA_MEMBERS_MAX; i++) {
		struct nupa_member body = { .pkey = 1, .kind = NUPA_MEMBER_DEVICE };

		snprintf(body.name, sizeof(body.name), "device%u", i);
		nupa_row_store(&t.members[i].stamp, &t.members[i].body, &body, sizeof(body));
	}
	t.header->members = NUPA_MEMBERS_MAX - 1;
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_DEVICE, NUPA_MEMBERS_MAX - 1), 0);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_DEVICE, NUPA_MEMBERS_MAX), -ENOSPC);
	CHECK_EQ(set_newcomer(fabric, NUPA_MEMBER_DEVICE, 1, NUPA_HOST_READY), -ENOSPC);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_DEVICE, 17), 0); /* it is one already */
	CHECK_EQ(nupa_member_list(fabric, 1, NULL, 0), NUPA_MEMBERS_MAX);
	CHECK_EQ(nupa_partition_remove(fabric, 1, why, sizeof(why)), 0);
	CHECK_EQ(nupa_member_list(fabric, 1, NULL, 0), 0);
	nupa_fabric_put(fabric);
}

TEST(newcomers_have_a_state_in_a_partition_and_in_none)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_member found[2], wish = { .kind = NUPA_MEMBER_DEVICE };
	const uint32_t last = NUPA_ACCELERATORS_MAX - 1;
	uint64_t events;

	CHECK_EQ(nupa_newcomer_list(fabric, found, 2), 0);
	CHECK_EQ(set_newcomer(fabric, NUPA_MEMBER_ACCELERATOR, last, NUPA_HOST_READY), 0);
	CHECK_EQ(add_partition(fabric, "one", 0, 0), 1);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_ACCELERATOR, last), 0);
	CHECK_EQ(set_newcomer(fabric, NUPA_MEMBER_DEVICE, 7, NUPA_HOST_FAILED), 0);
	events = nupa_event_last(fabric);
	CHECK_EQ(set_newcomer(fabric, NUPA_MEMBER_DEVICE, 7, NUPA_HOST_FAILED), 0);
	CHECK_EQ(nupa_event_last(fabric), events); /* as it was */
	CHECK_EQ(nupa_partition_remove(fabric, 1, why, sizeof(why)), 0);
	CHECK_EQ(nupa_newcomer_list(fabric, found, 2), 2);
	CHECK(found[0].index == last && found[0].state == NUPA_HOST_READY);
	CHECK(strcmp(found[1].name, "device7") == 0 && found[1].state == NUPA_HOST_FAILED);
	CHECK_EQ(set_newcomer(fabric, NUPA_MEMBER_ACCELERATOR, last + 1, NUPA_HOST_READY), -EINVAL);
	CHECK_EQ(set_newcomer(fabric, NUPA_MEMBER_ACCELERATOR, 1, NUPA_HOST_STATES), -EINVAL);
	CHECK_EQ(set_newcomer(fabric, NUPA_MEMBER_HOST, 1, NUPA_HOST_READY), -EINVAL);
	CHECK_EQ(nupa_newcomer_set(fabric, &wish, why, sizeof(why)), -EINVAL); /* no name */
	memset(wish.name, 'a', sizeof(wish.name));                             /* without an end */
	CHECK_EQ(nupa_newcomer_set(fabric, &wish, why, sizeof(why)), -EINVAL);
	nupa_fabric_put(fabric);
}

/* --- hostile rows -------------------------------------------------------------------------- */

static void read_all(struct nupa_fabric *fabric)
{
	static struct nupa_partition partitions[64];
	static struct nupa_member members[64];
	struct nupa_control_event event;
	struct nupa_tenant tenant;
	uint64_t used[NUPA_QUOTA_KINDS];
	const uint64_t last = nupa_event_last(fabric);

	for (uint32_t id = 0; id <= nupa_tenant_ids(fabric); id++)
		if (!nupa_tenant_get(fabric, id, &tenant)) {
			CHECK(strlen(tenant.name) < sizeof(tenant.name));
			CHECK_EQ(nupa_tenant_used(fabric, id, used), 0);
		}
	for (uint32_t host = 0; host <= fabric->geometry.n_hosts; host++)
		CHECK(nupa_host_tenant(fabric, host) <= NUPA_TENANTS_MAX);
	for (uint32_t i = 0; i < nupa_partition_list(fabric, partitions, 64) && i < 64; i++) {
		CHECK(strlen(partitions[i].name) < sizeof(partitions[i].name));
		CHECK(partitions[i].pkey && partitions[i].pkey <= 0x7fff);
		for (uint32_t m = 0;
		     m < nupa_member_list(fabric, partitions[i].pkey, members, 64) && m < 64; m++)
			CHECK(strlen(members[m].name) < sizeof(members[m].name));
	}
	for (uint32_t m = 0; m < nupa_newcomer_list(fabric, members, 64) && m < 64; m++)
		CHECK(nupa_host_state_name(members[m].state) && strlen(members[m].name) < 32);
	for (uint64_t back = 0; back < 64 && back < last; back++)
		if (!nupa_event_get(fabric, last - back, &event))
			CHECK(strlen(event.text) < sizeof(event.text));
	(void)nupa_quota_pool_fits(fabric, 0, UINT64_MAX);
}

/* Readers wait for a row that changes: that is another case. */
static void settle(const struct nupa_control *t)
{
	for (uint32_t i = 0; i < t->n_tenants; i++) {
		t->tenants[i].stamp &= ~UINT64_C(1);
		t->tenants[i].body.id = i + 1;
	}
	for (uint32_t i = 0; i < t->n_partitions; i++)
		t->partitions[i].stamp &= ~UINT64_C(1);
	for (uint32_t i = 0; i < t->n_members; i++)
		t->members[i].stamp &= ~UINT64_C(1);
}

TEST(rows_that_hold_anything_are_read_without_harm)
{
	struct nupa_fabric *fabric = test_fabric();
	const struct nupa_control_map map = nupa_control_map(&fabric->geometry);
	uint64_t random = test_seed();
	struct nupa_control t;
	uint8_t *base;

	CHECK_EQ(add_tenant(fabric, "one"), 1);
	CHECK_EQ(add_partition(fabric, "one", 0, 1), 1);
	CHECK_EQ(nupa_tenant_assign(fabric, 0, 1, why, sizeof(why)), 0);
	CHECK_EQ(join(fabric, 1, NUPA_MEMBER_HOST, 0), 0);
	CHECK_EQ(nupa_control(fabric, false, &t), 0);
	base = (uint8_t *)t.header;
	for (int round = 0; round < 30; round++) {
		const uint64_t starts[] = { 0, map.tenants_off, map.partitions_off, map.members_off,
					    map.events_off };

		/* Anywhere, and in the rows that are in use. */
		for (int i = 0; i < 2000; i++)
			base[test_random(&random) % map.bytes] = (uint8_t)test_random(&random);
		for (int i = 0; i < 200; i++)
			base[starts[test_random(&random) % 5] + test_random(&random) % 1024] =
			    (uint8_t)test_random(&random);
		settle(&t);
		fabric->controls[test_random(&random) % 2].tenant = (uint32_t)test_random(&random);
		fabric->controls[0].pkeys[test_random(&random) % NUPA_PKEYS_MAX] =
		    (uint16_t)test_random(&random);
		fabric->sb->quotas = UINT32_MAX;
		read_all(fabric);
		/* Changes meet them, too: any result will do. */
		(void)add_tenant(fabric, "two");
		(void)add_partition(fabric, "two", 0, 1);
		(void)join(fabric, 1, NUPA_MEMBER_HOST, 1);
		(void)set_newcomer(fabric, NUPA_MEMBER_DEVICE, 1, NUPA_HOST_READY);
		(void)nupa_tenant_assign(fabric, 1, 2, why, sizeof(why));
		(void)nupa_tenant_remove(fabric, 1, 1, why, sizeof(why));
		(void)nupa_partition_remove(fabric, 1, why, sizeof(why));
	}
	nupa_fabric_put(fabric);
}

TEST(a_row_whose_writer_died_is_free_until_the_next_one)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_tenant tenant;
	struct nupa_control t;

	CHECK_EQ(add_tenant(fabric, "one"), 1);
	CHECK_EQ(nupa_control(fabric, false, &t), 0);
	t.tenants[0].stamp |= 1;
	CHECK_EQ(nupa_tenant_get(fabric, 1, &tenant), -ENOENT);
	CHECK_EQ(add_tenant(fabric, "two"), 1);
	CHECK_EQ(nupa_tenant_get(fabric, 1, &tenant), 0);
	CHECK(strcmp(tenant.name, "two") == 0);
	nupa_fabric_put(fabric);
}

TEST(a_fabric_without_tenants_has_no_table)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_partition partition;
	struct nupa_member members[3];

	CHECK_EQ(nupa_tenant_ids(fabric), 1);
	CHECK_EQ(nupa_partition_list(fabric, &partition, 1), 1);
	CHECK(strcmp(partition.name, "default") == 0 && partition.pkey == 0x7fff);
	CHECK_EQ(nupa_member_list(fabric, 0xffff, members, 3), 2);
	CHECK(members[1].full && strcmp(members[1].name, fabric->hosts[1].name) == 0);
	CHECK(!fabric->control && !fabric->sb->control_backed);
	nupa_fabric_put(fabric);
}
