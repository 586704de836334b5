/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of regions: see shared_region.h. */
#include "tests/region/shared_region.h"

#include "segment/layout/geometry.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct nupa_region_info region_wish(uint64_t bytes, uint64_t share, uint32_t pid)
{
	struct nupa_region_info wish = { .bytes = bytes, .share = { share }, .pid = pid };

	snprintf(wish.tag, sizeof(wish.tag), "of %u", (unsigned int)getpid());
	return wish;
}

struct nupa_region_info region_made(struct nupa_fabric *fabric, uint64_t bytes, uint64_t share)
{
	const struct nupa_region_info wish = region_wish(bytes, share, (uint32_t)getpid());
	struct nupa_region_info made;

	CHECK_EQ(nupa_region_alloc(fabric, 0, &wish, &made), 0);
	return made;
}

uint32_t region_extents(const struct nupa_fabric *fabric)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fabric->geometry.n_extents; i++)
		n += fabric->extents[i] != 0;
	return n;
}

uint32_t region_count(struct nupa_fabric *fabric)
{
	struct nupa_region_info found;
	uint32_t n = 0;

	for (uint32_t i = 0; i < nupa_region_limit(fabric); i++)
		n += nupa_region_get(fabric, i, &found) == 0;
	return n;
}

struct nupa_region_header *region_table(const struct nupa_fabric *fabric)
{
	CHECK(fabric->regions);
	return (struct nupa_region_header *)(void *)fabric->regions;
}

struct nupa_region_row *region_rows(const struct nupa_fabric *fabric)
{
	return (struct nupa_region_row *)(void *)(region_table(fabric) + 1);
}

struct nupa_region_mapping *region_mappings(const struct nupa_fabric *fabric)
{
	return (struct nupa_region_mapping *)(void *)(region_rows(fabric) +
						      nupa_region_rows(&fabric->geometry));
}

uint32_t region_windows(const struct nupa_fabric *fabric)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nupa_region_mappings(&fabric->geometry); i++)
		n += NUPA_CLAIM_STATE(region_mappings(fabric)[i].claim) != NUPA_MAPPING_FREE;
	return n;
}

uint64_t region_backed_bytes(const struct nupa_fabric *fabric)
{
	struct stat status;

	CHECK_EQ(fstat(fabric->fd, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

void region_reaped(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
}
