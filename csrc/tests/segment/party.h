/* SPDX-License-Identifier: BSD-3-Clause
 * A process that goes on while the segment is damaged: its connection, and its guarded memory. */
#ifndef NUPA_TESTS_PARTY_H
#define NUPA_TESTS_PARTY_H

#include "engine/device/device.h"

#define PARTY_REGION_BYTES 65536u
#define PARTY_GUARD_BYTES 4096u
#define PARTY_OPEN 0x11 /* a region holds it at first */
#define PARTY_RECVS 8u
#define PARTY_ATTACK 99u /* wr_id */

struct party {
	struct nupa_fabric *fabric;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory; /* guard, region, guard */
	void *pool;
	union ibv_gid gid;
};

uint8_t *party_region(const struct party *party);
void party_close(struct party *party);

bool party_open(struct party *party, struct nupa_fabric *fabric, int host, enum nupa_mover mover,
		enum ibv_qp_type type);
bool party_connect(struct party *party, const struct party *peer);
void party_post_recv(struct party *party, uint64_t random);
void party_post_send(struct party *party, const struct party *peer, uint64_t *random);

#endif
