/* SPDX-License-Identifier: BSD-3-Clause
 * Buckets of rates, with the clock as an argument, and the table that they are in. */
#include "base/clock.h"
#include "segment/control/rate.h"
#include "tests/support/end.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define NOW_NS UINT64_C(1000000000000)
#define NS(units) ((units) / NUPA_RATE_UNITS_PER_NS)

static struct nupa_rate_entry bucket_of(uint64_t bytes_per_s)
{
	return (struct nupa_rate_entry){
		.scope = NUPA_RATE_TENANT,
		.tenant = 1,
		.bytes_per_s = bytes_per_s,
		.free_at = nupa_rate_units(NOW_NS),
	};
}

/* Books as a sender with plenty to send does: sleeps until the first bytes may go.  Returns how
 * many bytes went in *ns*. */
static uint64_t send_for(struct nupa_rate_entry *bucket, uint64_t bytes_per_s, uint64_t bytes,
			 uint64_t ns)
{
	const double price = nupa_rate_price(bytes_per_s);
	uint64_t now_ns = NOW_NS, sent = 0;

	while (now_ns < NOW_NS + ns) {
		uint64_t start_ns = NS(nupa_rate_book(bucket, price, bytes, now_ns));

		if (start_ns > now_ns + NUPA_RATE_AHEAD_NS)
			now_ns = start_ns;
		if (now_ns < NOW_NS + ns)
			sent += bytes;
	}
	return sent;
}

TEST(a_tenth_of_a_second_has_a_tenth_of_the_rate)
{
	static const uint64_t rates[] = { 1000000, 100000000, 300000000, 10000000000,
					  100000000000 };
	static const uint64_t lengths[] = { 64, 128, 4160, 65600 };

	for (uint32_t r = 0; r < 5; r++) {
		for (uint32_t l = 0; l < 4; l++) {
			struct nupa_rate_entry bucket = bucket_of(rates[r]);
			uint64_t wanted = rates[r] / 10, most = rates[r] / 1000 + lengths[l];
			uint64_t sent;

			if (lengths[l] > wanted / 50 || lengths[l] < wanted / 10000000)
				continue; /* a packet of many per cents; too many to count */
			sent = send_for(&bucket, rates[r], lengths[l], 100 * MS);
			CHECK(sent + wanted / 1000 >= wanted);
			CHECK(sent <= wanted + most + wanted / 1000);
			CHECK_EQ(bucket.idle_ns, 0);
		}
	}
}

TEST(idle_time_is_made_up_for_by_three_milliseconds_at_most)
{
	struct nupa_rate_entry bucket = bucket_of(1000000000);
	const double price = nupa_rate_price(1000000000);
	uint64_t later_ns = NOW_NS + 10000 * MS;

	CHECK_EQ(NS(nupa_rate_book(&bucket, price, 1000, later_ns)), later_ns - NUPA_RATE_BURST_NS);
	CHECK_EQ(bucket.idle_ns, 10000 * MS - NUPA_RATE_BURST_NS);
	CHECK_EQ(NS(nupa_rate_book(&bucket, price, 1000, later_ns)),
		 later_ns - NUPA_RATE_BURST_NS + 1000);
	CHECK_EQ(bucket.bytes, 2000);
	/* One nanosecond less than that is no loss. */
	bucket = bucket_of(1000000000);
	nupa_rate_book(&bucket, price, 1, NOW_NS + NUPA_RATE_BURST_NS);
	CHECK_EQ(bucket.idle_ns, 0);
}

TEST(a_price_beyond_all_numbers_is_a_long_time_and_no_overflow)
{
	struct nupa_rate_entry bucket = bucket_of(1);

	CHECK_EQ(nupa_rate_cost(nupa_rate_price(1), UINT64_MAX), NUPA_RATE_COST_MAX);
	CHECK_EQ(nupa_rate_cost(nupa_rate_price(1), 1), UINT64_C(1000000000) * 64);
	CHECK_EQ(nupa_rate_cost(nupa_rate_price(UINT64_MAX), 64), 0);
	for (uint32_t i = 0; i < 8; i++) {
		uint64_t before = bucket.free_at;

		nupa_rate_book(&bucket, nupa_rate_price(1), UINT64_MAX, NOW_NS);
		CHECK(bucket.free_at >= before);
	}
	CHECK_EQ(bucket.free_at, UINT64_MAX);
	CHECK_EQ(nupa_rate_book(&bucket, nupa_rate_price(1), 1, UINT64_MAX), UINT64_MAX);
}

TEST(a_piece_is_whole_packets_of_half_a_millisecond)
{
	CHECK_EQ(nupa_rate_piece_bytes(1), 4096);
	CHECK_EQ(nupa_rate_piece_bytes(100000000), 49152);
	CHECK_EQ(nupa_rate_piece_bytes(2097151000), 1044480);
	CHECK_EQ(nupa_rate_piece_bytes(2097152000), 1u << 20);
	CHECK_EQ(nupa_rate_piece_bytes(UINT64_MAX), 1u << 20);
}

/* --- several at once ----------------------------------------------------------------- */

#define THREADS 4u
#define BOOKINGS 20000u

static void *book_many(void *arg)
{
	struct nupa_rate_entry *bucket = arg;

	for (uint32_t i = 0; i < BOOKINGS; i++)
		nupa_rate_book(bucket, nupa_rate_price(1000000000), 64, NOW_NS);
	return NULL;
}

