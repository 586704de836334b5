/* SPDX-License-Identifier: BSD-3-Clause
 * The table of faults: added, cleared, listed.  Attachments read it in fault_view.c. */
#include "engine/fault/fault_internal.h"
#include "base/explain.h"
#include "region/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t nupa_fault_end_ns(const struct nupa_fault_entry *entry)
{
	uint64_t until_ns = entry->until_ns ? entry->until_ns : UINT64_MAX;
	uint64_t over_ns = nupa_load_relaxed(&entry->over_ns);

	return over_ns && over_ns < until_ns ? over_ns : until_ns;
}

bool nupa_fault_lasts(const struct nupa_fault_entry *entry, uint64_t now_ns)
{
	return !nupa_load_acquire(&entry->ended) && now_ns < nupa_fault_end_ns(entry);
}

bool nupa_fault_is_on(const struct nupa_engine *engine, uint32_t id, uint64_t now_ns)
{
	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) {
		const struct nupa_fault_entry *entry = &engine->fabric->sb->faults[i];

		if (nupa_load_acquire(&entry->id) == id)
			return nupa_fault_lasts(entry, now_ns);
	}
	return false;
}

void nupa_fault_announce(struct nupa_fabric *fabric)
{
	nupa_fetch_add_seq(&fabric->sb->fault_epoch, 1);
	nupa_fabric_announce(fabric);
}

bool nupa_fault_heal(struct nupa_fabric *fabric, struct nupa_fault_entry *entry, uint64_t now_ns)
{
	uint64_t down_until_ns = nupa_load_acquire(&entry->down_until_ns);

	/* The process that takes the word does it. */
	if (!down_until_ns || now_ns < down_until_ns ||
	    !nupa_cas_seq(&entry->down_until_ns, &down_until_ns, 0))
		return false;
	nupa_fabric_set_port(fabric, entry->port, NUPA_PORT_ACTIVE);
	return true;
}

static bool goes_by_the_table(const struct nupa_fabric *fabric, const struct nupa_slot *slot)
{
	return (int32_t)(nupa_load_acquire(&slot->fault_seen) -
			 nupa_load_acquire(&fabric->sb->fault_epoch)) >= 0;
}

static void announce_and_wait(struct nupa_fabric *fabric)
{
	nupa_fault_announce(fabric);
	nupa_fabric_await_notice(fabric, goes_by_the_table);
}

/* When so much time is over; 0: never. */
static uint64_t end_of(uint64_t for_ns)
{
	uint64_t now_ns = nupa_clock_ns();

	return !for_ns ? 0 : for_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + for_ns;
}

static int check(const struct nupa_fabric *fabric, const struct nupa_fault_info *fault, char *why,
		 size_t why_bytes)
{
	const int refused = nupa_fabric_may_command(fabric, "faults", why, why_bytes);

	if (refused)
		return refused;
	if (fault->kind == 0 || fault->kind >= NUPA_FAULT_KINDS)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no fault of kind %u: kinds are 1 to %u", fault->kind,
				    NUPA_FAULT_KINDS - 1u);
	if (fault->port >= fabric->geometry.n_ports)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "there is no port %u: fabric %s has %u", fault->port,
				    fabric->geometry.name, fabric->geometry.n_ports);
	if (fault->kind == NUPA_FAULT_BANDWIDTH && !fault->bytes_per_s)
		return nupa_explain(
		    -EINVAL, why, why_bytes,
		    "a bandwidth of 0 bytes a second lets nothing pass: give at least 1");
	if (fault->kind == NUPA_FAULT_FLAP && !fault->duration_ns)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "a flap of 0 ns takes nothing down: give a duration");
	return 0;
}

static struct nupa_fault_entry *free_entry(struct nupa_superblock *sb)
{
	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++)
		if (!nupa_load_acquire(&sb->faults[i].id))
			return &sb->faults[i];
	return NULL;
}

/* 0 says that there is none. */
static uint32_t next_id(struct nupa_superblock *sb)
{
	uint32_t id = nupa_load_relaxed(&sb->next_fault_id) + 1;

	id = id & INT32_MAX ? id & INT32_MAX : 1; /* a result is not an error */
	nupa_store_relaxed(&sb->next_fault_id, id);
	return id;
}

