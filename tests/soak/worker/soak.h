/* SPDX-License-Identifier: BSD-3-Clause
 * A worker of the soak: ends of links to other workers.  Each end sends a stream of operations that
 * its peer can derive, down to the last byte, from the link's seed. */
#ifndef NUPA_SOAK_H
#define NUPA_SOAK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_MAX_BYTES (1u << 20)
#define ENDS_MAX 64u
#define RECVS 4u   /* receives of an end, and messages that its peer may have under way */
#define WINDOWS 2u /* places that the peer writes to */
#define STAGES 4u  /* operations under way */
#define RECENT 8u  /* messages that may come again */
#define INLINE_BYTES 64u

/* --- board.c: what the director reads at any time, of the dead as well ------------------- */

enum log_kind { LOG_MADE = 1, LOG_POSTED, LOG_DONE, LOG_RECEIVED, LOG_DOWN, LOG_DESTROYED };

struct log_entry {
	uint64_t ns; /* CLOCK_MONOTONIC */
	uint32_t end;
	uint32_t step;
	uint32_t bytes;
	uint8_t kind; /* enum log_kind */
	uint8_t opcode;
	uint8_t status;
	uint8_t reserved;
};

#define LOG_ENTRIES 128u

struct board {
	uint64_t heartbeat_ns;
	uint64_t operations;
	uint64_t bytes;
	uint64_t wrong;
	uint64_t datagrams; /* received */
	uint64_t longest_dereg_ns;
	/* Before the device was opened, about now, after it was closed. */
	uint64_t fds[3];
	uint64_t heap_bytes[3];
	uint64_t log_next;
	uint64_t dials;  /* connections by rdma_cm that went from end to end */
	uint64_t untold; /* connections whose peers' ends were not told; on a network alone */
	uint64_t reserved;
	struct {
		uint64_t id;
		uint64_t progress; /* grows with all that the end posts, completes or receives */
	} ends[ENDS_MAX];
	struct log_entry log[LOG_ENTRIES];
};
_Static_assert(sizeof(struct board) == 128 + 16 * ENDS_MAX + 24 * LOG_ENTRIES,
	       "as board.py reads it");

extern struct board *board;

uint64_t clock_ns(void);
void board_log(enum log_kind kind, uint32_t end, uint64_t step, uint32_t opcode, uint32_t bytes,
	       uint32_t status);
/* Something that must not be: told on stderr and counted. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends this worker: no memory, or a call that fails. */
void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void must(bool good, const char *what);
/* Files and heap: 0 before the device is opened, 1 now, 2 after it was closed. */
void measure(int when);
/* One line to the director. */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- stream.c: what is sent ---------------------------------------------------------------- */

struct step {
	uint64_t number;
	uint32_t opcode; /* enum ibv_wr_opcode */
	uint32_t bytes;
	uint32_t imm;
	uint32_t bits;  /* random: flags and how the payload is split */
	uint32_t write; /* WRITE, WRITE_IMM: how many went before it */
	uint64_t seed;  /* of the payload */
	bool announces; /* takes a receive, and says that all before it is there */
	bool writes;
};

struct stream {
	uint64_t seed;
	uint64_t next;
	uint32_t writes;
	uint32_t unannounced; /* writes since the last step that announces */
	bool reliable;
	bool xrc; /* SEND_WITH_INV is not for it */
};

uint64_t mix(uint64_t a, uint64_t b);
struct step stream_next(struct stream *stream);
/* Byte i of the pattern of *seed*, from *offset* on. */
void pattern_fill(uint8_t *at, size_t bytes, uint64_t seed, uint64_t offset);
/* Where it differs, or *bytes*. */
size_t pattern_match(const uint8_t *at, size_t bytes, uint64_t seed, uint64_t offset);

/* --- the worker: main.c ---------------------------------------------------------------------- */