TEST(no_booking_of_several_threads_is_lost)
{
	struct nupa_rate_entry bucket = bucket_of(1000000000);
	pthread_t threads[THREADS];

	for (uint32_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, book_many, &bucket), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(bucket.bytes, THREADS * BOOKINGS * 64);
	CHECK_EQ(NS(bucket.free_at), NOW_NS + THREADS * BOOKINGS * UINT64_C(64));
}

/* --- the table ----------------------------------------------------------------------- */

static void refused(struct nupa_fabric *fabric, uint32_t scope, uint32_t tenant, uint32_t host,
		    uint32_t pkey, int error, const char *saying)
{
	char why[256] = "";

	CHECK_EQ(nupa_rate_set(fabric, scope, tenant, host, pkey, 1000, why, sizeof(why)), error);
	if (!strstr(why, saying))
		fprintf(stderr, "says: %s\n", why);
	CHECK(strstr(why, saying));
}

static void set(struct nupa_fabric *fabric, uint32_t scope, uint32_t tenant, uint32_t host,
		uint32_t pkey, uint64_t bytes_per_s)
{
	char why[256] = "";

	CHECK_EQ(nupa_rate_set(fabric, scope, tenant, host, pkey, bytes_per_s, why, sizeof(why)),
		 0);
}

TEST(a_rate_of_nothing_that_there_is_is_refused)
{
	struct nupa_fabric *fabric = test_fabric();

	refused(fabric, 0, 1, 0, 1, -EINVAL, "scope 0");
	refused(fabric, NUPA_RATE_SCOPES, 1, 0, 1, -EINVAL, "scope 4");
	refused(fabric, NUPA_RATE_TENANT, 0, 0, 0, -EINVAL, "tenant 0");
	refused(fabric, NUPA_RATE_PARTITION, 0, 0, 0x8000, -EINVAL, "P_Key 0");
	refused(fabric, NUPA_RATE_MEMBER, 0, 2, 0x8001, -EINVAL, "no host 2");
	set(fabric, NUPA_RATE_MEMBER, 0, 1, 0x8001, 1);
	CHECK_EQ(nupa_rate_list(fabric, NULL, 0), 1);
	nupa_fabric_put(fabric);
}

TEST(kernels_with_clocks_of_their_own_have_no_rates)
{
	const struct nupa_config config = { .flags = NUPA_SEGMENT_MACHINES,
					    .segment_bytes = 256u << 20 };
	struct nupa_fabric *fabric = test_fabric_of(&config);

	refused(fabric, NUPA_RATE_TENANT, 1, 0, 0, -EOPNOTSUPP, "several kernels");
	set(fabric, NUPA_RATE_TENANT, 1, 0, 0, 0); /* there is none */
	nupa_fabric_put(fabric);
}

TEST(a_rate_is_one_row_that_changes_and_goes)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_rate_info info;

	set(fabric, NUPA_RATE_MEMBER, 7, 1, 0x8005, 1000);
	CHECK_EQ(nupa_rate_list(fabric, &info, 1), 1);
	CHECK_EQ(info.tenant, 0); /* what the scope does not name */
	CHECK_EQ(info.pkey, 5);
	CHECK_EQ(info.host, 1);
	set(fabric, NUPA_RATE_MEMBER, 0, 1, 5, 2000);
	CHECK_EQ(nupa_rate_list(fabric, &info, 1), 1);
	CHECK_EQ(info.bytes_per_s, 2000);
	set(fabric, NUPA_RATE_MEMBER, 0, 0, 5, 0); /* another one, which there is not */
	CHECK_EQ(nupa_rate_list(fabric, &info, 1), 1);
	set(fabric, NUPA_RATE_MEMBER, 0, 1, 5, 0);
	CHECK_EQ(nupa_rate_list(fabric, &info, 1), 0);
	nupa_fabric_put(fabric);
}

TEST(a_full_table_takes_no_more_and_still_changes)
{
	struct nupa_fabric *fabric = test_fabric();

	for (uint32_t i = 1; i <= NUPA_RATES_MAX; i++)
		set(fabric, NUPA_RATE_TENANT, i, 0, 0, i);
	refused(fabric, NUPA_RATE_TENANT, NUPA_RATES_MAX + 1, 0, 0, -ENOSPC, "256 rates");
	set(fabric, NUPA_RATE_TENANT, 17, 0, 0, 5000);
	set(fabric, NUPA_RATE_TENANT, 17, 0, 0, 0);
	set(fabric, NUPA_RATE_TENANT, NUPA_RATES_MAX + 1, 0, 0, 1);
	CHECK_EQ(nupa_rate_list(fabric, NULL, 0), NUPA_RATES_MAX);
	nupa_fabric_put(fabric);
}

TEST(what_was_booked_at_a_low_rate_does_not_hold_a_high_one_back)
{
	struct nupa_fabric *fabric = test_fabric();

	set(fabric, NUPA_RATE_TENANT, 1, 0, 0, 1);
	nupa_rate_book(&fabric->rates[0], nupa_rate_price(1), 1000000, nupa_clock_ns());
	set(fabric, NUPA_RATE_TENANT, 1, 0, 0, 1000000000);
	CHECK(NS(fabric->rates[0].free_at) <= nupa_clock_ns());
	nupa_fabric_put(fabric);
}
