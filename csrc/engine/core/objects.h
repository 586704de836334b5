/* SPDX-License-Identifier: BSD-3-Clause
 * Contexts, queues and QPs, guarded by the engine's lock (engine.h I1).  They stand below all
 * folders that read them; engine/queue, engine/transport and engine/qp change them.
 *
 *   I3  A work request is executed in order: sq.acked <= sq.issued <= sq.posted. */
#ifndef NUPA_OBJECTS_H
#define NUPA_OBJECTS_H

#include "base/heap.h"
#include "engine/core/nupa.h"
#include "segment/ring/ring.h"

#include <pthread.h>

/* --- contexts ------------------------------------------------------------------------ */

struct nupa_context {
	struct verbs_context ibv;
	struct nupa_engine *engine;
	uint32_t exporter_slot; /* imported from another process: its attachment, else 0 */
	uint32_t exporter_epoch;
	bool closed;             /* with objects left: raises no event any more */
	struct nupa_list link;   /* engine->contexts; closed: engine->closed */
	struct nupa_list events; /* struct nupa_event, async */
	uint32_t resource;       /* its row in engine->resources, like those below; 0: none */
	pthread_mutex_t events_mutex;
	pthread_cond_t events_acked;
};

struct nupa_event {
	struct nupa_list link;
	struct ibv_async_event event;
};

/* --- queues -------------------------------------------------------------------------- */

struct nupa_comp_channel {
	struct ibv_comp_channel ibv; /* fd: an eventfd semaphore, one count for each event */
	struct nupa_list cqs; /* struct nupa_cq.event_link, one entry for each CQ with events */
	uint32_t users;
};

struct nupa_cqe { /* one line */
	uint64_t wr_id;
	struct nupa_qp *qp; /* with which it goes; NULL: with none */
	uint32_t byte_len;
	uint32_t imm; /* or invalidated rkey */
	uint32_t qp_num;
	uint32_t src_qp;
	uint8_t status; /* enum ibv_wc_status */
	uint8_t opcode; /* enum ibv_wc_opcode */
	uint8_t wc_flags;
	uint8_t sl;
	uint16_t slid;
	uint16_t pkey_index;
	uint32_t vendor_err;
	uint32_t pad2;
	uint64_t timestamp_ns;
	uint64_t record_ticks; /* record.h */
};
NUPA_ASSERT_SIZE(struct nupa_cqe, 64);

enum nupa_cq_note {
	NUPA_CQ_STAMPED = 1,
	NUPA_CQ_TRACED = 2,
	NUPA_CQ_RECORDED = 4,
	NUPA_CQ_HANDED_ON = 8, /* to hand_on */
};
enum nupa_arm { NUPA_ARM_NONE, NUPA_ARM_SOLICITED, NUPA_ARM_NEXT };

struct nupa_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ibv_ex;
	};
	struct nupa_cqe *ring;
	uint64_t head, tail;    /* polled, produced */
	uint64_t found_empty;   /* `tail` when the program polled in vain last */
	struct nupa_lane *lane; /* lane.h: of the thread that polls; NULL: of none */
	uint32_t mask;
	uint32_t capacity; /* as the user was told: ibv.cqe */
	uint32_t users;
	enum nupa_arm arm;
	bool overrun;
	uint8_t notes;         /* enum nupa_cq_note: what is done with each completion besides */
	struct nupa_list link; /* engine->cqs */
	/* completion events */
	struct nupa_list event_link;
	uint32_t events_pending; /* raised, not yet got */
	uint32_t events_got;     /* got, not yet acknowledged */
	uint32_t async_pending;  /* async events not yet acknowledged */
	/* events held back: moderation.c */
	uint32_t moderate_count, moderated; /* 0, 1: none is; completions since the last event */
	uint64_t moderate_period_ns, moderate_until_ns;
	struct nupa_list moderate_link; /* engine->moderated */
	struct ibv_pd *parent_domain;   /* NULL: none */
	bool custom;                    /* it allocated the ring */
	bool ignore_overrun;            /* the oldest completions are overwritten */
	uint32_t resource;
	/* extended CQ: the completion being read, and whose it is from start_poll to end_poll */
	struct nupa_cqe cursor;
	uint32_t batch; /* completions that start_poll found, left */
	pthread_mutex_t cursor_mutex;
	void (*hand_on)(struct nupa_cq *cq); /* its user has a ring of its own (csrc/kernel) */
};

