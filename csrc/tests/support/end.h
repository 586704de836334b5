/* SPDX-License-Identifier: BSD-3-Clause
 * One end of a connection for tests: a context on a host of a fabric, with a PD, two CQs, a region
 * and a QP.  Short functions do with it what tests often need. */
#ifndef NUPA_TESTS_END_H
#define NUPA_TESTS_END_H

#include "engine/core/nupa.h"
#include "tests/support/runner.h"

#include <stdbool.h>

#define TEST_RING_LINES 64u
#define TEST_DMA_BYTES 65536u /* so that a part of a message has 16 KiB */
#define TEST_QKEY 0x1234567u
#define WAIT_NS UINT64_C(20000000000) /* awaited things come at once, or not at all */

struct end_options {
	enum ibv_qp_type type;
	enum nupa_mover mover;
	int host;
	unsigned int access; /* of the region and the QP */
	uint32_t send_wr, recv_wr;
	int send_cqe, recv_cqe;
	size_t memory_bytes;
	bool in_pool;     /* the region is in the fabric's pool */
	bool events;      /* the CQs have a completion channel */
	uint32_t srq_wr;  /* 0: no SRQ */
	enum ibv_mtu mtu; /* of the path; 0: 4096 */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic;
};

/* RC on host 0, all access, 64 work requests, 1 MiB, patient. */
extern const struct end_options end_defaults;
/* The same, by this mover. */
struct end_options end_options_of(enum nupa_mover mover);

struct end_address {
	uint32_t qpn, psn, host, rkey;
	uint64_t memory;
	union ibv_gid gid;
};

struct end {
	struct end_options options;
	struct nupa_fabric *fabric;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah; /* UD: to the other end */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct end_address self, peer;
};

/* A work request with what it points at. */
struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge[4];
};

/* Two hosts and a switch, in a memfd. */
struct nupa_fabric *test_fabric(void);
struct nupa_fabric *test_fabric_of_lines(uint32_t ring_lines);
/* The same with other sizes. */
struct nupa_fabric *test_fabric_of(const struct nupa_config *config);
/* Port of *host* on that fabric. */
uint32_t test_fabric_port(uint32_t host);
/* Whether this process may read another one's memory: movers by CMA need it. */
bool test_cma_works(void);

struct end *end_open(struct nupa_fabric *fabric, const struct end_options *options);
/* A second QP of the same end, in RESET; the caller destroys it. */
struct ibv_qp *end_make_qp(struct end *end);
/* A test that ended one of the objects before sets it to NULL. */
void end_close(struct end *end);

void end_to_init(struct end *end);
void end_to_rtr(struct end *end, const struct end_address *peer);
void end_to_rts(struct end *end);
/* From RESET to RTS. */
void end_connect(struct end *end, const struct end_address *peer);
int end_modify(struct end *end, enum ibv_qp_state state);
enum ibv_qp_state end_state(struct end *end);

/* A pair in this process, host 0 and host 1, connected. */
void pair_open(struct nupa_fabric *fabric, const struct end_options *options, struct end **a,
	       struct end **b);
void pair_close(struct end *a, struct end *b);
/* And the fabric with it. */
void fabric_close(struct nupa_fabric *fabric, struct end *a, struct end *b);

/* Signalled; local memory is [offset, +length) of the end's region, remote at the same offset. */
struct request request_of(struct end *end, enum ibv_wr_opcode opcode, uint64_t wr_id,
			  uint32_t offset, uint32_t length);
void end_post(struct end *end, struct request *request);
/* request_of and end_post in one. */
void end_start(struct end *end, enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t offset,
	       uint32_t length);
void end_post_recv(struct end *end, uint64_t wr_id, uint32_t offset, uint32_t length);

/* The next completion, awaited. */
struct ibv_wc cq_wait(struct ibv_cq *cq);
/* The same, of this request with this status. */
struct ibv_wc cq_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
/* Polls for so long and finds nothing. */
void cq_expect_none(struct ibv_cq *cq, uint64_t ns);
/* The next async event, of this type: acknowledged. */
void end_expect_event(struct end *end, enum ibv_event_type type);

void pattern_fill(uint8_t *at, size_t bytes, uint32_t seed);
/* Where it differs, or *bytes*. */
size_t pattern_match(const uint8_t *at, size_t bytes, uint32_t seed);
#define CHECK_PATTERN(at, bytes, seed) CHECK_EQ(pattern_match(at, bytes, seed), bytes)

#endif
