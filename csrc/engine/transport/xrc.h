/* SPDX-License-Identifier: BSD-3-Clause
 * XRC (IBTA annex A14): what its files share.  A sending QP reaches, through one receiving QP, all
 * SRQs of that QP's domain, whichever processes of the host they belong to. */
#ifndef NUPA_XRC_H
#define NUPA_XRC_H

#include "engine/transport/transport.h"

/* Identifies a domain: by a file, or private. */
struct nupa_xrcd_id {
	uint64_t dev, ino;
};

struct nupa_xrcd {
	struct ibv_xrcd ibv;
	struct nupa_xrcd_id id;
	uint32_t index; /* in our table */
	uint32_t users; /* SRQs and QPs */
};

/* The responder of a receiving QP of another process, for SRQs of ours. */
struct nupa_xrc_shadow {
	struct nupa_qp qp;
	struct nupa_list link; /* nupa_xrc.shadows */
	struct nupa_qp_xrc part;
	struct nupa_xrcd xrcd;
	struct nupa_qp_entry entry; /* stands in for a published one */
};

#define NUPA_XRC_SHADOW_LISTS 64u /* a power of two */

struct nupa_xrc {
	struct nupa_srq **srqs; /* by index; NUPA_SRQ_MAX of them */
	uint32_t n_srqs, next_srq;
	struct nupa_xrcd *xrcds[NUPA_XRCD_MAX];
	uint64_t anonymous; /* domains without a file, so far */
	struct nupa_list shadows[NUPA_XRC_SHADOW_LISTS];
	uint32_t n_shadows;
};

/* The published entry of a receiving QP on our host; id NULL: of any domain.  NULL: there is none.
 */
const struct nupa_qp_entry *nupa_xrc_target(struct nupa_engine *engine, uint32_t qpn,
					    const struct nupa_xrcd_id *id);
void nupa_xrc_forget_srq(struct nupa_srq *srq);
void nupa_xrc_free_shadows(struct nupa_xrc *xrc);

/* Where the request goes, which is qp->channel then; false: what was sent before has to be
 * answered first. */
bool nupa_xrc_route(struct nupa_qp *qp, const struct nupa_wqe *wqe);
void nupa_xrc_mark(struct nupa_qp *qp, struct nupa_msg *msg);
/* The responder for a QP that is not ours, but whose SRQ may be; NULL: refuse. */
struct nupa_qp *nupa_xrc_shadow(struct nupa_engine *engine, const struct nupa_channel *channel,
				const struct nupa_msg *msg);
void nupa_xrc_resync(struct nupa_qp *qp, const struct nupa_msg *msg);
/* Makes the message's SRQ the QP's, while it lasts; false: refused. */
bool nupa_xrc_bind(struct nupa_qp *qp, const struct nupa_msg *msg);
/* The same for one that was executed before; false: its SRQ is gone. */
bool nupa_xrc_bind_again(struct nupa_qp *qp, const struct nupa_msg *msg);
void nupa_xrc_channel_failed(struct nupa_engine *engine, const struct nupa_channel *channel);

static inline bool nupa_xrcd_same(const struct nupa_xrcd_id *a, const struct nupa_xrcd_id *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

#endif
