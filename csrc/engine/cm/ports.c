/* SPDX-License-Identifier: BSD-3-Clause
 * Ports: their bindings to ids of a host, across processes.  A word of the host's table in the
 * segment is a bound port and its owner.  A bucket of eight words holds the ports of some low bits,
 * so that finding a listener reads one cache line.
 *
 *   B1  A word is claimed by CAS from 0, or from the word of an owner that is gone.  Only the
 *       owner changes it after that.
 *   B2  Claims are tentative until the claimant has searched its bucket and found no rival.  Of
 *       two simultaneous claimants each sees the other; the one in the higher place yields. */
#include "engine/cm/internal.h"
#include "segment/slot/machine.h"

#include <sys/random.h>

#define EPHEMERAL_FIRST 32768u /* as Linux's ip_local_port_range */
#define EPHEMERAL_PORTS 28232u
#define SPARE_WORDS 2u /* of a bucket, left by ephemeral ports for explicit ones */

/* port 16 | space 2 | kind 4 | flags 4 | 0 | slot 10 | epoch 24 */
#define WORD_PORT(w) ((uint16_t)((w) >> 48))
#define WORD_SPACE(w) ((uint32_t)((w) >> 46) & 3)
#define WORD_KIND(w) ((enum cm_addr_kind)((w) >> 42 & 15))
#define WORD_SLOT(w) NUPA_CM_WORD_SLOT(w)
#define WORD_EPOCH(w) ((uint32_t)(w)&0xffffff)
#define WORD_LISTENS (UINT64_C(1) << 41)
#define WORD_REUSE (UINT64_C(1) << 40)
#define WORD_AFONLY (UINT64_C(1) << 39)
#define WORD_TENTATIVE (UINT64_C(1) << 38)
_Static_assert(CM_ADDR_KINDS <= 16, "four bits");

static uint32_t space_of(enum rdma_port_space ps)
{
	switch (ps) {
	case RDMA_PS_TCP:
		return 0;
	case RDMA_PS_UDP:
		return 1;
	case RDMA_PS_IB:
		return 2;
	default:
		return 3;
	}
}

static uint64_t *bucket_of(struct nupa_cm_bucket *table, uint32_t space, uint16_t port)
{
	return table[(port + space * (NUPA_CM_BUCKETS / 4)) % NUPA_CM_BUCKETS].words;
}

/* I5: any process may have stored the word.  One of an owner that is gone counts as none. */
static bool is_owned(const struct nupa_fabric *fabric, uint32_t host, uint64_t word)
{
	const struct nupa_slot *slot;
	uint64_t claim;

	if (!word || WORD_SLOT(word) == 0 || WORD_SLOT(word) >= fabric->geometry.n_slots)
		return false;
	slot = &fabric->slots[WORD_SLOT(word)];
	claim = nupa_slot_claim(slot);
	return NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
	       NUPA_CLAIM_EPOCH(claim) == WORD_EPOCH(word) &&
	       nupa_load_relaxed(&slot->host) == host;
}

static bool same_port(uint64_t a, uint64_t b)
{
	return WORD_PORT(a) == WORD_PORT(b) && WORD_SPACE(a) == WORD_SPACE(b);
}

/* IPv4 and IPv6 never conflict: the more specific one has the request. */
static bool conflict(uint64_t a, uint64_t b)
{
	enum cm_addr_kind one = WORD_KIND(a), other = WORD_KIND(b);

	if (!same_port(a, b))
		return false;
	if (a & b & WORD_REUSE && !((a | b) & WORD_LISTENS))
		return false;
	if ((one < CM_ADDR_ANY6) != (other < CM_ADDR_ANY6))
		return false;
	return cm_addr_is_wildcard(one) || cm_addr_is_wildcard(other) || one == other;
}

static bool has_rival(const struct nupa_cm_id *id, uint64_t *bucket, uint32_t own, uint64_t word,
		      bool any_use)
{
	for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
		uint64_t other = nupa_load_seq(&bucket[i]);

		if (i == own || !is_owned(id->engine->fabric, id->engine->host, other) ||
		    !(any_use ? same_port(word, other) : conflict(word, other)))
			continue;
		if (!(other & WORD_TENTATIVE) || i < own) /* B2 */
			return true;
	}
	return false;
}

/* Hosts of one machine share its loopback (machine.c), so an address there with a port that the
 * system chose is one program's.  B2: of two claimants, the one on the higher host yields. */
static bool used_on_another_host(const struct nupa_cm_id *id, uint64_t word)
{
	struct nupa_fabric *fabric = id->engine->fabric;

	if (nupa_fabric_incoherent(fabric)) /* other hosts are other machines */
		return false;
	for (uint32_t host = 0; host < fabric->geometry.n_hosts; host++) {
		struct nupa_cm_bucket *table = nupa_fabric_cm_table(fabric, host, false);
		const uint64_t *bucket;

		if (host == id->engine->host || !table || nupa_host_trunked(fabric, host))
			continue;
		bucket = bucket_of(table, WORD_SPACE(word), WORD_PORT(word));
		for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
			uint64_t other = nupa_load_seq(&bucket[i]);

			if (same_port(word, other) && is_owned(fabric, host, other) &&
			    (!(other & WORD_TENTATIVE) || host < id->engine->host))
				return true;
		}
	}
	return false;
}

