/* SPDX-License-Identifier: BSD-3-Clause
 * The directory of snoop.h: entries, snoops, and counts. */
#include "cxl/snoop.h"

#include "cxl/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETS (1u << 20)
#define MAX_WAYS 64u

_Static_assert(NUPA_CXL_N_MESSAGES == 24, "as nupa_cxl_snoop_counts says");

pthread_mutex_t snoop_joins = PTHREAD_MUTEX_INITIALIZER;

int nupa_cxl_memory_set_snoop(struct nupa_cxl_memory *memory, uint32_t sets, uint32_t ways)
{
	struct nupa_cxl_snoop *snoop, *none = NULL;

	if (!sets || sets > MAX_SETS || sets & (sets - 1) || !ways || ways > MAX_WAYS)
		return -EINVAL;
	snoop = calloc(1, sizeof(*snoop));
	if (!snoop)
		return -ENOMEM;
	snoop->memory = memory;
	snoop->sets = sets;
	snoop->ways = ways;
	snoop->entries = calloc((size_t)sets * ways, sizeof(*snoop->entries));
	if (!snoop->entries || pthread_mutex_init(&snoop->lock, NULL)) {
		free(snoop->entries);
		free(snoop);
		return -ENOMEM;
	}
	if (__atomic_compare_exchange_n(&memory->snoop, &none, snoop, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return 0;
	snoop_free(snoop);
	return -EBUSY;
}

void snoop_free(struct nupa_cxl_snoop *snoop)
{
	if (!snoop)
		return;
	pthread_mutex_lock(&snoop_joins);
	pthread_mutex_lock(&snoop->lock);
	for (uint32_t i = 0; i < SNOOP_HOSTS; i++)
		if (snoop->caches[i])
			cache_leave(snoop->caches[i], snoop);
	pthread_mutex_unlock(&snoop->lock);
	pthread_mutex_unlock(&snoop_joins);
	pthread_mutex_destroy(&snoop->lock);
	free(snoop->trace);
	free(snoop->entries);
	free(snoop);
}

/* --- messages ---------------------------------------------------------------------- */

void snoop_say(struct nupa_cxl_snoop *snoop, const struct nupa_cxl_trace *message)
{
	snoop->counts[message->host].messages[message->kind]++;
	if (!snoop->trace_limit)
		return;
	if (snoop->traced == snoop->trace_limit) {
		snoop->trace_missed++;
		return;
	}
	snoop->trace[(snoop->trace_first + snoop->traced++) % snoop->trace_limit] = *message;
}

void snoop_answer(struct nupa_cxl_snoop *snoop, uint32_t host, uint64_t offset,
		  enum nupa_cxl_kind kind)
{
	struct nupa_cxl_trace message = {
		.offset = offset, .host = (uint8_t)host, .kind = (uint8_t)kind, .lines = 1
	};

	snoop_say(snoop, &message);
}

/* --- entries ----------------------------------------------------------------------- */

static uint64_t bit(uint32_t host)
{
	return UINT64_C(1) << host;
}

static struct snoop_entry *set_of(struct nupa_cxl_snoop *snoop, uint64_t offset)
{
	return snoop->entries + (offset / CXL_LINE_BYTES & (snoop->sets - 1)) * (size_t)snoop->ways;
}

static bool is_free(const struct snoop_entry *entry)
{
	return !(entry->owners | entry->sharers);
}

struct snoop_entry *snoop_find(struct nupa_cxl_snoop *snoop, uint64_t offset)
{
	struct snoop_entry *set = set_of(snoop, offset);

	for (uint32_t i = 0; i < snoop->ways; i++)
		if (set[i].offset == offset && !is_free(&set[i]))
			return &set[i];
	return NULL;
}

struct snoop_entry *snoop_entry_get(struct nupa_cxl_snoop *snoop, uint64_t offset)
{
	struct snoop_entry *entry = snoop_find(snoop, offset), *set = set_of(snoop, offset);

	if (!entry) {
		entry = set;
		for (uint32_t i = 0; i < snoop->ways && !is_free(entry); i++)
			if (is_free(&set[i]) || set[i].used < entry->used)
				entry = &set[i];
		for (uint32_t i = 0; i < SNOOP_HOSTS; i++)
			if ((entry->owners | entry->sharers) & bit(i))
				snoop->counts[i].evictions++;
		snoop_others(snoop, entry, 0, NUPA_CXL_SNP_INV);
		entry->offset = offset;
	}
	entry->used = ++snoop->now;
	return entry;
}

void snoop_set(struct nupa_cxl_snoop *snoop, struct snoop_entry *entry, uint32_t host,
	       enum nupa_cxl_meta state)
{
	bool was_free = is_free(entry);

	entry->owners &= ~bit(host);
	entry->sharers &= ~bit(host);
	if (state == NUPA_CXL_META_A)
		entry->owners |= bit(host);
	else if (state == NUPA_CXL_META_S)
		entry->sharers |= bit(host);
	snoop->n_entries += (uint64_t)was_free - (uint64_t)is_free(entry);
}

static enum nupa_cxl_meta state_of(const struct snoop_entry *entry, uint32_t host)
{
	if (entry->owners & bit(host))
		return NUPA_CXL_META_A;
	return entry->sharers & bit(host) ? NUPA_CXL_META_S : NUPA_CXL_META_I;
}

/* --- asking hosts ------------------------------------------------------------------ */

/* The hosts to snoop before SnpType is done. */
static uint64_t asked(const struct snoop_entry *entry, enum nupa_cxl_snp snp)
{
	return snp == NUPA_CXL_SNP_INV ? entry->owners | entry->sharers : entry->owners;
}

static enum nupa_cxl_kind question(enum nupa_cxl_snp snp, bool is_block)
{
	static const enum nupa_cxl_kind kinds[][2] = {
		[NUPA_CXL_SNP_DATA] = { NUPA_CXL_BISNP_DATA, NUPA_CXL_BISNP_DATA_BLK },
		[NUPA_CXL_SNP_CUR] = { NUPA_CXL_BISNP_CUR, NUPA_CXL_BISNP_CUR_BLK },
		[NUPA_CXL_SNP_INV] = { NUPA_CXL_BISNP_INV, NUPA_CXL_BISNP_INV_BLK },
	};

	return kinds[snp][is_block];
}

static enum nupa_cxl_kind response(enum nupa_cxl_meta state, bool is_block)
{
	if (state == NUPA_CXL_META_I)
		return is_block ? NUPA_CXL_BIRSP_I_BLK : NUPA_CXL_BIRSP_I;
	if (state == NUPA_CXL_META_S)
		return is_block ? NUPA_CXL_BIRSP_S_BLK : NUPA_CXL_BIRSP_S;
	return is_block ? NUPA_CXL_BIRSP_E_BLK : NUPA_CXL_BIRSP_E;
}

/* The host's actions before it answers, and the state in its answer.  CXL 3.1 3.5.1: a conflict
 * with its own request is settled first, then changed data is written. */
static enum nupa_cxl_meta ask(struct nupa_cxl_snoop *snoop, struct snoop_entry *entry,
			      uint32_t host, enum nupa_cxl_snp snp)
{
	struct cache_answer answer;
	struct nupa_cxl_trace write = {
		.offset = entry->offset, .host = (uint8_t)host, .kind = NUPA_CXL_MEM_WR, .lines = 1
	};

	cache_snoop(snoop->caches[host], snoop->memory, entry->offset, snp, &answer);
	if (answer.is_conflict) {
		snoop_answer(snoop, host, entry->offset, NUPA_CXL_BI_CONFLICT);
		snoop_answer(snoop, host, entry->offset, NUPA_CXL_BI_CONFLICT_ACK);
	}
	if (answer.has_written) {
		write.meta = (uint8_t)answer.state;
		snoop_say(snoop, &write);
		snoop_answer(snoop, host, entry->offset, NUPA_CXL_CMP);
	}
	snoop_set(snoop, entry, host, answer.state);
	return answer.state;
}

void snoop_others(struct nupa_cxl_snoop *snoop, struct snoop_entry *entry, uint64_t except,
		  enum nupa_cxl_snp snp)
{
	for (uint32_t i = 0; i < SNOOP_HOSTS; i++)
		if (asked(entry, snp) & ~except & bit(i)) {
			snoop_answer(snoop, i, entry->offset, question(snp, false));
			snoop_answer(snoop, i, entry->offset,
				     response(ask(snoop, entry, i, snp), false));
		}
}

/* A host, for a block of lines at once: CXL 3.1 3.3.7, one answer if the lines agree. */
static void ask_block(struct nupa_cxl_snoop *snoop, uint64_t offset, uint32_t n, uint32_t host,
		      enum nupa_cxl_snp snp)
{
	struct nupa_cxl_trace message = { .offset = offset,
					  .host = (uint8_t)host,
					  .kind = (uint8_t)question(snp, true),
					  .lines = (uint8_t)n };
	enum nupa_cxl_meta states[4] = { NUPA_CXL_META_I };
	bool do_agree = true;

	snoop_say(snoop, &message);
	for (uint32_t i = 0; i < n; i++) {
		struct snoop_entry *entry = snoop_find(snoop, offset + i * CXL_LINE_BYTES);

		states[i] = NUPA_CXL_META_I;
		if (entry && state_of(entry, host) != NUPA_CXL_META_I)
			states[i] = ask(snoop, entry, host, snp);
		do_agree = do_agree && states[i] == states[0];
	}
	message.kind = (uint8_t)response(states[0], true);
	if (do_agree)
		snoop_say(snoop, &message);
	else
		for (uint32_t i = 0; i < n; i++)
			snoop_answer(snoop, host, offset + i * CXL_LINE_BYTES,
				     response(states[i], false));
}

void snoop_recall_block(struct nupa_cxl_snoop *snoop, uint64_t offset, uint32_t n,
			enum nupa_cxl_snp snp)
{
	struct snoop_entry *entry;
	uint64_t once = 0, more = 0;

	for (uint32_t i = 0; i < n; i++) {
		entry = snoop_find(snoop, offset + i * CXL_LINE_BYTES);
		if (entry) {
			more |= once & asked(entry, snp);
			once |= asked(entry, snp);
		}
	}
	for (uint32_t host = 0; more && host < SNOOP_HOSTS; host++)
		if (more & bit(host))
			ask_block(snoop, offset, n, host, snp);
	for (uint32_t i = 0; once && i < n; i++) {
		entry = snoop_find(snoop, offset + i * CXL_LINE_BYTES);
		if (entry)
			snoop_others(snoop, entry, more, snp);
	}
}

void snoop_forget(struct nupa_cxl_snoop *snoop, uint32_t host, uint64_t offset)
{
	struct snoop_entry *entry = snoop_find(snoop, offset);

	if (entry)
		snoop_set(snoop, entry, host, NUPA_CXL_META_I);
}

void snoop_forget_all(struct nupa_cxl_snoop *snoop, uint32_t host)
{
	for (size_t i = 0; i < (size_t)snoop->sets * snoop->ways; i++)
		snoop_set(snoop, &snoop->entries[i], host, NUPA_CXL_META_I);
}

/* --- questions --------------------------------------------------------------------- */

int nupa_cxl_snoop_counts(struct nupa_cxl_memory *memory, int32_t host,
			  struct nupa_cxl_snoop_counts *counts)
{
	struct nupa_cxl_snoop *snoop = snoop_of(memory);

	if (!snoop || host > (int32_t)SNOOP_HOSTS)
		return -EINVAL;
	memset(counts, 0, sizeof(*counts));
	pthread_mutex_lock(&snoop->lock);
	for (uint32_t i = 0; i <= SNOOP_HOSTS; i++) {
		if (host >= 0 && i != (uint32_t)host)
			continue;
		for (uint32_t kind = 0; kind < NUPA_CXL_N_MESSAGES; kind++)
			counts->messages[kind] += snoop->counts[i].messages[kind];
		counts->evictions += snoop->counts[i].evictions;
	}
	counts->entries = snoop->n_entries;
	pthread_mutex_unlock(&snoop->lock);
	return 0;
}

int nupa_cxl_snoop_state(struct nupa_cxl_memory *memory, uint32_t host, uint64_t offset)
{
	struct nupa_cxl_snoop *snoop = snoop_of(memory);
	const struct snoop_entry *entry;
	int state;

	if (!snoop || host >= SNOOP_HOSTS || offset >= memory->size)
		return -EINVAL;
	pthread_mutex_lock(&snoop->lock);
	entry = snoop_find(snoop, offset - offset % CXL_LINE_BYTES);
	state = entry ? (int)state_of(entry, host) : NUPA_CXL_META_I;
	pthread_mutex_unlock(&snoop->lock);
	return state;
}
