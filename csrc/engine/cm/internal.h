/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations shared by the files of connection management: identifiers, messages, and the calls
 * permitted in each state.
 *
 *   K1  An id and the lists of struct nupa_cm are guarded by the engine's lock; events that wait in
 *       an event channel, and the count of those that were got, by the channel's mutex, which is
 *       taken after that lock.
 *   K2  A message is accepted only from the channel of its id.
 *   K3  A channel is named by ids and by owed messages, and by nothing else here.  Neither names
 *       one that has failed (nupa_cm_lose_peer): it may be freed any time after that.
 *   K4  A message that is repeated is executed once.  The repetition is answered again.
 *
 * How each thing that names another ends; tests/rdmacm/test_cm_ends.c goes through the rows.
 *
 *   names        of                    ends with
 *   ids          peer                  channel fails: NULL, the id reports its end
 *   owed         channel               channel fails: dropped.  Id destroyed: still sent
 *   remotes      passive ids           id destroyed: its remnant takes the place
 *   left         remnants              channel fails, time, LEFT_MAX: freed
 *   table        ids                   id destroyed: its remnant's, or NULL
 *   listeners    ids                   id destroyed: off the list; requests not got are rejected
 *   waiting,     ids                   id destroyed, peer lost, answer: off the list
 *   extended,
 *   timewait
 *   events       id, child, group      id destroyed, group left, engine detached: dropped.
 *                                      Id migrated: moved, with the children of requests
 *   id           events (channel)      counted: freed after the last id
 *   id           QP (librdmacm alone)  rdma_destroy_qp: NULL.  The core knows numbers only */
#ifndef NUPA_CM_INTERNAL_H
#define NUPA_CM_INTERNAL_H

#include "engine/cm/cm.h"
#include "engine/cm/hooks.h"
#include "engine/trace/publish.h"

/* The states of the kernel's cma.c and cm.c in one: the event that an id waits for. */
enum cm_state {
	CM_IDLE = 0,
	CM_BOUND,
	CM_LISTEN,
	CM_ADDR_RESOLVED,
	CM_ROUTE_RESOLVED,
	CM_REQ_SENT,
	CM_REQ_RECEIVED,
	CM_REP_SENT,
	CM_REP_RECEIVED,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_TIMEWAIT, /* disconnected; TIMEWAIT_EXIT comes */
	CM_SIDR_SENT,
	CM_SIDR_RECEIVED,
	CM_SIDR_DONE,
	CM_REJ_SENT,  /* a remnant: see repeat.c */
	CM_CLOSED,    /* rejected, unreachable, or out of timewait */
	CM_DESTROYED, /* only to be freed */
};

enum cm_message {
	CM_NONE,
	CM_REQ,
	CM_REP,
	CM_RTU,
	CM_REJ,
	CM_DREQ,
	CM_DREP,
	CM_SIDR_REQ,
	CM_SIDR_REP,
	CM_MRA, /* timer: enum cm_mra */
	CM_MAD, /* to or from a kernel: cm/kernel/peer.c */
	CM_MESSAGE_MAX,
};

/* IBTA 12.6.7.2 rejection reasons; 12.11.2.1 SIDR status. */
enum {
	CM_REJ_TIMEOUT = 4,
	CM_REJ_INVALID_ID = 6,
	CM_REJ_INVALID_SERVICE = 8,
	CM_REJ_INVALID_MTU = 26,
	CM_REJ_CONSUMER = 28,
	CM_REJ_ECE = 35,
};
enum cm_mra { CM_MRA_REQ = 0, CM_MRA_REP = 1 }; /* IBTA 12.6.6: the message that takes long */
enum { CM_SIDR_OK = 0, CM_SIDR_UNSUPPORTED = 1, CM_SIDR_REJECTED = 2 };

/* Private data that is the consumer's (man rdma_connect, rdma_accept, rdma_reject). */
#define CM_REQ_PRIVATE_BYTES 56u
#define CM_REP_PRIVATE_BYTES 196u
#define CM_REJ_PRIVATE_BYTES 148u
#define CM_SIDR_REQ_PRIVATE_BYTES 180u
#define CM_SIDR_REP_PRIVATE_BYTES 136u