/* Puts a tentative word into the bucket: its place, or NUPA_CM_BUCKET_WORDS. */
static uint32_t put(const struct nupa_cm_id *id, uint64_t *bucket, uint64_t word, uint32_t spare)
{
	uint32_t n_free = 0;

	for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++)
		n_free +=
		    !is_owned(id->engine->fabric, id->engine->host, nupa_load_relaxed(&bucket[i]));
	if (n_free <= spare)
		return NUPA_CM_BUCKET_WORDS;
	for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
		uint64_t seen = nupa_load_relaxed(&bucket[i]);

		if (!is_owned(id->engine->fabric, id->engine->host, seen) &&
		    nupa_cas_seq(&bucket[i], &seen, word))
			return i;
	}
	return NUPA_CM_BUCKET_WORDS;
}

/* A word of our host's table has changed. */
static void flush_port(struct nupa_fabric *fabric, uint32_t host, const uint64_t *word)
{
	nupa_flush(nupa_fabric_incoherent(fabric), NUPA_POINT_CM, word, sizeof(*word));
	if (nupa_fabric_has_trunk(fabric))
		nupa_trunk_tell(
		    fabric, NUPA_NEWS_BOUND, host,
		    (uint32_t)(word - nupa_fabric_cm_table(fabric, host, false)->words));
}

static int try_claim(struct nupa_cm_id *id, struct nupa_cm_bucket *table, uint16_t port,
		     bool ephemeral)
{
	const struct nupa_engine *engine = id->engine;
	uint32_t space = space_of(id->ps);
	uint64_t *bucket = bucket_of(table, space, port);
	uint64_t word = (uint64_t)port << 48 | (uint64_t)space << 46 |
			(uint64_t)id->src_kind << 42 | (id->reuse ? WORD_REUSE : 0) |
			(id->afonly ? WORD_AFONLY : 0) | (uint64_t)engine->slot_index << 24 |
			engine->epoch;
	uint32_t at = put(id, bucket, word | WORD_TENTATIVE, ephemeral ? SPARE_WORDS : 0);

	if (at == NUPA_CM_BUCKET_WORDS)
		return EADDRNOTAVAIL;
	if (has_rival(id, bucket, at, word, ephemeral) ||
	    (ephemeral && engine->cm->machine && used_on_another_host(id, word))) {
		nupa_store_release(&bucket[at], 0);
		return EADDRINUSE;
	}
	(void)nupa_exchange_seq(&bucket[at], word);
	flush_port(id->engine->fabric, id->engine->host, &bucket[at]);
	id->port = &bucket[at];
	id->port_word = word;
	cm_addr_set_port(&id->src, port);
	return 0;
}

/* A rival may be dead, unnoticed so far. */
static int claim(struct nupa_cm_id *id, struct nupa_cm_bucket *table, uint16_t port)
{
	int error = try_claim(id, table, port, false);

	if (error && nupa_fabric_reap(id->engine->fabric) > 0)
		error = try_claim(id, table, port, false);
	return error;
}

static int claim_ephemeral(struct nupa_cm_id *id, struct nupa_cm_bucket *table)
{
	struct nupa_cm *cm = id->engine->cm;

	if (!cm->next_port && getrandom(&cm->next_port, sizeof(cm->next_port), GRND_NONBLOCK) < 0)
		cm->next_port = id->engine->slot_index * 111;
	for (uint32_t i = 0; i < EPHEMERAL_PORTS; i++) {
		uint32_t port = EPHEMERAL_FIRST + cm->next_port++ % EPHEMERAL_PORTS;

		if (!try_claim(id, table, (uint16_t)port, true))
			return 0;
	}
	return EADDRNOTAVAIL;
}

int cm_port_bind(struct nupa_cm_id *id, uint16_t port)
{
	struct nupa_cm_bucket *table =
	    nupa_fabric_cm_table(id->engine->fabric, id->engine->host, true);

	if (!table)
		return errno;
	return port ? claim(id, table, port) : claim_ephemeral(id, table);
}

int cm_port_listen(struct nupa_cm_id *id)
{
	uint32_t own = (uint32_t)((uintptr_t)id->port / sizeof(*id->port)) % NUPA_CM_BUCKET_WORDS;
	uint64_t word = id->port_word | WORD_LISTENS;

	(void)nupa_exchange_seq(id->port, word | WORD_TENTATIVE);
	if (has_rival(id, id->port - own, own, word, false)) {
		nupa_store_release(id->port, id->port_word);
		return EADDRINUSE;
	}
	id->port_word = word;
	(void)nupa_exchange_seq(id->port, word);
	flush_port(id->engine->fabric, id->engine->host, id->port);
	nupa_trunk_settle(id->engine->fabric); /* clients may hear of it by other ways */
	return 0;
}

