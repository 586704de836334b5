/* SPDX-License-Identifier: BSD-3-Clause
 * The snoop filter of a device's memory: the hosts that have each line in their caches, and the
 * messages that keep these coherent.  CXL 3.1 3.3.3 (HDM-DB) and 3.5.1. */
#ifndef NUPA_CXL_SNOOP_H
#define NUPA_CXL_SNOOP_H

#include "cxl/poison.h"

#include <pthread.h>
#include <stddef.h>

/* cffi: begin */
/* CXL 3.1 3.3.5 to 3.3.10: the opcodes of the model. */
enum nupa_cxl_kind {
	NUPA_CXL_MEM_INV, /* M2S Req */
	NUPA_CXL_MEM_RD,
	NUPA_CXL_MEM_INV_NT,
	NUPA_CXL_MEM_CLN_EVCT,
	NUPA_CXL_MEM_WR, /* M2S RwD */
	NUPA_CXL_MEM_WR_PTL,
	NUPA_CXL_BI_CONFLICT,
	NUPA_CXL_BIRSP_I, /* M2S BIRsp */
	NUPA_CXL_BIRSP_S,
	NUPA_CXL_BIRSP_E,
	NUPA_CXL_BIRSP_I_BLK,
	NUPA_CXL_BIRSP_S_BLK,
	NUPA_CXL_BIRSP_E_BLK,
	NUPA_CXL_BISNP_CUR, /* S2M BISnp */
	NUPA_CXL_BISNP_DATA,
	NUPA_CXL_BISNP_INV,
	NUPA_CXL_BISNP_CUR_BLK,
	NUPA_CXL_BISNP_DATA_BLK,
	NUPA_CXL_BISNP_INV_BLK,
	NUPA_CXL_CMP, /* S2M NDR */
	NUPA_CXL_CMP_S,
	NUPA_CXL_CMP_E,
	NUPA_CXL_BI_CONFLICT_ACK,
	NUPA_CXL_MEM_DATA, /* S2M DRS */
	NUPA_CXL_N_MESSAGES
};

/* 3.3.5: the meta value that a request asks for, or a write back leaves; also a directory state. */
enum nupa_cxl_meta { NUPA_CXL_META_I = 0, NUPA_CXL_META_A = 2, NUPA_CXL_META_S = 3 };
/* 3.3.5, SnpType */
enum nupa_cxl_snp { NUPA_CXL_SNP_NONE, NUPA_CXL_SNP_DATA, NUPA_CXL_SNP_CUR, NUPA_CXL_SNP_INV };

/* A message of a line, or of `lines` from there on.  `meta` and `snp` are of M2S Req and RwD. */
struct nupa_cxl_trace {
	uint64_t offset;
	uint8_t host, kind, meta, snp; /* kind: enum nupa_cxl_kind */
	uint8_t lines, poison;
	uint16_t pad;
};

struct nupa_cxl_snoop_counts {
	uint64_t messages[24]; /* by enum nupa_cxl_kind */
	uint64_t evictions;    /* of entries, evicted for want of room */
	uint64_t entries;      /* now */
};

/* Hosts have numbers below 64; requesters without a cache count as host 64.  Each function returns
 * 0 or a negative errno unless stated otherwise. */

/* From now on, and as long as the memory lasts, at most sets * ways lines are in caches.  EINVAL:
 * sets are not a power of two up to 2^20, or ways not 1 to 64; EBUSY: it has one; ENOMEM. */
int nupa_cxl_memory_set_snoop(struct nupa_cxl_memory *memory, uint32_t sets, uint32_t ways);
/* The counts of one host, or of all: host < 0.  EINVAL: no filter, or no such host. */
int nupa_cxl_snoop_counts(struct nupa_cxl_memory *memory, int32_t host,
			  struct nupa_cxl_snoop_counts *counts);
/* The directory's state of a line: enum nupa_cxl_meta.  EINVAL: no filter, host or line. */
int nupa_cxl_snoop_state(struct nupa_cxl_memory *memory, uint32_t host, uint64_t offset);
/* Keeps the next messages, `limit` at most until they are taken; 0: none.  EINVAL: no filter, or
 * more than 2^20; ENOMEM. */
int nupa_cxl_snoop_trace(struct nupa_cxl_memory *memory, uint32_t limit);
/* Takes the oldest n: how many there were. *missed: how many had no room since the last call. */
int nupa_cxl_snoop_take(struct nupa_cxl_memory *memory, struct nupa_cxl_trace *to, uint32_t n,
			uint64_t *missed);

