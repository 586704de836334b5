/* SPDX-License-Identifier: BSD-3-Clause
 * One of two programs that check each byte that passes between their QPs.  They meet by TCP. */
#ifndef END_H
#define END_H

#include <infiniband/verbs.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX (1u << 20)
#define GUARD 64u /* bytes around the data, which no request may change */
#define AREA (GUARD + LENGTH_MAX + GUARD)
#define BYTES (2 * AREA + sizeof(struct ibv_grh)) /* to send from, to receive in, a GRH */
#define DEPTH 8u
#define QKEY 0x11111111u

#define MUST(call)                                                                                 \
	do {                                                                                       \
		if (!(call)) {                                                                     \
			fprintf(stderr, "%s line %d: %s: %s\n", __FILE__, __LINE__, #call,         \
				strerror(errno));                                                  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Bytes that one side has and the other gets. */
struct step {
	uint32_t kind, length, seed;
	uint32_t pieces; /* requests, posted at once */
};

struct address {
	union ibv_gid gid;
	uint64_t at;
	uint32_t qpn, rkey;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah; /* UD */
	unsigned char *memory;
	struct address peer;
	enum ibv_qp_type type;
	int gid_index, mtu, tcp;
	uint32_t longest; /* bytes of a step */
	uint32_t window;  /* of the other end, which was invalidated last; 0: none */
	bool serves;
};

static inline unsigned char *out(const struct end *end)
{
	return end->memory + GUARD;
}

static inline unsigned char *in(const struct end *end)
{
	return end->memory + AREA + GUARD;
}

static inline void *grh(const struct end *end)
{
	return end->memory + 2 * AREA;
}

/* Reads the options: -d DEVICE -g GID_INDEX -l LONGEST -m MTU -p PORT -t RC|UC|UD [HOST].  Meets
 * and connects the other end: HOST, or who comes. */
void end_open(struct end *end, int argc, char **argv);
/* The step's bytes, to *at*.  And: in() has them, and nothing around them. */
void end_fill(unsigned char *at, const struct step *step);
void end_check(const struct end *end, const struct step *step);
/* By TCP. */
void end_say(const struct end *end, const void *bytes, size_t n);
void end_hear(const struct end *end, void *bytes, size_t n);
/* Waits for one of that status. */
struct ibv_wc end_completion(const struct end *end, enum ibv_wc_status status);

#endif
