/* SPDX-License-Identifier: BSD-3-Clause
 * Finding listeners: by the port that is asked for, and all of them for who looks on.  Kernels find
 * processes' listeners by it, too. */
#include "engine/cm/port_word.h"

#include <errno.h>

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
	uint64_t asked = (uint64_t)port << 48 | (uint64_t)cm_port_space(ps) << 46;
	int best = 0, slot = -ENOENT;
	uint64_t *bucket;

	if (!table)
		return -ENOENT;
	bucket = cm_port_bucket(table, cm_port_space(ps), port);
	if (nupa_fabric_incoherent(fabric) && host + 1 != fabric->kernel)
		fetch_bucket(fabric, bucket);
	for (uint32_t i = 0; i < NUPA_CM_BUCKET_WORDS; i++) {
		uint64_t word = nupa_load_acquire(&bucket[i]);
		int match;

		if (!(word & WORD_LISTENS) || word & WORD_TENTATIVE ||
		    !cm_word_same_port(word, asked) || !cm_word_is_owned(fabric, host, word))
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
			    !cm_word_is_owned(fabric, host, word))
				continue;
			if (found < max)
				describe(word, &out[found]);
			found++;
		}
	}
	return found;
}
