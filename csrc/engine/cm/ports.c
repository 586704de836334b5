/* SPDX-License-Identifier: BSD-3-Clause
 * Ports: their bindings to ids of a host, across processes.  port_word.h has their form,
 * listeners.c finds those that listen.
 *
 *   B1  A word is claimed by CAS from 0, or from the word of an owner that is gone.  Only the
 *       owner changes it after that.
 *   B2  Claims are tentative until the claimant has searched its bucket and found no rival.  Of
 *       two simultaneous claimants each sees the other; the one in the higher place yields. */
#include "engine/cm/port_word.h"

#include <sys/random.h>

#define EPHEMERAL_FIRST 32768u /* as Linux's ip_local_port_range */
#define EPHEMERAL_PORTS 28232u
#define SPARE_WORDS 2u /* of a bucket, left by ephemeral ports for explicit ones */

/* IPv4 and IPv6 never conflict: the more specific one has the request. */
static bool conflict(uint64_t a, uint64_t b)
{
	enum cm_addr_kind one = WORD_KIND(a), other = WORD_KIND(b);

	if (!cm_word_same_port(a, b))
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

		if (i == own || !cm_word_is_owned(id->engine->fabric, id->engine->host, other) ||
		    !(any_use ? cm_word_same_port(word, other) : conflict(word, other)))
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
		bucket = cm_port_bucket(table, WORD_SPACE(word), WORD_PORT(word));
		for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
			uint64_t other = nupa_load_seq(&bucket[i]);

			if (cm_word_same_port(word, other) &&
			    cm_word_is_owned(fabric, host, other) &&
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
		n_free += !cm_word_is_owned(id->engine->fabric, id->engine->host,
					    nupa_load_relaxed(&bucket[i]));
	if (n_free <= spare)
		return NUPA_CM_BUCKET_WORDS;
	for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
		uint64_t seen = nupa_load_relaxed(&bucket[i]);

		if (!cm_word_is_owned(id->engine->fabric, id->engine->host, seen) &&
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
	uint32_t space = cm_port_space(id->ps);
	uint64_t *bucket = cm_port_bucket(table, space, port);
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