#define CM_QP_TIMEOUT 18u      /* 4.096 us * 2^18 is a second */
#define CM_WIRE_QP_TIMEOUT 17u /* to a wire: the kernel's over RoCE */

/* Timeouts as the kernel's cma.c has them, in 4.096 us * 2^n. */
#define CM_RESPONSE_TIMEOUT 20u
#define CM_SERVICE_TIMEOUT 24u /* of our MRAs */
#define CM_RETRIES 15u

/* The kind of a host's address: a port is bound to one. */
enum cm_addr_kind {
	CM_ADDR_ANY4,
	CM_ADDR_HOST4,     /* 10.0.0.N, also v4-mapped */
	CM_ADDR_LOOPBACK4, /* 127.0.0.0/8 */
	CM_ADDR_MACHINE4,  /* the real machine's: means this host */
	CM_ADDR_WIRE4,     /* of a wire: its remote end's, or its local end's */
	CM_ADDR_ANY6,
	CM_ADDR_LINK6, /* GID 0 */
	CM_ADDR_HOST6, /* GID 2: fd4e:5550:4100::N, N as in 10.0.0.N */
	CM_ADDR_LOOPBACK6,
	CM_ADDR_MACHINE6,
	CM_ADDR_WIRE6,
	CM_ADDR_KINDS,
};

/* The fields of struct nupa_msg: op is NUPA_OP_CM, syndrome the message, timer the reason or
 * status.  `dest_qpn` and `src_qpn` are the ids of both ends (0: not known).  The payload is this
 * struct. */
struct cm_wire {
	uint16_t ps;
	uint16_t family; /* AF_INET, AF_INET6: of both addresses */
	uint16_t src_port, dst_port;
	uint8_t src[16], dst[16]; /* IPv4 in the first four bytes */
	uint32_t psn;
	uint32_t qkey;
	uint8_t dst_kind; /* enum cm_addr_kind */
	uint8_t qp_type;
	uint8_t tos;
	uint8_t path_mtu; /* enum ibv_mtu; of requests that came by a wire, as the next two */
	uint16_t pkey;    /* of the path, as the requester's host has it */
	uint8_t ack_timeout;
	uint8_t service_timeout; /* of an MRA that came by a wire */
	struct nupa_cm_param param;
	uint64_t transaction;
};
_Static_assert(sizeof(struct cm_wire) <= 512, "one message");

/* The last message of an id, for repetitions. */
struct cm_sent {
	enum cm_message message;
	uint8_t reason;
	bool has_wire;
	uint8_t tries; /* repetitions left */
	uint8_t early; /* of these, before the time that the peer has */
	uint32_t owed; /* messages of the id in cm->owed */
	uint64_t tail; /* of its ring, behind the message */
	bool extended; /* by an MRA, since it was sent */
	bool delays;   /* an MRA of ours says that the answer takes long */
	struct cm_wire wire;
};

/* An id to or from the host of a wire. */
struct cm_far {
	uint32_t number;               /* its communication id in datagrams; 0: not drawn yet */
	uint8_t path_mtu, ack_timeout; /* of the request; 0: not known yet */
	uint8_t about;                 /* of its rejection */
	uint64_t transaction;
};

struct nupa_cm_id {
	struct nupa_list link;      /* cm->ids */
	struct nupa_list wait;      /* cm->waiting, extended or timewait, by deadline */
	struct nupa_list listener;  /* cm->listeners; of a remnant: cm->left */
	struct nupa_list by_remote; /* cm->remotes, if a request made it */
	struct nupa_list by_number; /* cm->numbers */
	struct nupa_engine *engine;
	struct ibv_context *context;
	struct nupa_cm_channel *events;
	uint32_t events_got; /* guarded by the channel's mutex */
	int backlog;         /* requests that may still be queued; atomic */
	void *user;          /* NULL: not accepted yet, no event is reported */
	enum cm_state state;
	enum ibv_qp_type qp_type;
	enum rdma_port_space ps;
	uint32_t local, remote; /* the numbers of both ends in messages */
	struct nupa_channel *peer;
	uint64_t deadline_ns;
	bool unsent;            /* REQ or SIDR_REQ: no path, or no listener yet */
	uint64_t seek_until_ns; /* for a listener; 0: not begun */