void cm_port_release(struct nupa_cm_id *id)
{
	if (id->port) {
		(void)nupa_cas_seq(id->port, &id->port_word, 0);
		flush_port(id->engine->fabric, id->engine->host, id->port);
	}
	id->port = NULL;
}

int cm_port_match(enum cm_addr_kind bound, bool afonly, enum cm_addr_kind asked)
{
	if (bound == asked || (bound == CM_ADDR_HOST4 && asked == CM_ADDR_WIRE4) ||
	    (bound == CM_ADDR_HOST6 && asked == CM_ADDR_WIRE6))
		return 3;
	if (!cm_addr_is_wildcard(bound))
		return 0;
	if ((bound < CM_ADDR_ANY6) == (asked < CM_ADDR_ANY6))
		return 2;
	return bound >= CM_ADDR_ANY6 && !afonly ? 1 : 0;
}

/* Words of another kernel, and the known facts about their owners. */
static void fetch_bucket(const struct nupa_fabric *fabric, const uint64_t *bucket)
{
	nupa_fetch(true, NUPA_POINT_CM, bucket, sizeof(struct nupa_cm_bucket));
	for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
		const uint32_t slot = WORD_SLOT(nupa_load_acquire(&bucket[i]));

		if (slot && slot < fabric->geometry.n_slots)
			nupa_slot_fetch(fabric, slot);
	}
}

int cm_port_find(struct nupa_fabric *fabric, uint32_t host, enum rdma_port_space ps, uint16_t port,
		 enum cm_addr_kind kind)
{
	struct nupa_cm_bucket *table = nupa_fabric_cm_table(fabric, host, false);
	uint64_t asked = (uint64_t)port << 48 | (uint64_t)space_of(ps) << 46;
	int best = 0, slot = -ENOENT;
	uint64_t *bucket;

	if (!table)
		return -ENOENT;
	bucket = bucket_of(table, space_of(ps), port);
	if (nupa_fabric_incoherent(fabric) && host + 1 != fabric->kernel)
		fetch_bucket(fabric, bucket);
	for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
		uint64_t word = nupa_load_acquire(&bucket[i]);
		int match;

		if (!(word & WORD_LISTENS) || word & WORD_TENTATIVE || !same_port(word, asked) ||
		    !is_owned(fabric, host, word))
			continue;
		match = cm_port_match(WORD_KIND(word), word & WORD_AFONLY, kind);
		if (match > best) {
			best = match;
			slot = (int)WORD_SLOT(word);
		}
	}
	return slot;
}

/* --- for who looks on ---------------------------------------------------------------- */

static enum rdma_port_space space_at(uint32_t space)
{
	static const enum rdma_port_space spaces[] = { RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB,
						       RDMA_PS_IPOIB };

	return spaces[space & 3];
}

static void describe(uint64_t word, struct nupa_listener_info *info)
{
	static const char names[16][sizeof(info->address)] = {
		[CM_ADDR_ANY4] = "any",           [CM_ADDR_ANY6] = "any",
		[CM_ADDR_HOST4] = "host",         [CM_ADDR_HOST6] = "host",
		[CM_ADDR_LOOPBACK4] = "loopback", [CM_ADDR_LOOPBACK6] = "loopback",
		[CM_ADDR_MACHINE4] = "machine",   [CM_ADDR_MACHINE6] = "machine",
		[CM_ADDR_LINK6] = "link-local",   [CM_ADDR_WIRE4] = "wire",
		[CM_ADDR_WIRE6] = "wire",
	};

	info->slot = WORD_SLOT(word);
	info->space = space_at(WORD_SPACE(word));
	info->port = WORD_PORT(word);
	info->ipv6 = WORD_KIND(word) >= CM_ADDR_ANY6;
	memcpy(info->address, names[WORD_KIND(word)], sizeof(info->address));
}

uint32_t nupa_fabric_listeners(struct nupa_fabric *fabric, uint32_t host,
			       struct nupa_listener_info *out, uint32_t max)
{
	struct nupa_cm_bucket *table =
	    host < fabric->geometry.n_hosts ? nupa_fabric_cm_table(fabric, host, false) : NULL;
	uint32_t found = 0;

	for (uint32_t i = 0; table && i < NUPA_CM_BUCKETS; i++) {
		if (nupa_fabric_incoherent(fabric) && host + 1 != fabric->kernel)
			fetch_bucket(fabric, table[i].words);
		for (uint32_t n = 0; n < NUPA_CM_BUCKET_WORDS; n++) {
			uint64_t word = nupa_load_acquire(&table[i].words[n]);

			if (!(word & WORD_LISTENS) || word & WORD_TENTATIVE ||
			    !is_owned(fabric, host, word))
				continue;
			if (found < max)
				describe(word, &out[found]);
			found++;
		}
	}
	return found;
}