struct worker {
	struct ibv_context *context;
	uint8_t gid_index; /* SOAK_GID_INDEX of the environment: of the addresses that peers know */
	uint8_t timeout;   /* SOAK_TIMEOUT: that of RC */
	/* SOAK_NETWORK: packets between peers get lost, come twice and late, the way between them
	 * may be gone, and nothing but a timer tells of a peer's death. */
	bool network;
	uint32_t mtu_bytes; /* SOAK_MTU_BYTES: of the way between them; 0: the port's */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* NULL: this worker polls */
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *xrc_srq;
	struct ibv_mr *srq_mr; /* of the buffers of both */
	uint8_t *srq_memory;
	uint64_t polled; /* completions */
	struct end *ends[ENDS_MAX];
};

extern struct worker worker;

#define SRQ_BUFFERS (RECVS * 8u) /* of the SRQ; as many follow of the XRC SRQ */

/* The owner of a completion: kind << 56 | end << 32 | index. */
enum wr_kind {
	WR_STEP = 1,
	WR_CREDIT,
	WR_BIND,
	WR_RECV,
	WR_SRQ_RECV, /* of either SRQ */
	WR_DATAGRAM,
	WR_DATAGRAM_RECV
};
/* Beside the values of enum ibv_wc_status: messages of an unreliable link were lost. */
#define LOST 100
#define WR_ID(kind, end, index) ((uint64_t)(kind) << 56 | (uint64_t)(end) << 32 | (uint32_t)(index))

void srq_post(uint32_t buffer);
/* The port's, which depends on the wires that are there. */
enum ibv_mtu mtu_now(void);

/* --- control.c ------------------------------------------------------------------------------ */

extern bool finish_asked;
/* Does what the director said. */
void hear(void);

/* --- end.c, traffic.c, receive.c
 * ------------------------------------------------------------------------- */

enum service { SERVICE_UC, SERVICE_RC, SERVICE_XRC };

/* Properties of an end, as bits. */
enum dress {
	DRESS_SRQ = 1,
	DRESS_ON_DEMAND = 2,
	DRESS_DEVICE = 4,   /* the words of atomics are in device memory */
	DRESS_WINDOW_1 = 8, /* WRITEs go by a memory window of type 1, or of type 2 */
	DRESS_WINDOW_2 = 16,
};

struct plan {
	uint32_t id;
	enum service service;
	unsigned int dress; /* enum dress */
	uint64_t seed;
	bool first; /* of the two ends of the link */
};

struct address {
	uint32_t qpn;      /* that receives */
	uint32_t send_qpn; /* that sends: another one with XRC */
	uint32_t srqn;     /* XRC */
	uint32_t psn;
	uint32_t rkey;
	uint64_t memory;
	uint32_t words_rkey; /* of the words of atomics, at *words* */
	uint64_t words;
	union ibv_gid gid;
};

struct stage {
	struct step step;
	uint64_t compare; /* CAS */
};

/* A peer's progress, which it writes into our region. */
struct status {
	uint64_t received;   /* messages that it verified; as many receives are free again */
	uint64_t invalidate; /* an rkey that may be invalidated << 32 | its number */
	uint64_t window;     /* the rkey of a memory window over the windows; 0: none yet */
	uint64_t check;      /* of all: the words may not come at once */
};

struct end {
	uint32_t id;
	uint64_t made_ns;
	enum service service;
	bool running;
	bool dying;       /* in error: destroyed when its completions have been polled */
	uint64_t died_at; /* worker.polled */
	struct ibv_qp *qp;
	struct ibv_qp *recv_qp; /* XRC; else the same */
	struct ibv_mr *mr;
	struct ibv_dm *dm; /* NULL: the words of atomics are in our memory */
	struct ibv_mr *dm_mr;
	struct ibv_mw *mw; /* NULL: the peer writes by the region's key */
	bool mw_bound, mw_credited;
	uint8_t *memory; /* see PLACE_ below */
	struct address peer;
	/* outwards */
	struct stream out;
	struct step ready; /* the next one */
	bool has_ready;
	struct stage stages[STAGES];
	uint64_t posted, done;
	uint64_t announced, credits;
	uint64_t window_announced[WINDOWS]; /* free when so many are received */
	uint32_t windows_open;              /* writes that nothing announces yet */
	uint64_t added, swapped;            /* what the peer's words must hold */
	uint32_t invalidated;               /* number of the last rkey used */
	uint32_t peer_window;               /* its memory window's key; 0: none yet */
	bool last_unsignaled;
	/* inwards */
	struct stream in;
	uint64_t peer_source_seed;
	struct step recent[RECENT]; /* UC: steps that were received, which may come again */
	uint64_t adds, last_swap;   /* what the peer's atomics have made of our words */
	uint64_t received, credited;
	uint64_t credited_ns;
	bool credit_busy;
	struct ibv_mr *invalidate_mr;
	uint32_t invalidate_number, invalidate_credited;
};