/* Accesses of the device itself, coherent with hosts' caches.  EINVAL: not inside, or no filter;
 * for a recall also: not whole lines.  Blocks of 128 and 256 bytes are snooped at once (3.3.8). */
int nupa_cxl_device_read(struct nupa_cxl_memory *memory, uint64_t offset, void *to, uint64_t bytes);
int nupa_cxl_device_write(struct nupa_cxl_memory *memory, uint64_t offset, const void *from,
			  uint64_t bytes);
/* SNP_CUR: hosts' changes are in memory; SNP_DATA: no host may change it unasked; SNP_INV: no host
 * has it. */
int nupa_cxl_device_recall(struct nupa_cxl_memory *memory, uint64_t offset, uint64_t bytes,
			   uint32_t snp);
/* cffi: end */

#define SNOOP_HOSTS 64u /* also the number of requesters without a cache */

struct nupa_cxl_cache;

/* The directory's line.
 *   D1  A host is in `owners` (A), in `sharers` (S), or in none (I).
 *   D2  If there is an owner, no other host has the line.
 *   D3  A host with the line in its cache is in one, and is an owner if it has E or M. */
struct snoop_entry {
	uint64_t offset;
	uint64_t owners, sharers; /* a bit for each host; none: the entry is free */
	uint64_t used;            /* when, by `now` */
};

/* Protected by the lock: entries, counts, traces, `caches`, and the bytes of the memory.  Locks are
 * taken in this order: a bus, `snoop_joins`, a filter, a set of a cache; never two of a kind. */
struct nupa_cxl_snoop {
	pthread_mutex_t lock;
	struct nupa_cxl_memory *memory;
	struct nupa_cxl_cache *caches[SNOOP_HOSTS];
	struct snoop_entry *entries;
	uint32_t sets, ways;
	uint64_t now, n_entries;
	struct {
		uint64_t messages[NUPA_CXL_N_MESSAGES];
		uint64_t evictions;
	} counts[SNOOP_HOSTS + 1];
	struct nupa_cxl_trace *trace; /* a ring: `traced` from `trace_first` on */
	uint32_t trace_limit, trace_first, traced;
	uint64_t trace_missed;
};

/* Of all filters and caches: the filters in which each cache is. */
extern pthread_mutex_t snoop_joins;

/* The functions below need the filter's lock. */

/* One message of host `host`, or to it. */
void snoop_say(struct nupa_cxl_snoop *snoop, const struct nupa_cxl_trace *message);
void snoop_answer(struct nupa_cxl_snoop *snoop, uint32_t host, uint64_t offset,
		  enum nupa_cxl_kind kind);
struct snoop_entry *snoop_find(struct nupa_cxl_snoop *snoop, uint64_t offset);
/* A line's entry; another may be evicted for it. */
struct snoop_entry *snoop_entry_get(struct nupa_cxl_snoop *snoop, uint64_t offset);
void snoop_set(struct nupa_cxl_snoop *snoop, struct snoop_entry *entry, uint32_t host,
	       enum nupa_cxl_meta state);
/* Snoops all hosts that have the line but those of the bits `except`, as SnpType needs it.  The
 * memory has the data written last afterwards. */
void snoop_others(struct nupa_cxl_snoop *snoop, struct snoop_entry *entry, uint64_t except,
		  enum nupa_cxl_snp snp);
/* The same for the device's 1, 2 or 4 lines that are a block. */
void snoop_recall_block(struct nupa_cxl_snoop *snoop, uint64_t offset, uint32_t n,
			enum nupa_cxl_snp snp);
/* A host has dropped the line, or all lines. */
void snoop_forget(struct nupa_cxl_snoop *snoop, uint32_t host, uint64_t offset);
void snoop_forget_all(struct nupa_cxl_snoop *snoop, uint32_t host);

/* The functions below take the lock. */

/* Requests of hosts without a cache, of one line or bytes of it.  A read is false if it is
 * poisoned. */
bool snoop_read(struct nupa_cxl_snoop *snoop, uint64_t offset, uint8_t *to, size_t bytes);
void snoop_write(struct nupa_cxl_snoop *snoop, uint64_t offset, const uint8_t *from, size_t bytes);
/* No host has the line any longer. */
void snoop_flush(struct nupa_cxl_snoop *snoop, uint32_t host, uint64_t offset);
/* The filter, or NULL. */
static inline struct nupa_cxl_snoop *snoop_of(const struct nupa_cxl_memory *memory)
{
	return __atomic_load_n(&memory->snoop, __ATOMIC_ACQUIRE);
}

/* Of nupa_cxl_memory_free(). */
void snoop_free(struct nupa_cxl_snoop *snoop);

#endif