struct nupa_rwqe {
	uint64_t wr_id;
	uint32_t n_sge;
	uint32_t pad;
	struct ibv_sge sge[];
};

/* A receive queue: a QP's own or an SRQ's. */
struct nupa_rq;

/* Where receives come from that their user posts without a call (csrc/kernel). */
struct nupa_rq_source {
	bool (*take)(struct nupa_rq_source *source, struct nupa_rq *rq); /* true: posted one */
	void (*translate)(uint8_t grh[NUPA_GRH_BYTES]); /* of a datagram, as the user reads it */
};

struct nupa_rq {
	uint8_t *ring;
	struct nupa_rq_source *source; /* NULL: none */
	uint32_t stride;
	uint32_t mask;
	uint32_t capacity;
	uint32_t max_sge;
	uint64_t head, tail; /* taken, posted */
};

struct nupa_srq {
	struct ibv_srq ibv;
	bool custom;            /* its parent domain allocated the ring */
	struct nupa_xrcd *xrcd; /* XRC: its domain, and where its completions go; else NULL */
	struct nupa_cq *cq;
	struct nupa_rq rq;
	uint32_t limit; /* 0: not armed */
	uint32_t users;
	uint32_t async_pending;
	uint32_t srq_num;
	uint32_t resource;
};

struct nupa_ah {
	struct ibv_ah ibv;
	struct ibv_ah_attr attr;
	uint32_t host;         /* NUPA_AH_GROUP: attr.grh.dgid is one */
	struct nupa_deth deth; /* ready to be sent but for the qkey */
};

#define NUPA_AH_GROUP UINT32_MAX      /* in place of a host: a multicast group */
#define NUPA_AH_NONE (UINT32_MAX - 1) /* no address handle was given */

enum nupa_wqe_state {
	NUPA_WQE_POSTED,
	NUPA_WQE_SENT, /* in the channel, waits for the peer */
	NUPA_WQE_DONE,
};

struct nupa_wqe {
	uint64_t wr_id;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;  /* enum ibv_send_flags */
	uint8_t state;
	uint8_t n_sge;
	uint32_t length_bytes;
	uint32_t imm; /* or rkey to invalidate */
	union {
		uint32_t rkey;    /* BIND_MW: the window's next key */
		uint32_t ah_host; /* UD: or NUPA_AH_GROUP, NUPA_AH_NONE */
	};
	union {
		struct {
			uint64_t raddr; /* BIND_MW: where the window begins */
			union {
				uint64_t compare_add;
				uint64_t bind_bytes; /* BIND_MW: its length */
			};
			union {
				uint64_t swap;
				struct {                    /* BIND_MW */
					uint32_t bind_lkey; /* of the region; 0: none */
					uint32_t bind_access;
				};
			};
		};
		struct { /* UD: a copy, as the address handle may be destroyed before the request
			  * is issued */
			struct nupa_deth deth;
			uint8_t mgid[16]; /* ah_host is NUPA_AH_GROUP */
		};
	};
	uint32_t dest_qpn; /* UD; XRC: the SRQ's number */
	uint32_t qkey;     /* UD */
	uint32_t first_psn, last_psn;
	uint32_t moved_bytes; /* sent, or received of a READ */
	uint8_t data_placed;  /* WRITE_WITH_IMM: the direct part is done */
	uint8_t by_message;   /* went so once, and so it goes again: retry.c I6 */
	uint8_t pulled;       /* a SEND whose receiver fetches it */
	uint8_t pad;
	uint32_t part_bytes;  /* of each part but the last, where it goes in parts; of a READ by a
			       * wire: up to where it was asked for */
	struct ibv_sge sge[]; /* or inline data */
};

static inline uint8_t *nupa_wqe_inline(const struct nupa_wqe *wqe)
{
	return (uint8_t *)(uintptr_t)wqe->sge;
}

struct nupa_sq {
	uint8_t *ring;
	uint64_t acked, issued, posted;
	uint64_t begun; /* where `issued` was before it went back */
	uint32_t stride;
	uint32_t mask;
	uint32_t capacity;
	uint32_t max_sge;
	uint32_t max_inline_bytes;
	size_t map_bytes;
};

