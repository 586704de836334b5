/* SPDX-License-Identifier: BSD-3-Clause
 * Views of files: their bytes are where the plan says, and plans that are none are refused. */
#include "tests/support/runner.h"
#include "tests/region/viewed.h"
#include "region/view/view_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char why[512];

#define FILE_PAGES 64u

/* Every word is its own offset. */
static int make_file(void)
{
	int fd = memfd_create("test-view", MFD_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, FILE_PAGES * PAGE), 0);
	for (uint64_t at = 0; at < FILE_PAGES * PAGE; at += sizeof(at))
		CHECK_EQ(pwrite(fd, &at, sizeof(at), (off_t)at), sizeof(at));
	return fd;
}

static int try_file(int fd, const uint64_t *pieces, uint32_t n_pieces, uint64_t granularity,
		    uint64_t bytes, struct nupa_view **out)
{
	const struct nupa_view_plan plan = {
		.pieces = pieces,
		.n_pieces = n_pieces,
		.granularity = granularity,
		.bytes = bytes,
	};

	return nupa_view_of_file(fd, &plan, out, why, sizeof(why));
}

TEST(turns_are_where_the_plan_says)
{
	const uint64_t pieces[] = { 40 * PAGE, 8 * PAGE, 24 * PAGE };
	const uint64_t listed[] = { 7 * PAGE, 3 * PAGE, 4 * PAGE, 5 * PAGE, 0 };
	int fd = make_file();
	struct nupa_view *view;

	for (uint64_t turn_bytes = PAGE; turn_bytes <= 4 * PAGE; turn_bytes *= 2) {
		CHECK_EQ(try_file(fd, pieces, 3, turn_bytes, 12 * PAGE, &view), 0);
		for (uint64_t at = 0; at < 12 * PAGE; at += sizeof(at)) {
			const uint64_t turn = at / turn_bytes;

			CHECK_EQ(words(view)[at / sizeof(at)],
				 pieces[turn % 3] + turn / 3 * turn_bytes + at % turn_bytes);
		}
		nupa_view_free(view);
	}
	CHECK_EQ(try_file(fd, listed, 5, PAGE, 5 * PAGE, &view), 0);
	for (uint64_t at = 0; at < 5 * PAGE; at += sizeof(at))
		CHECK_EQ(words(view)[at / sizeof(at)], listed[at / PAGE] + at % PAGE);
	words(view)[0] = 1;
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(words(view)[0], 1);
	nupa_view_revoke(view);
	CHECK_EQ(nupa_view_lost(view), NUPA_VIEW_REVOKED);
	for (uint64_t i = 0; i < 5 * PAGE / sizeof(uint64_t); i++)
		CHECK_EQ(words(view)[i], ONES);
	nupa_view_free(view);
}

TEST(plans_that_are_none_are_refused)
{
	static const struct {
		uint64_t pieces[2];
		uint32_t n_pieces;
		uint64_t granularity, bytes;
		const char *says;
	} wrong[] = {
		{ { 0 }, 0, PAGE, PAGE, "0 pieces" },
		{ { 0 }, 1, 0, 0, "0 bytes" },
		{ { 0, PAGE }, 2, 0, 2 * PAGE, "turns of 0 bytes" },
		{ { 0, PAGE }, 2, 2 * PAGE, 2 * PAGE, "2 pieces" },
		{ { 0, PAGE }, 2, 3 * PAGE, 4 * PAGE, "2 pieces" },
		{ { 0, PAGE }, 2, 256, 2 * PAGE, "interleave it by 4096" },
		{ { 0 }, 1, 0, PAGE + 64, "has 4160 bytes" },
		{ { 64 }, 1, 0, PAGE, "piece 0 is at 0x40" },
		{ { 0 }, 1, 0, (FILE_PAGES + 1) * PAGE, "not inside of the file" },
		{ { FILE_PAGES * PAGE }, 1, 0, PAGE, "not inside of the file" },
		{ { 0, UINT64_MAX - PAGE + 1 }, 2, PAGE, 2 * PAGE, "not inside of the file" },
		{ { 0 }, 1, 0, UINT64_MAX & ~(PAGE - 1), "cannot have" },
	};
	struct nupa_view *view;
	int fd = make_file(), pipes[2];

	for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK_EQ(try_file(fd, wrong[i].pieces, wrong[i].n_pieces, wrong[i].granularity,
				  wrong[i].bytes, &view),
			 -EINVAL);
		CHECK(strstr(why, wrong[i].says));
	}
	CHECK_EQ(pipe(pipes), 0);
	CHECK_EQ(try_file(pipes[0], wrong[0].pieces, 1, 0, PAGE, &view), -EINVAL);
	CHECK_EQ(try_file(-1, wrong[0].pieces, 1, 0, PAGE, &view), -EBADF);
}

/* Numbers near those that mean something. */
static uint64_t some_number(uint64_t *random)
{
	static const uint64_t near[] = {
		0, 1, 64, PAGE, 2 * PAGE, 4 * PAGE, FILE_PAGES * PAGE, UINT64_MAX
	};
	const uint64_t picked = near[test_random(random) % (sizeof(near) / sizeof(near[0]))];

	switch (test_random(random) % 4) {
	case 0:
		return test_random(random);
	case 1:
		return picked + test_random(random) % 3 - 1;
	default:
		return picked * (test_random(random) % 8);
	}
}

TEST(random_plans_are_refused_or_right)
{
	uint64_t random = test_seed(), pieces[8];
	uint32_t right = 0;
	int fd = make_file();

	for (uint32_t i = 0; i < 20000; i++) {
		const uint32_t n = (uint32_t)(test_random(&random) % 9);
		const uint64_t turn_bytes = some_number(&random), bytes = some_number(&random);
		struct nupa_view *view;
		int rc;

		for (uint32_t p = 0; p < 8; p++)
			pieces[p] = some_number(&random);
		rc = try_file(fd, pieces, n, turn_bytes, bytes, &view);
		CHECK(rc == 0 || rc == -EINVAL);
		if (rc)
			continue;
		right++;
		for (uint64_t at = 0; at < bytes; at += 512) {
			const uint64_t turn = n == 1 ? 0 : at / turn_bytes;
			const uint64_t rest = n == 1 ? at : at % turn_bytes;

			CHECK_EQ(words(view)[at / sizeof(at)],
				 pieces[turn % n] + turn / n * turn_bytes + rest);
		}
		nupa_view_free(view);
	}
	CHECK(right > 0);
}

TEST(more_mappings_than_a_process_should_take_are_refused)
{
	const uint64_t pieces[] = { 0, (NUPA_VIEW_MAPPINGS_MAX / 2 + 1) * PAGE };
	const uint64_t bytes = 2 * pieces[1];
	int fd = memfd_create("test-view", MFD_CLOEXEC);
	struct nupa_view *view;

	CHECK_EQ(ftruncate(fd, (off_t)bytes), 0);
	CHECK_EQ(try_file(fd, pieces, 2, PAGE, bytes, &view), -E2BIG);
	CHECK(strstr(why, "32768 mappings"));
}
