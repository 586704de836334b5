/* SPDX-License-Identifier: BSD-3-Clause
 * The lines of a cache of cache.h, and its answers to snoops. */
#include "cxl/cache.h"

struct cache_set *cache_set_of(struct nupa_cxl_cache *cache, uint64_t offset)
{
	return &cache->sets[offset / CXL_LINE_BYTES & (cache->shape.sets - 1)];
}

struct cache_line *cache_find(struct nupa_cxl_cache *cache, struct cache_set *set,
			      const struct nupa_cxl_memory *memory, uint64_t offset)
{
	for (uint32_t i = 0; i < cache->shape.ways; i++)
		if (set->lines[i].memory == memory && set->lines[i].offset == offset)
			return &set->lines[i];
	return NULL;
}

void cache_line_drop(struct cache_line *line)
{
	line->memory = NULL;
	line->state = NUPA_CXL_I;
}

void cache_line_lose(struct cache_line *line)
{
	if (line->state == NUPA_CXL_M)
		cxl_memory_poison_line(line->memory, line->offset, true);
	cache_line_drop(line);
}

void cache_line_write_back(struct cache_set *set, struct cache_line *line)
{
	cxl_memory_write(line->memory, line->offset, line->data, CXL_LINE_BYTES);
	line->state = NUPA_CXL_E;
	set->counts.write_backs++;
}

void cache_snoop(struct nupa_cxl_cache *cache, struct nupa_cxl_memory *memory, uint64_t offset,
		 enum nupa_cxl_snp snp, struct cache_answer *answer)
{
	static const enum nupa_cxl_meta directory[] = {
		[NUPA_CXL_I] = NUPA_CXL_META_I,
		[NUPA_CXL_S] = NUPA_CXL_META_S,
		[NUPA_CXL_E] = NUPA_CXL_META_A,
		[NUPA_CXL_M] = NUPA_CXL_META_A,
	};
	struct cache_set *set = cache_set_of(cache, offset);
	struct cache_line *line;

	*answer = (struct cache_answer){ .state = NUPA_CXL_META_I };
	pthread_mutex_lock(&set->lock);
	answer->is_conflict = set->wanted == memory && set->wanted_offset == offset;
	line = cache_find(cache, set, memory, offset);
	if (line) {
		set->counts.snoops++;
		answer->has_written = line->state == NUPA_CXL_M;
		if (answer->has_written)
			cache_line_write_back(set, line);
		if (snp == NUPA_CXL_SNP_INV)
			cache_line_drop(line);
		else if (snp == NUPA_CXL_SNP_DATA)
			line->state = NUPA_CXL_S;
		answer->state = directory[line->state];
	}
	pthread_mutex_unlock(&set->lock);
}

void cache_lose_memory(struct nupa_cxl_cache *cache, const struct nupa_cxl_memory *memory)
{
	for (uint32_t i = 0; i < cache->shape.sets; i++) {
		struct cache_set *set = &cache->sets[i];

		pthread_mutex_lock(&set->lock);
		for (uint32_t way = 0; way < cache->shape.ways; way++)
			if (set->lines[way].memory == memory)
				cache_line_lose(&set->lines[way]);
		pthread_mutex_unlock(&set->lock);
	}
}

void cache_leave(struct nupa_cxl_cache *cache, struct nupa_cxl_snoop *snoop)
{
	cache_lose_memory(cache, snoop->memory);
	for (uint32_t i = 0; i < cache->n_joined; i++)
		if (cache->joined[i] == snoop)
			cache->joined[i] = cache->joined[--cache->n_joined];
}