enum nupa_wait {
	NUPA_WAIT_NONE,
	NUPA_WAIT_RING,    /* the channel is full */
	NUPA_WAIT_RNR,     /* until wait_until_ns */
	NUPA_WAIT_PEER,    /* the peer QP is not ready: again at wait_until_ns */
	NUPA_WAIT_PATH,    /* a port is down */
	NUPA_WAIT_CONTACT, /* the peer process has not opened its direction of the channel */
	NUPA_WAIT_WINDOW,  /* too much is on a wire: until something is acknowledged */
	NUPA_WAIT_RATE,    /* of its tenant, partition or member: until wait_until_ns */
};

/* Nothing but the time ends such a wait, so no turn looks at it before. */
#define NUPA_WAITS_FOR_TIME (1u << NUPA_WAIT_RNR | 1u << NUPA_WAIT_PEER | 1u << NUPA_WAIT_RATE)

/* UC, UD: messages that wait for a receive (backlog.c). */
struct nupa_backlog {
	struct nupa_list messages;
	struct nupa_list link; /* engine->backlogs */
	uint32_t n;
	uint64_t moved_ns; /* when it began or shrank last */
};

#define NUPA_RECV_COPY_BYTES (sizeof(struct nupa_rwqe) + NUPA_SGE_MAX * sizeof(struct ibv_sge))

/* A READ or atomic whose response has not been sent in full. */
struct nupa_job {
	uint32_t psn;
	uint32_t rkey;
	uint64_t raddr; /* atomic: the original value */
	uint32_t total_bytes;
	uint32_t sent_bytes;
	bool is_atomic;
	bool is_bare; /* and gives no value back: an ATOMIC WRITE or FLUSH */
	bool again;   /* it was answered before, as far as we know */
};

/* The result of an atomic: it is executed once, however often it comes. */
struct nupa_answer {
	uint32_t psn;
	bool is_bare;
	uint64_t original;
};

/* The responder's answers of its own, of which jobs_head, jobs_tail and n_answers count. */
struct nupa_answers {
	struct nupa_job jobs[NUPA_RD_ATOMIC_MAX];
	struct nupa_answer given[NUPA_RD_ATOMIC_MAX]; /* the last ones, to atomics */
};

enum nupa_xrc_side { NUPA_XRC_NONE, NUPA_XRC_INITIATOR, NUPA_XRC_TARGET };

/* Requests for a QP that is not there or not ready, still to be answered: one of each requester. */
struct nupa_refusal {
	struct nupa_list link;
	uint32_t dest_qpn, src_qpn;
	uint32_t incarnation;
	uint32_t psn;     /* the first one refused */
	uint32_t ack_psn; /* UC: the last; acknowledged: the last one executed */
	bool acknowledges;
};

/* An injected WRITE in more than one packet: the next one, if it comes next. */
struct nupa_injected_write {
	bool open;
	uint32_t psn, incarnation; /* the QP's own */
	uint32_t rkey;
	uint64_t raddr;
	uint32_t total_bytes, left_bytes;
};

/* The requester on a path with faults (retry.c, fault_judge.c). */
struct nupa_qp_faults {
	struct nupa_qp *qp;
	struct nupa_list retry_link; /* engine->faults->retries, while qp->retrying */
	uint64_t retry_at_ns;
	uint64_t retry_tail; /* all of it stood before this in the ring */
	uint64_t retry_end;  /* where the path was whole again */
	uint64_t part_of;    /* the request, + 1, of which all up to part_psn is executed */
	uint32_t part_psn;
	struct nupa_list stuck_link; /* engine->faults->stuck, while qp->stuck */
	uint64_t stuck_until_ns;
	uint32_t stuck_by; /* the fault that did it */
	/* A wire: flight.c. */
	uint32_t unacked_psn;    /* all before it is acknowledged */
	uint32_t sent_psn;       /* all before it was sent once: later than next_psn after a loss */
	uint32_t window_packets; /* so many may be on their way; 0: not begun */
	uint32_t threshold_packets, window_acked;
	uint32_t lost_psn; /* the window was halved for what was sent before this */
	bool halved;
};

