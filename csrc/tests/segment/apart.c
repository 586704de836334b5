/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that is really not coherent, for tests: see apart.h. */
#include "tests/segment/apart.h"

#include "base/atomics.h"
#include "segment/segment_internal.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEGMENT_BYTES (32u << 20)
#define WORDS (NUPA_CACHE_LINE_BYTES / sizeof(uint64_t))

static struct {
	uint64_t *device; /* seen by all */
	uint64_t *copy;   /* our caches */
	uint64_t bytes;
	struct apart_damage damage;
} apart;

int apart_create(void)
{
	static const struct nupa_config config = {
		.slots = 5,
		.ring_lines = APART_RING_LINES,
		.dma_bytes = APART_DMA_BYTES,
		.qp_entries = 64,
		.mr_entries = 64,
		.extent_bytes = 4096,
		.flags = NUPA_SEGMENT_MACHINES | NUPA_SEGMENT_SOFTWARE,
		.segment_bytes = SEGMENT_BYTES,
	};
	struct nupa_fabric *fabric;
	int fd;

	nupa_kernel_pretend(1);
	fabric = test_fabric_of(&config);
	fd = dup(nupa_fabric_fd(fabric));
	CHECK(fd >= 0);
	nupa_fabric_put(fabric);
	return fd;
}

static uint64_t first_word(const void *at)
{
	const uint64_t offset = (uint64_t)((const uint8_t *)at - (const uint8_t *)apart.copy);

	CHECK(offset < apart.bytes);
	return offset / NUPA_CACHE_LINE_BYTES * WORDS;
}

static uint64_t end_word(const void *at, size_t bytes)
{
	return first_word((const uint8_t *)at + bytes - 1) + WORDS;
}

static bool is_missing(enum nupa_point point, bool fetch)
{
	return apart.damage.point == point && apart.damage.fetch == fetch;
}

/* A line goes over as a whole: who sees its first word sees the rest. */
static void flush(enum nupa_point point, const void *at, size_t bytes)
{
	if (is_missing(point, false))
		return;
	for (uint64_t line = first_word(at); line < end_word(at, bytes); line += WORDS)
		for (uint64_t i = WORDS; i-- > 0;)
			nupa_store_release(&apart.device[line + i],
					   nupa_load_relaxed(&apart.copy[line + i]));
}

static void fetch(enum nupa_point point, const void *at, size_t bytes)
{
	if (is_missing(point, true))
		return;
	for (uint64_t line = first_word(at); line < end_word(at, bytes); line += WORDS)
		for (uint64_t i = 0; i < WORDS; i++)
			nupa_store_release(&apart.copy[line + i],
					   nupa_load_acquire(&apart.device[line + i]));
}

static const struct nupa_coherence injector = { flush, fetch };

/* A copy is made of each page when it is stored to. */
static void fill_caches(void)
{
	volatile uint64_t *words = apart.copy;

	for (uint64_t i = 0; i < apart.bytes / sizeof(*words);
	     i += NUPA_PAGE_BYTES / sizeof(*words))
		words[i] = words[i];
}

struct nupa_fabric *apart_open(int fd, uint64_t kernel, struct apart_damage damage)
{
	struct nupa_fabric *fabric = NULL;
	char path[64], why[512] = "";

	nupa_kernel_pretend(kernel);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (nupa_fabric_open(path, &fabric, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	nupa_fabric_detach_copy(fabric);
	apart.copy = (uint64_t *)(void *)fabric->whole;
	apart.bytes = fabric->whole_bytes;
	apart.device = mmap(NULL, apart.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(apart.device != MAP_FAILED);
	apart.damage = damage;
	fill_caches();
	nupa_coherence = &injector;
	return fabric;
}
