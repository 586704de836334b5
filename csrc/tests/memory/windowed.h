/* SPDX-License-Identifier: BSD-3-Clause
 * A pair of which b has a region that remote keys do not open, and windows on it. */
#ifndef NUPA_TESTS_WINDOWED_H
#define NUPA_TESTS_WINDOWED_H

#include "tests/support/end.h"

#define REGION_BYTES 4096u
#define AT 1024u /* where windows begin in the region, and how long they are */
#define BYTES 512u

struct windowed {
	struct nupa_fabric *fabric;
	struct end *a, *b;
	struct ibv_mr *mr;
	uint8_t *at;
};

extern const int windowed_bindable;        /* access of that region */
extern const unsigned int windowed_remote; /* all that a window can open */

struct windowed windowed_open(enum nupa_mover mover, int access);
void windowed_close(struct windowed *w);
void windowed_reconnect(struct windowed *w);
enum ibv_wc_status windowed_access_at(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr,
				      uint32_t bytes, uint32_t rkey);
void windowed_allowed(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t bytes,
		      uint32_t rkey);
void windowed_refused(struct windowed *w, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t bytes,
		      uint32_t rkey);
struct ibv_mw_bind windowed_bind_of(struct windowed *w, uint64_t offset, uint64_t bytes,
				    unsigned int access);
void windowed_bind1(struct windowed *w, struct ibv_mw *mw, uint64_t offset, uint64_t bytes,
		    unsigned int access, enum ibv_wc_status status);
struct ibv_send_wr windowed_bind2_wr(struct windowed *w, struct ibv_mw *mw, uint32_t rkey);
void windowed_bind2(struct windowed *w, struct ibv_mw *mw, uint32_t rkey,
		    enum ibv_wc_status status);
void windowed_invalidate(struct windowed *w, struct ibv_qp *qp, struct ibv_cq *cq, uint32_t rkey,
			 enum ibv_wc_status status);

#endif
