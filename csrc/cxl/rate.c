/* SPDX-License-Identifier: BSD-3-Clause
 * Lines at random places, written or read one at a time. */
#include "cxl/rate.h"

#include <string.h>
#include <time.h>

#define LINE_BYTES 64u
#define LINE_WORDS (LINE_BYTES / 8)

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* splitmix64. */
static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

/* The contents of the line at hpa. */
static void make_line(uint64_t hpa, uint8_t line[LINE_BYTES])
{
	uint64_t words[LINE_WORDS], word = mixed(hpa + 1);

	for (uint32_t i = 0; i < LINE_WORDS; i++)
		words[i] = word + i;
	memcpy(line, words, sizeof(words));
}

struct nupa_cxl_rate nupa_cxl_rate(struct nupa_cxl_bus *bus, uint64_t base, uint64_t bytes,
				   uint64_t count, uint64_t seed, bool write)
{
	struct nupa_cxl_rate rate = { .wrong = 0 };
	uint64_t lines = bytes / LINE_BYTES, start_ns = clock_ns();

	for (; count && rate.result.status == NUPA_CXL_OK; count--) {
		uint8_t line[LINE_BYTES], found[LINE_BYTES];
		uint64_t hpa;

		seed += UINT64_C(0x9E3779B97F4A7C15);
		hpa = base + mixed(seed) % lines * LINE_BYTES;
		make_line(hpa, line);
		if (write) {
			rate.result = nupa_cxl_write(bus, hpa, line, LINE_BYTES);
		} else {
			rate.result = nupa_cxl_read(bus, hpa, found, LINE_BYTES);
			rate.wrong += !!memcmp(found, line, LINE_BYTES);
		}
	}
	rate.elapsed_ns = clock_ns() - start_ns;
	return rate;
}

struct nupa_cxl_rate nupa_cxl_rate_fill(struct nupa_cxl_bus *bus, uint64_t base, uint64_t bytes)
{
	struct nupa_cxl_rate rate = { .wrong = 0 };
	uint64_t start_ns = clock_ns();

	for (uint64_t at = 0; at < bytes && rate.result.status == NUPA_CXL_OK; at += LINE_BYTES) {
		uint8_t line[LINE_BYTES];

		make_line(base + at, line);
		rate.result = nupa_cxl_write(bus, base + at, line, LINE_BYTES);
	}
	rate.elapsed_ns = clock_ns() - start_ns;
	return rate;
}