/* Word by word: others look at times of entries that are free. */
static void fill(struct nupa_fault_entry *entry, const struct nupa_fault_entry *from)
{
	uint64_t words[sizeof(*entry) / sizeof(uint64_t)];

	memcpy(words, from, sizeof(words));
	for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		nupa_store_relaxed((uint64_t *)(void *)entry + i, words[i]);
}

int64_t nupa_fault_add(struct nupa_fabric *fabric, const struct nupa_fault_info *fault, char *why,
		       size_t why_bytes)
{
	struct nupa_fault_entry *entry;
	int error = check(fabric, fault, why, why_bytes);
	uint32_t id;

	if (error)
		return error;
	entry = free_entry(fabric->sb);
	if (!entry)
		return nupa_explain(-ENOSPC, why, why_bytes,
				    "fabric %s has %u faults, as many as it can: clear some",
				    fabric->geometry.name, NUPA_FAULTS_MAX);
	id = next_id(fabric->sb);
	fill(entry, &(struct nupa_fault_entry){
			.kind = fault->kind,
			.port = fault->port,
			.probability = fault->probability,
			.seed = fault->seed,
			.after = fault->after,
			.count = fault->count,
			.until_ns = end_of(fault->for_ns),
			.duration_ns = fault->duration_ns,
			.bytes_per_s = fault->bytes_per_s,
		    });
	nupa_store_release(&entry->id, id);
	announce_and_wait(fabric);
	return id;
}

int nupa_fault_clear(struct nupa_fabric *fabric, uint32_t id)
{
	bool found = id == 0;

	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) {
		struct nupa_fault_entry *entry = &fabric->sb->faults[i];
		uint32_t its = nupa_load_acquire(&entry->id);

		if (!its || (id && its != id))
			continue;
		found = true;
		nupa_store_release(&entry->id, 0);
		nupa_fault_heal(fabric, entry, UINT64_MAX);
	}
	if (!found)
		return -ENOENT;
	announce_and_wait(fabric);
	/* Once more: an attachment may have taken a port down meanwhile. */
	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++)
		if (!nupa_load_acquire(&fabric->sb->faults[i].id))
			nupa_fault_heal(fabric, &fabric->sb->faults[i], UINT64_MAX);
	return 0;
}

static int by_id(const void *a, const void *b)
{
	uint32_t x = ((const struct nupa_fault_info *)a)->id;
	uint32_t y = ((const struct nupa_fault_info *)b)->id;

	return (x > y) - (x < y);
}

uint32_t nupa_fault_list(struct nupa_fabric *fabric, struct nupa_fault_info *out, uint32_t max)
{
	struct nupa_fault_info found[NUPA_FAULTS_MAX];
	uint64_t now_ns = nupa_clock_ns();
	uint32_t n = 0;

	for (uint32_t i = 0; i < NUPA_FAULTS_MAX; i++) {
		const struct nupa_fault_entry *entry = &fabric->sb->faults[i];
		uint32_t id = nupa_load_acquire(&entry->id);
		uint64_t hits = nupa_load_relaxed(&entry->hits);

		if (!id)
			continue;
		found[n++] = (struct nupa_fault_info){
			.id = id,
			.kind = entry->kind,
			.port = entry->port,
			.probability = entry->probability,
			.seed = entry->seed,
			.after = entry->after,
			.count = entry->count,
			.duration_ns = entry->duration_ns,
			.bytes_per_s = entry->bytes_per_s,
			.for_ns = entry->until_ns > now_ns ? entry->until_ns - now_ns : 0,
			.seen = nupa_load_relaxed(&entry->seen),
			.hits = hits,
			.ended = !nupa_fault_lasts(entry, now_ns) ||
				 (entry->count && hits >= entry->count),
		};
	}
	qsort(found, n, sizeof(found[0]), by_id);
	for (uint32_t i = 0; i < n && i < max; i++)
		out[i] = found[i];
	return n;
}