/* A request that is being built between wr_start and wr_complete, by one thread (qp_ex.c). */
struct nupa_builder {
	bool building;
	int error;
	uint64_t first, end;  /* the part of the send queue that was free at wr_start */
	uint64_t next;        /* behind the request being built */
	struct nupa_wqe *wqe; /* it; NULL: none yet */
};

/* The XRC part of a QP (xrc.c), or of a handle of one (qp_open.c). */
struct nupa_qp_xrc {
	struct nupa_xrcd *xrcd; /* target */
	uint32_t srqn;          /* of the request being sent */
	bool away;              /* was connected to another process than the target's */
	bool resync;            /* the next message starts PSNs anew */
	bool is_new;            /* target: of this requester none has come yet */
	struct nupa_qp *real;   /* handle: of this QP, or of another process's */
	const struct nupa_qp_entry *peer_entry;
};

/* A queue pair.  Messages of RC touch lines 0 to 3, and one-sided requests lines 0, 1, 2 and 4.
 * Both read the first line of `ibv` and the retry counts in `attr`. */
struct nupa_qp {
	/* Line 0: both directions. */
	NUPA_LINE_ALIGNED struct nupa_engine *engine;
	struct nupa_channel *channel; /* RC, UC: to the peer; NULL until first contact */
	struct nupa_cq *send_cq, *recv_cq;
	struct nupa_srq *srq;
	uint32_t dest_qpn;
	uint8_t type;  /* enum ibv_qp_type; XRC's are RC here, and `xrc` says which */
	uint8_t state; /* enum ibv_qp_state */
	uint8_t xrc;   /* enum nupa_xrc_side */
	bool sq_sig_all;
	bool steady_tx, steady_rx; /* express.h I4 */
	bool heard;                /* a message came since the last one was sent */
	bool converses;            /* sends after it receives: the next line will be wanted soon */
	bool ack_pending;          /* tell the requester all before expected_psn is executed */
	bool nak_pending;          /* and that expected_psn was not: nak_syndrome */
	bool nak_sent;             /* drop until expected_psn comes again */
	bool recv_active;
	bool rated; /* what it sends or fetches has a rate: pace.c */
	bool comm_est;
	bool retrying;  /* a timer runs: faults->retry_at_ns */
	bool stuck;     /* nothing completes before faults->stuck_until_ns */
	bool went_back; /* once for went_back_psn, and nothing has come since */
	bool gave_up;   /* UC, UD: the message being sent finds no room, and is lost */
	uint8_t rnr_left;
	uint8_t psn_retries_left;

	/* Lines 1 and 2: the requester, and the responder's PSN. */
	struct nupa_sq sq;
	uint32_t next_psn;
	uint16_t incarnation;       /* 8 bits, see struct nupa_qp_entry */
	uint16_t pkey;              /* of attr.pkey_index, when it was set; 0: not yet */
	uint32_t reads_outstanding; /* through the channel: reads and atomics */
	enum nupa_wait wait;
	uint64_t wait_deadline_ns; /* 0: none */
	const void *hot;           /* the last request stored to this, the next one may as well */
	uint32_t expected_psn;
	uint32_t peer_incarnation; /* its requests are answered; NUPA_PEER_UNKNOWN */
	struct nupa_list ack_link; /* engine->ack_pending */

	/* Line 3: receives. */
	struct nupa_rq rq;
	struct nupa_rwqe *recv_wqe; /* taken for the message in progress (a copy) */
	uint64_t recv_bytes;

	/* Line 4: the peer's QP, as one-sided requests need it. */
	const struct nupa_qp_entry *peer; /* the rest was so when we looked; NULL: look */
	uint64_t peer_identity, peer_rights;
	uint32_t peer_access;
	uint32_t peer_pd;
	struct nupa_qp_entry *entry;
	uint64_t wait_until_ns;
	uint64_t timeout_ns; /* in all: 4.096 us * 2^timeout * (retry_cnt + 1); 0: for ever */
	uint32_t dest_host;
	uint32_t index;