	struct sockaddr_storage src, dst;
	enum cm_addr_kind src_kind, dst_kind;
	uint32_t dst_host;
	bool bound; /* to the device */
	bool multicast_dst;
	uint8_t sgid_index;
	uint8_t pkey_entry; /* of the host's P_Key table, + 1; 0: see cm_pkey_index */
	uint64_t *port;     /* its word in the host's table; NULL: has no port of its own */
	uint64_t port_word;

	bool reuse, afonly;
	uint8_t tos, ack_timeout;
	bool ack_timeout_set;

	struct nupa_cm_param param; /* REQ's until it is sent; then depths and counts in force */
	uint32_t remote_qpn, psn, remote_psn;
	struct cm_sent sent;
	struct cm_far far;
	bool remnant; /* the program destroyed it: see repeat.c */
	uint32_t qpn; /* of the QP that it connects; 0: none yet */
	bool shown;   /* it is counted as a resource */
	uint32_t resource;
};

/* A message for which its ring had no room. */
struct cm_owed {
	struct nupa_list link;
	struct nupa_channel *channel;
	struct nupa_msg msg;
	uint8_t payload[sizeof(struct cm_wire)];
};

/* A number of an id: its place in the table, and above it a generation. */
#define CM_INDEX_BITS 20u
#define CM_INDEX_MASK ((1u << CM_INDEX_BITS) - 1)
#define CM_REMOTES 256u

struct nupa_cm {
	struct nupa_cm_id **table; /* by the low bits of `local` */
	uint32_t table_entries, table_used;
	uint32_t *free_entries;
	uint32_t n_free;
	uint32_t generation;
	uint32_t next_port;
	uint32_t unsent;     /* ids that are */
	uint64_t seek_at_ns; /* the time of the next look for a listener; 0: none */
	uint32_t n_refusals; /* owed by no id */
	bool machine;        /* cm_machine_asked() */
	bool explained;      /* a refusal */
	struct nupa_list ids, listeners;
	struct nupa_list waiting;  /* for an answer, by deadline */
	struct nupa_list extended; /* likewise, after an MRA; and remnants */
	struct nupa_list timewait; /* likewise */
	struct nupa_list left;     /* remnants, oldest first */
	uint32_t n_left;
	struct nupa_list remotes[CM_REMOTES]; /* passive ids by peer and its number */
	struct nupa_list numbers[CM_REMOTES]; /* ids by their numbers in datagrams */
	struct nupa_list owed;                /* struct cm_owed */
	uint64_t
	    owing[(NUPA_SLOTS_MAX + 63) / 64]; /* a bit for each slot to which a message is owed */
};

/* table.c */
/* Connection management of an attachment, made at first use; NULL: no memory. */
struct nupa_cm *cm_of(struct nupa_engine *engine);
int cm_id_new(struct nupa_engine *engine, struct nupa_cm_id **id);
struct nupa_cm_id *cm_id_find(struct nupa_engine *engine, uint32_t number);
/* No message and no event finds it from now on. */
void cm_unlink_id(struct nupa_cm_id *id);

/* show.c: puts it into a state, and shows it so to those that look on (segment/resource). */
void cm_enter(struct nupa_cm_id *id, enum cm_state state);

/* channel.c: all with the engine's lock. */
void cm_channel_use(struct nupa_cm_channel *channel);
void cm_channel_unuse(struct nupa_cm_channel *channel);
struct nupa_cm_event *cm_event_new(struct nupa_cm_id *id, enum rdma_cm_event_type type, int status);
void cm_event_post(struct nupa_cm_event *event);
void cm_event_report(struct nupa_cm_id *id, enum rdma_cm_event_type type, int status);
/* Takes the waiting events of an id, or of one of its groups, off its channel; returns how many
 * of it were got before. */
uint32_t cm_events_take(struct nupa_cm_id *id, const struct nupa_cm_group *group,
			struct nupa_list *taken);
void cm_events_put(struct nupa_cm_channel *channel, struct nupa_list *events);

