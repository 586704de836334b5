/* SPDX-License-Identifier: BSD-3-Clause
 * Accesses that reach a snoop filter from elsewhere than a cache: the device itself, hosts that
 * have none, and readers of the trace. */
#include "cxl/snoop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRACE (1u << 20)

static bool is_inside(const struct nupa_cxl_memory *memory, uint64_t offset, uint64_t bytes)
{
	return offset <= memory->size && bytes <= memory->size - offset;
}

/* --- the device -------------------------------------------------------------------- */

/* Of the lines that have these bytes, in the largest blocks of 4, 2 and 1 that lie in them. */
static void recall(struct nupa_cxl_snoop *snoop, uint64_t offset, uint64_t bytes,
		   enum nupa_cxl_snp snp)
{
	uint64_t end = offset + bytes, at = offset - offset % CXL_LINE_BYTES;
	uint32_t n;

	end += (CXL_LINE_BYTES - end % CXL_LINE_BYTES) % CXL_LINE_BYTES;
	for (; at < end && snoop->n_entries; at += (uint64_t)n * CXL_LINE_BYTES) {
		n = 4;
		while (n > 1 && (at % (n * CXL_LINE_BYTES) || n * CXL_LINE_BYTES > end - at))
			n /= 2;
		snoop_recall_block(snoop, at, n, snp);
	}
}

int nupa_cxl_device_recall(struct nupa_cxl_memory *memory, uint64_t offset, uint64_t bytes,
			   uint32_t snp)
{
	struct nupa_cxl_snoop *snoop = snoop_of(memory);

	if (!snoop || !is_inside(memory, offset, bytes) || (offset | bytes) % CXL_LINE_BYTES ||
	    snp < NUPA_CXL_SNP_DATA || snp > NUPA_CXL_SNP_INV)
		return -EINVAL;
	pthread_mutex_lock(&snoop->lock);
	recall(snoop, offset, bytes, (enum nupa_cxl_snp)snp);
	pthread_mutex_unlock(&snoop->lock);
	return 0;
}

int nupa_cxl_device_read(struct nupa_cxl_memory *memory, uint64_t offset, void *to, uint64_t bytes)
{
	struct nupa_cxl_snoop *snoop = snoop_of(memory);

	if (!snoop || !is_inside(memory, offset, bytes))
		return -EINVAL;
	pthread_mutex_lock(&snoop->lock);
	recall(snoop, offset, bytes, NUPA_CXL_SNP_CUR);
	memcpy(to, memory->bytes + offset, bytes);
	pthread_mutex_unlock(&snoop->lock);
	return 0;
}

int nupa_cxl_device_write(struct nupa_cxl_memory *memory, uint64_t offset, const void *from,
			  uint64_t bytes)
{
	struct nupa_cxl_snoop *snoop = snoop_of(memory);

	if (!snoop || !is_inside(memory, offset, bytes))
		return -EINVAL;
	pthread_mutex_lock(&snoop->lock);
	recall(snoop, offset, bytes, NUPA_CXL_SNP_INV);
	memcpy(memory->bytes + offset, from, bytes);
	pthread_mutex_unlock(&snoop->lock);
	return 0;
}

/* --- hosts without a cache --------------------------------------------------------- */

/* A request, and the snoops of other hosts for its line. */
static void request(struct nupa_cxl_snoop *snoop, uint32_t host, uint64_t offset,
		    enum nupa_cxl_kind kind, enum nupa_cxl_snp snp)
{
	uint64_t line = offset - offset % CXL_LINE_BYTES;
	struct snoop_entry *entry = snoop_find(snoop, line);
	struct nupa_cxl_trace message = { .offset = line,
					  .host = (uint8_t)host,
					  .kind = (uint8_t)kind,
					  .snp = (uint8_t)snp,
					  .lines = 1 };

	snoop_say(snoop, &message);
	if (entry)
		snoop_others(snoop, entry, 0, snp);
	snoop_answer(snoop, host, line, NUPA_CXL_CMP);
	if (kind == NUPA_CXL_MEM_RD) {
		message.kind = NUPA_CXL_MEM_DATA;
		message.snp = 0;
		message.poison = cxl_memory_has_poison(snoop->memory, line);
		snoop_say(snoop, &message);
	}
}

bool snoop_read(struct nupa_cxl_snoop *snoop, uint64_t offset, uint8_t *to, size_t bytes)
{
	bool is_good;

	pthread_mutex_lock(&snoop->lock);
	request(snoop, SNOOP_HOSTS, offset, NUPA_CXL_MEM_RD, NUPA_CXL_SNP_CUR);
	is_good = cxl_memory_read(snoop->memory, offset, to, bytes);
	pthread_mutex_unlock(&snoop->lock);
	return is_good;
}

void snoop_write(struct nupa_cxl_snoop *snoop, uint64_t offset, const uint8_t *from, size_t bytes)
{
	bool is_whole = bytes == CXL_LINE_BYTES;

	pthread_mutex_lock(&snoop->lock);
	request(snoop, SNOOP_HOSTS, offset, is_whole ? NUPA_CXL_MEM_WR : NUPA_CXL_MEM_WR_PTL,
		NUPA_CXL_SNP_INV);
	cxl_memory_write(snoop->memory, offset, from, bytes);
	pthread_mutex_unlock(&snoop->lock);
}

void snoop_flush(struct nupa_cxl_snoop *snoop, uint32_t host, uint64_t offset)
{
	pthread_mutex_lock(&snoop->lock);
	request(snoop, host, offset, NUPA_CXL_MEM_INV_NT, NUPA_CXL_SNP_INV);
	pthread_mutex_unlock(&snoop->lock);
}

/* --- traces ------------------------------------------------------------------------ */

int nupa_cxl_snoop_trace(struct nupa_cxl_memory *memory, uint32_t limit)
{
	struct nupa_cxl_snoop *snoop = snoop_of(memory);
	struct nupa_cxl_trace *now, *before;

	if (!snoop || limit > MAX_TRACE)
		return -EINVAL;
	now = calloc(limit + 1, sizeof(*now));
	if (!now)
		return -ENOMEM;
	pthread_mutex_lock(&snoop->lock);
	before = snoop->trace;
	snoop->trace = now;
	snoop->trace_limit = limit;
	snoop->trace_first = snoop->traced = 0;
	snoop->trace_missed = 0;
	pthread_mutex_unlock(&snoop->lock);
	free(before);
	return 0;
}

int nupa_cxl_snoop_take(struct nupa_cxl_memory *memory, struct nupa_cxl_trace *to, uint32_t n,
			uint64_t *missed)
{
	struct nupa_cxl_snoop *snoop = snoop_of(memory);
	uint32_t taken = 0;

	if (!snoop)
		return -EINVAL;
	pthread_mutex_lock(&snoop->lock);
	for (; taken < n && snoop->traced; taken++) {
		to[taken] = snoop->trace[snoop->trace_first];
		snoop->trace_first = (snoop->trace_first + 1) % snoop->trace_limit;
		snoop->traced--;
	}
	*missed = snoop->trace_missed;
	pthread_mutex_unlock(&snoop->lock);
	return (int)taken;
}
