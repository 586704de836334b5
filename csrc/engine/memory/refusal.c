/* SPDX-License-Identifier: BSD-3-Clause
 * The words for a key that was refused, as a completion has only a status.  Once for each cause. */
#include "base/hint.h"
#include "engine/memory/mr.h"

#include <inttypes.h>
#include <stdio.h>

enum cause {
	NO_KEY,
	OTHER_PD,
	OTHER_QP,
	QP_RIGHT,
	MR_RIGHT,
	BEFORE,
	BEYOND,
	UNALIGNED,
	ABSENT,
};

/* Of an lkey, and of an rkey.  A detail follows. */
static const char *const says[][2] = {
	[NO_KEY] = { "this process has no region with this lkey",
		     "this process has no region or window with this rkey" },
	[OTHER_PD] = { "the region belongs to another protection domain than the queue pair",
		       "the region or window belongs to another protection domain than the queue "
		       "pair" },
	[OTHER_QP] = { NULL, "the window is bound to another queue pair" },
	[QP_RIGHT] = { NULL, "qp_access_flags of the queue pair lack " },
	[MR_RIGHT] = { "the region was registered without ",
		       "the region or window was made without " },
	[BEFORE] = { "it begins before the region by ", "it begins before the region by " },
	[BEYOND] = { "it ends beyond the region by ", "it ends beyond the region by " },
	[UNALIGNED] = { NULL, "the word is not at a multiple of 8 in memory" },
	[ABSENT] = { "memory of the on-demand region is missing", NULL },
};

static const struct {
	int access;
	const char *name;
} rights[] = {
	{ IBV_ACCESS_LOCAL_WRITE, "IBV_ACCESS_LOCAL_WRITE" },
	{ IBV_ACCESS_REMOTE_WRITE, "IBV_ACCESS_REMOTE_WRITE" },
	{ IBV_ACCESS_REMOTE_READ, "IBV_ACCESS_REMOTE_READ" },
	{ IBV_ACCESS_REMOTE_ATOMIC, "IBV_ACCESS_REMOTE_ATOMIC" },
	{ IBV_ACCESS_FLUSH_GLOBAL, "IBV_ACCESS_FLUSH_GLOBAL" },
	{ IBV_ACCESS_FLUSH_PERSISTENT, "IBV_ACCESS_FLUSH_PERSISTENT" },
};

static const char *first_of(int access)
{
	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		if (rights[i].access & access)
			return rights[i].name;
	return "a right";
}

/* The checks that a local and a remote key have in common. */
static enum cause cause_in(const struct nupa_mr *mr, uint64_t addr, uint64_t bytes, int access,
			   enum cause otherwise)
{
	if ((mr->access & access) != access)
		return MR_RIGHT;
	if (nupa_mr_at(mr, addr, bytes))
		return otherwise;
	return addr < mr->iova ? BEFORE : BEYOND;
}

/* The detail of a cause.  The numbers are the peer's: sums may wrap, and are only shown. */
static const char *detail(enum cause cause, const struct nupa_mr *mr, uint64_t addr, uint64_t bytes,
			  int lacking, char text[96])
{
	uint64_t beyond;

	if (cause == QP_RIGHT || cause == MR_RIGHT)
		return first_of(lacking);
	if (cause != BEFORE && cause != BEYOND)
		return "";
	beyond = cause == BEFORE ? mr->iova - addr : addr - mr->iova + bytes - mr->length;
	snprintf(text, 96, "%" PRIu64 " byte%s; the region: %" PRIu64 " bytes at 0x%" PRIx64,
		 beyond, beyond == 1 ? "" : "s", mr->length, mr->iova);
	return text;
}

void nupa_mr_explain_local(const struct nupa_engine *engine, const struct ibv_pd *pd,
			   const struct ibv_sge *sge, int access)
{
	const struct nupa_mr *mr = nupa_mr_find(engine, sge->lkey);
	enum cause cause;
	char text[96];

	if (nupa_engine_disowned(engine))
		return; /* of which it has said the cause */
	if (!mr || mr->kind == NUPA_MR_WINDOW || mr->kind == NUPA_MR_DEVICE)
		cause = NO_KEY;
	else if (!pd || mr->ibv.pd->handle != pd->handle)
		cause = OTHER_PD;
	else
		cause = cause_in(mr, sge->addr, sge->length, access, ABSENT);
	nupa_hint_of(
	    &says[cause][0],
	    "a buffer of %u bytes at 0x%" PRIx64 " with lkey 0x%x is refused "
	    "(IBV_WC_LOC_PROT_ERR): %s%s",
	    sge->length, sge->addr, sge->lkey, says[cause][0],
	    detail(cause, mr, sge->addr, sge->length, mr ? access & ~mr->access : 0, text));
}

void nupa_mr_explain_remote(const struct nupa_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t bytes,
			    int access)
{
	const struct nupa_mr *mr = nupa_mr_find(qp->engine, rkey);
	int lacking = access & ~(int)qp->attr.qp_access_flags;
	enum cause cause;
	char text[96];

	if (!access)
		return; /* a flush of a placement that does not exist: no program posts one */
	if (lacking) {
		cause = QP_RIGHT;
	} else if (!mr) {
		cause = NO_KEY;
	} else if (mr->qpn ? mr->qpn != qp->ibv.qp_num : !nupa_mr_same_pd(mr, qp)) {
		cause = mr->qpn ? OTHER_QP : OTHER_PD;
	} else {
		cause = cause_in(mr, raddr, bytes, access, UNALIGNED);
		lacking = access & ~mr->access;
	}
	nupa_hint_of(&says[cause][1],
		     "QP %u refuses a request of QP %u for %" PRIu64 " bytes at 0x%" PRIx64
		     " with rkey 0x%x (%s): %s%s",
		     qp->ibv.qp_num, qp->dest_qpn, bytes, raddr, rkey,
		     qp->type == IBV_QPT_UC ? "dropped" : "IBV_WC_REM_ACCESS_ERR there",
		     says[cause][1], detail(cause, mr, raddr, bytes, lacking, text));
}