/* addr.c */
uint16_t cm_addr_port(const struct sockaddr_storage *addr);
void cm_addr_set_port(struct sockaddr_storage *addr, uint16_t port);
int cm_addr_copy(const struct sockaddr *from, struct sockaddr_storage *to);
/* The kind of address of *host* that it is, or -ENODEV. */
int cm_addr_kind_of(const struct nupa_engine *engine, uint32_t host,
		    const struct sockaddr_storage *addr);
bool cm_addr_is_multicast(const struct sockaddr_storage *addr);
static inline bool cm_addr_is_any(enum cm_addr_kind kind)
{
	return kind == CM_ADDR_ANY4 || kind == CM_ADDR_ANY6;
}
static inline bool cm_addr_is_loopback(enum cm_addr_kind kind)
{
	return kind == CM_ADDR_LOOPBACK4 || kind == CM_ADDR_LOOPBACK6;
}
/* As an id is bound: to each address and to no device, as the kernel's cma_any_addr has it. */
static inline bool cm_addr_is_wildcard(enum cm_addr_kind kind)
{
	return cm_addr_is_any(kind) || cm_addr_is_loopback(kind);
}
/* As a destination: this machine. */
static inline bool cm_addr_is_machine(enum cm_addr_kind kind)
{
	return cm_addr_is_loopback(kind) || kind == CM_ADDR_MACHINE4 || kind == CM_ADDR_MACHINE6;
}
/* The destination of an address: 0 and *host and *kind, or the errno of ADDR_ERROR. */
int cm_addr_resolve(const struct nupa_engine *engine, const struct sockaddr_storage *addr,
		    uint32_t *host, enum cm_addr_kind *kind);
/* The source address of this host for the destination of an id. */
void cm_addr_source_for(const struct nupa_cm_id *id, struct sockaddr_storage *src,
			enum cm_addr_kind *src_kind);
/* Makes a wildcard destination loopback, as sockets do; keeps the port. */
void cm_addr_loopback(struct sockaddr_storage *addr, enum cm_addr_kind *kind);
/* The address of a host that is of a kind; AF_INET6 of CM_ADDR_HOST4 is v4-mapped. */
void cm_addr_of_host(const struct nupa_engine *engine, uint32_t host, sa_family_t family,
		     enum cm_addr_kind kind, struct sockaddr_storage *addr);
void cm_addr_to_wire(const struct sockaddr_storage *addr, uint8_t bytes[16]);
bool cm_addr_from_wire(uint16_t family, const uint8_t bytes[16], uint16_t port,
		       struct sockaddr_storage *addr);
void cm_addr_mgid(const struct nupa_cm_id *id, const struct sockaddr_storage *addr,
		  union ibv_gid *mgid);
uint16_t cm_addr_mlid(const union ibv_gid *mgid);
static inline bool cm_is_ethernet(const struct nupa_engine *engine)
{
	return engine->fabric->hosts[engine->host].link_layer == NUPA_LINK_ETHERNET;
}
/* The GID of a host that goes with an address of this kind, and its index. */
uint8_t cm_addr_gid(const struct nupa_engine *engine, uint32_t host, enum cm_addr_kind kind,
		    union ibv_gid *gid);

/* ports.c and listeners.c */
int cm_port_bind(struct nupa_cm_id *id, uint16_t port); /* 0: any; sets id->src's */
int cm_port_listen(struct nupa_cm_id *id);
void cm_port_release(struct nupa_cm_id *id);
/* The attachment that listens there: its slot, or -ENOENT. */
int cm_port_find(struct nupa_fabric *fabric, uint32_t host, enum rdma_port_space ps, uint16_t port,
		 enum cm_addr_kind kind);
/* How well a listener at *bound* matches a request for *asked*: 0 not at all. */
int cm_port_match(enum cm_addr_kind bound, bool afonly, enum cm_addr_kind asked);