	/* Line 5: the program's handle; its first line has the PD and the number. */
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ibv_ex;
	};
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct nupa_lane *lane;          /* lane.h: of the thread that posts; NULL: of none */
	struct nupa_list wait_link;      /* engine->waiting */
	struct nupa_heap_item wait_item; /* engine->timed or paced */
	uint32_t went_back_psn;
	uint32_t answered_psns; /* the last ones before expected_psn: see nupa_ack_psn */

	/* Parts that few QPs have.  NULL: not this one, or not yet. */
	struct nupa_builder *builder; /* an extended QP */
	struct nupa_qp_xrc *xrc_part; /* `xrc`, is_handle */
	struct nupa_qp_faults *faults;
	struct nupa_qp_rate *rate;          /* it is `rated`, or was */
	struct nupa_congestion *congestion; /* on a wire; NULL: none was seen */
	struct nupa_answers *answers;       /* a READ or atomic came as a message */
	struct nupa_injected_write *injected;

	/* Responder: seldom. */
	struct nupa_list job_link; /* engine->reading */
	uint32_t jobs_head, jobs_tail;
	uint32_t n_answers;
	uint32_t msn; /* by a wire: messages executed (IBTA 9.7.5.1.1) */
	uint8_t nak_syndrome;
	bool drop_message; /* UC: rest of a message whose start was dropped */
	bool uc_met;       /* UC: a message has come, so PSNs go on from there */
	bool recv_kept;    /* UC: taken for a message that broke off; the next one has it */
	bool starved;      /* UC, UD: the backlog was dropped, and no receive has come since */
	struct nupa_backlog backlog;

	/* Control. */
	uint32_t async_pending;
	bool sqd_notify;
	bool last_wqe_event;
	bool partner_gone; /* was destroyed in order */
	bool partner_lost; /* died, and no request has said so yet */
	bool lost_in_rtr;  /* died before the QP was taken from RTR to RTS */
	bool is_handle;    /* by ibv_open_qp: of xrc_part->real, or of another process's QP */
	bool orphan;       /* its own handle is closed, others are open */
	bool sq_custom, rq_custom; /* the parent domain allocated the ring */
	bool block_self_mcast;     /* IBV_QP_CREATE_BLOCK_SELF_MCAST_LB */
	uint32_t opens;
	uint32_t windows;      /* type 2 windows bound on it */
	uint32_t mcast_groups; /* that it is attached to */
	uint32_t resource;
	bool shown; /* it is counted, with a row or without */
};

#define NUPA_QP_LINE(field) (offsetof(struct nupa_qp, field) / NUPA_CACHE_LINE_BYTES)
_Static_assert(NUPA_QP_LINE(psn_retries_left) == 0, "line 0");
_Static_assert(NUPA_QP_LINE(sq) == 1 && NUPA_QP_LINE(sq.max_inline_bytes) == 1, "line 1");
_Static_assert(NUPA_QP_LINE(next_psn) == 2 && NUPA_QP_LINE(ack_link.prev) == 2, "line 2");
_Static_assert(NUPA_QP_LINE(rq) == 3 && NUPA_QP_LINE(recv_bytes) == 3, "line 3");
_Static_assert(NUPA_QP_LINE(peer) == 4 && NUPA_QP_LINE(index) == 4, "line 4");
_Static_assert(offsetof(struct nupa_qp, ibv) == 5 * NUPA_CACHE_LINE_BYTES, "line 5");

/* A request of one piece, from whichever way it was posted. */
struct nupa_express {
	uint64_t wr_id;
	uint64_t raddr;
	uint64_t compare_add, swap;
	uint8_t *local;            /* inline data; else what nupa_express finds by sge */
	const struct ibv_sge *sge; /* NULL: inline */
	uint32_t rkey;
	uint32_t bytes;
	uint32_t flags; /* enum ibv_send_flags */
	uint32_t opcode;
};

/* --- faults -------------------------------------------------------------------------- */

/* A fault as it was found: what of an entry may change under us is read of the entry. */
struct nupa_fault_view {
	uint32_t id; /* 0: none here */
	uint32_t kind;
	uint32_t port;
	uint32_t probability;
	uint64_t seed, after, count;
	uint64_t end_ns;
	uint64_t duration_ns, bytes_per_s;
	struct nupa_fault_entry *entry;
};

struct nupa_faults {
	struct nupa_fault_view views[NUPA_FAULTS_MAX]; /* by place in the table */
	uint64_t next_ns;                              /* when there is something to do */
	struct nupa_list retries;                      /* struct nupa_qp_faults.retry_link */
	struct nupa_list stuck;                        /* struct nupa_qp_faults.stuck_link */
};

#endif