#define PLACE_SOURCE 0u
#define PLACE_WINDOW MESSAGE_MAX_BYTES
#define PLACE_RECV (PLACE_WINDOW + WINDOWS * MESSAGE_MAX_BYTES)
#define PLACE_STAGE (PLACE_RECV + RECVS * MESSAGE_MAX_BYTES)
#define PLACE_WORDS (PLACE_STAGE + STAGES * MESSAGE_MAX_BYTES)
#define PLACE_ADD (PLACE_WORDS + 0u)
#define PLACE_SWAP (PLACE_WORDS + 8u)
#define PLACE_STATUS (PLACE_WORDS + 64u)
#define PLACE_INVALIDATE (PLACE_WORDS + 128u)
#define END_BYTES (PLACE_WORDS + 4096u)

/* When a deregistration ended that had waited for a stopped process. */
extern uint64_t last_long_dereg_ns;

struct end *end_make(const struct plan *plan);
bool end_has_qp(const struct end *end, uint32_t qpn);
/* False: the way to the peer is gone. */
bool end_to_ready(struct end *end);
/* False: the peer ended before. */
bool end_go(struct end *end);
/* To error: its work completes with flushes. */
void end_die(struct end *end);
void end_destroy(struct end *end);
/* Frees memory of ended ends, once it is certain that no process wrote to it since. */
void graves_visit(bool all);

void end_check_bytes(const struct end *end, const struct step *step, const uint8_t *at,
		     uint64_t seed, uint64_t offset, const char *what);
/* Follows the peer's stream to the step that took this receive; false: messages were lost. */
bool end_receive(struct end *end, const struct ibv_wc *wc, const uint8_t *buffer);
/* Our words are those that the peer's atomics make of them, each executed once or not at all. */
void end_check_words(const struct end *end);
/* Posts what there is room for. */
void end_send(struct end *end);
/* A completion of this end; false: it failed, and the end with it. */
bool end_complete(struct end *end, const struct ibv_wc *wc);
void end_post_recv(struct end *end, uint32_t buffer);

/* --- dress.c: memory windows, device memory, XRC ------------------------------------------------
 */

void xrc_open(void);
void xrc_close(void);
void xrc_make_qps(struct end *end);
uint32_t xrc_srq_number(void);

void dress_put_on(struct end *end, const struct plan *plan);
void dress_take_off(struct end *end);
/* In RTS: the memory window is bound. */
void dress_bind(struct end *end);
/* Does so until it is not EBUSY: a peer is stopped in the middle of a copy (docs/verbs.md). */
int dereg(void *mr);
void until_free(int (*call)(void *object), void *object, const char *what);

/* --- dials.c: connections by rdma_cm ------------------------------------------------------------
 */

/* The fabric's table of ports is backed by the first who listens, and stays. */
void dials_warm_up(void);
void dials_open(void);
void dials_close(void);
void dials_begin(const char *address, unsigned int port, uint64_t seed);
void dials_turn(void);

/* --- events.c -----------------------------------------------------------------------------------
 */

void events_open(void);
void events_close(void);
/* How many QPs were told that their peers are gone. */
uint32_t events_count(void);
/* When this one was, since then; 0: it was not. */
uint64_t events_fatal_ns(uint32_t qpn, uint64_t since_ns);

/* --- datagrams.c -------------------------------------------------------------------------------
 */

void datagrams_open(uint64_t seed);
void datagrams_close(void);
void datagrams_meet(uint32_t peer, uint32_t qpn, const union ibv_gid *gid);
void datagrams_send(void);
void datagrams_complete(const struct ibv_wc *wc);

#endif