/* machine.c */
/* Whether loopback leads to all hosts of this machine (NUPA_LOOPBACK=machine). */
bool cm_machine_asked(void);
/* The host of a destination that means this machine: ours, or the first that has a listener. */
void cm_machine_choose(struct nupa_cm_id *id);
/* refusal.c: says once on stderr that nobody listens there, and who does elsewhere. */
void cm_explain_refusal(const struct nupa_cm_id *id);
/* The same of a destination in no partition of this host's. */
void cm_explain_partition(const struct nupa_cm_id *id);

/* send.c */
void cm_send(struct nupa_engine *engine, struct nupa_channel *channel, enum cm_message message,
	     uint8_t reason, uint32_t to, uint32_t from, const struct cm_wire *wire);
/* A datagram of no id, to a kernel. */
void cm_send_mad(struct nupa_engine *engine, struct nupa_channel *channel, const uint8_t *mad);
/* Also keeps it for repetitions. */
void cm_send_id(struct nupa_cm_id *id, enum cm_message message, uint8_t reason,
		const struct cm_wire *wire);
/* The same again; nothing, while the last one is still owed. */
void cm_send_again(struct nupa_cm_id *id);
/* The peer is gone: drops the messages owed to it. */
void cm_forget_owed(struct nupa_engine *engine, const struct nupa_channel *channel);
/* Sends what there is room for now. */
void cm_flush_owed(struct nupa_engine *engine);
void cm_wire_of(const struct nupa_cm_id *id, struct cm_wire *wire);

/* connect.c */
void cm_request(struct nupa_cm_id *id);
/* The far side of a wire has no listener, and may have one soon: whether it is asked again. */
bool cm_request_later(struct nupa_cm_id *id);

/* repeat.c */
void cm_remember(struct nupa_cm_id *id);
/* The id that this request made; *psn* NULL: the newest with that number, no remnant. */
struct nupa_cm_id *cm_find_remote(const struct nupa_cm *cm, const struct nupa_channel *channel,
				  uint32_t remote, const uint32_t *psn);
void cm_request_again(struct nupa_cm_id *id, uint8_t message);
void cm_reply_again(struct nupa_cm_id *id);
void cm_answer_unknown(struct nupa_engine *engine, struct nupa_channel *channel,
		       const struct nupa_msg *msg);
/* Of an id that is about to be destroyed; it is off the list of listeners. */
void cm_leave_remnant(struct nupa_cm_id *id);
void cm_free_remnant(struct nupa_cm_id *remnant);

/* wait.c */
void cm_timer_at(struct nupa_engine *engine, uint64_t at_ns);
void cm_timewait(struct nupa_cm_id *id);
/* An MRA came: the answer takes as long as this, in 4.096 us * 2^n. */
void cm_extend(struct nupa_cm_id *id, uint8_t service_timeout);
/* A remnant that only answers. */
void cm_linger(struct nupa_cm_id *remnant);
void cm_wait(struct nupa_cm_id *id, enum cm_state state);
/* For the answer to a repetition. */
void cm_wait_again(struct nupa_cm_id *id);
void cm_stop_waiting(struct nupa_cm_id *id);

/* receive.c: one that is well formed; *wire* NULL: it has none. */
void cm_handle(struct nupa_engine *engine, struct nupa_channel *channel, const struct nupa_msg *msg,
	       const struct cm_wire *wire);

/* wire/: the GIDs of an id's path, and the index of the source's; its path MTU. */
uint8_t cm_id_sgid(const struct nupa_cm_id *id, union ibv_gid *gid);
void cm_id_dgid(const struct nupa_cm_id *id, union ibv_gid *gid);
uint8_t cm_id_mtu(const struct nupa_cm_id *id);
/* Whether packets as large as a request has them pass; both ends use its MTU. */
bool cm_far_mtu_fits(const struct nupa_channel *channel, const struct cm_wire *wire);
/* A remnant has the number of its id. */
void cm_number_keep(struct nupa_cm_id *id);

/* qp.c */
void cm_ah_of(const struct nupa_cm_id *id, struct ibv_ah_attr *ah);
/* Where in the host's P_Key table the path's one is: settled with the route or by the request that
 * came, and before that the first one that both hosts have.  -1: there is none. */
int cm_pkey_index(const struct nupa_cm_id *id);
uint16_t cm_pkey(const struct nupa_cm_id *id);

#endif
