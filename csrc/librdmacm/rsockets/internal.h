/* SPDX-License-Identifier: BSD-3-Clause
 * An rsocket from inside.  docs/design.md, "Sockets", gives the reasons.
 *
 * A stream is two rings, one for each direction, in the receiver's memory.  The sender moves long
 * pieces there by RDMA WRITE with immediate.  Short ones travel in a SEND, and the receiver copies
 * them to the place of such a WRITE.  The immediate carries the facts of a receive beyond
 * its bytes (wire.h).
 *
 *  I1  Only the sender moves tx.ring_at; it has a credit for each byte and each receive it uses,
 *      so a WRITE finds room in the ring, and a SEND a receive.
 *  I2  rx.arrived and the flags that end a stream are stored in the order of arrival: a thread that
 *      sees the end, and looks again, sees every byte before it.
 *  I3  A waiter links itself before it reads the state; a thread that changes the state reads the
 *      waiters afterwards, both under `progress` or `waiters_lock`.  No wake-up is lost.
 *
 * Order of locks: control, tx.lock or rx.lock, progress, waiters_lock. */
#ifndef NUPA_RS_H
#define NUPA_RS_H

#include "base/atomics.h"
#include "base/list.h"
#include "abi/rdma_abi.h"
#include "abi/rsocket_abi.h"
#include "librdmacm/rsockets/wire.h"
#include "librdmacm/rsockets/verbs.h"

#include <pthread.h>

#define RS_NS_PER_MS INT64_C(1000000)
#define RS_FOREVER INT64_MAX

/* Work requests beyond the data's: credits, shutdown, mappings (RS_CONTROL_MAX of them at once). */
#define RS_CONTROL_MAX 12

enum rs_state {
	RS_INIT,      /* neither connected nor listening; bound or not */
	RS_ADDRESS,   /* connecting: resolving the address */
	RS_ROUTE,     /* connecting: resolving the route */
	RS_REQUESTED, /* connecting: waiting for the answer */
	RS_ACCEPTED,  /* accepted; the peer has not been heard of since: may receive */
	RS_CONNECTED,
	RS_LISTENING,
};

struct rs_options {
	int rcvbuf, sndbuf;
	int sq_size, rq_size;
	int inline_bytes;
	int iomap_size;
	int reuse_address, reuse_port, keepalive, oob_inline, broadcast;
	int v6_only, nodelay, tos, max_segment;
	int keep_idle, keep_interval, keep_count;
	struct linger linger;
	int64_t receive_ns, send_ns; /* RS_FOREVER: no timeout */
	void *route;                 /* struct ibv_path_data[] */
	socklen_t route_bytes;
};

struct rs_tx {
	pthread_mutex_t lock;
	uint8_t *buffer; /* data being sent that was not sent inline: a ring */
	uint32_t bytes;
	uint32_t lkey;
	uint64_t head;   /* bytes put into it */
	uint64_t tail;   /* and released by completions */
	int32_t wr_free; /* of the data's work requests */
	int32_t slots;   /* receives that the peer has for us (I1) */
	int32_t slots_max;
	int64_t credit; /* bytes free in its ring (I1) */
	uint64_t ring_addr;
	uint32_t ring_bytes, ring_at, ring_rkey;
	uint32_t short_bytes; /* pieces up to this size go by SEND */
	uint32_t inline_bytes;
	uint32_t silent_wrs, silent_bytes; /* posted since the last signaled one */
	uint32_t silent_wrs_max;
};

struct rs_rx {
	pthread_mutex_t lock;
	uint8_t *ring;
	uint32_t bytes;
	uint64_t taken;      /* bytes that the program has */
	uint64_t arrived;    /* bytes that are in the ring or were (I2) */
	uint32_t unreported; /* taken and not given back as credit */
	uint8_t *slots;      /* the target of SENDs */
	uint32_t n_slots, slot_bytes, slots_lkey;
	uint32_t *idle; /* slots to post again */
	uint32_t n_idle;
	uint32_t data_slots;       /* of those, the ones that cost the peer a credit */
	uint32_t slots_unreported; /* posted again and not given back as credit */
	struct ibv_recv_wr *wrs;
	struct ibv_sge *sges;
};

struct rs_iomap {
	struct nupa_list link;
	void *addr;
	size_t bytes;
	struct ibv_mr *mr;
	int index; /* in the peer's table; -1: local only */
};

struct rs_io {
	struct rs_wire_mapping *table; /* the peer's mappings, which it writes */
	uint32_t entries;
	struct nupa_list mapped; /* ours: struct rs_iomap, under tx.lock */
	uint64_t peer_addr;      /* of the peer's table */
	uint32_t peer_entries, peer_rkey;
};

struct rsocket;
struct rs_datagrams;

/* Steps of datagrams that differ from those of a stream. */
struct rs_datagram_ops {
	int (*drain)(struct rsocket *rs); /* completions; under `progress` */
	int (*bound)(struct rsocket *rs); /* it has a port now */
	void (*destroy)(struct rsocket *rs);
};

struct rsocket {
	int refs; /* the first, and never cleared: table.c */
	int fd;   /* an epoll of all that can wake this socket; the program's name for it */
	uint32_t generation; /* of the process: see table.c */
	uint32_t serial;
	int domain, type, protocol;
	int nonblocking;
	int state; /* enum rs_state */
	int error; /* for SO_ERROR */
	struct rs_options options;

	/* How a connection ended, each stored once. */
	int read_shut, write_shut; /* by us */
	int peer_shut;             /* by the peer, in order behind its data */
	int peer_gone;             /* disconnected: no data sent is received any more */
	int broken;                /* without a word */
	int end_posted, end_sent;  /* our own shutdown, and that all before it has arrived */
	int closing, closed;       /* rclose was called; no look-up finds it any more */

	pthread_mutex_t control;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct sockaddr_storage bound;
	int is_bound;

	pthread_mutex_t progress; /* the CQ and what its completions change */
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int armed;
	int32_t control_free;
	struct rs_tx tx;
	struct rs_rx rx;
	struct rs_io io;
	void *memory;
	size_t memory_bytes;
	struct ibv_mr *ring_mr, *local_mr;

	pthread_mutex_t waiters_lock;
	struct nupa_list waiters;
	int n_waiters;

	/* listening */
	void (*serve)(struct rsocket *rs); /* service.c */
	int served_fd;
	int finished;                   /* the work after close is over */
	int backlog, queued, accept_fd; /* a semaphore: connections to take */
	struct nupa_list queue;         /* of rsocket.queue_link, under control */
	struct nupa_list queue_link;

	struct rs_datagrams *datagrams; /* NULL: a stream */
	const struct rs_datagram_ops *datagram_ops;
	void (*destroy_transport)(struct rsocket *rs); /* set with the first of its objects */
	struct nupa_list live_link;                    /* all of this process: table.c */
};

/* Pieces of the program's memory, and the position in them. */
struct rs_pieces {
	const struct iovec *iov;
	int n, at;
	size_t offset;
	size_t left;
};

struct rs_waiter {
	struct nupa_list link;
	int wake_fd;
};

struct rs_defaults {
	int rcvbuf, sndbuf, sq_size, rq_size, inline_bytes, iomap_size;
	int64_t spin_ns;    /* before sleeping */
	int wake_up_max_ms; /* at most this long in one poll */
};

/* config.c */
const struct rs_defaults *rs_defaults(void);

/* table.c: fds to sockets.  rs_get: NULL with errno EBADF or ENOTSOCK. */
struct rsocket *rs_new(int domain, int type, int protocol);
struct rsocket *rs_get(int fd);
struct rsocket *rs_get_quietly(int fd);
void rs_put(struct rsocket *rs);
void rs_hide(struct rsocket *rs);
bool rs_is_inherited(const struct rsocket *rs);
int rs_watch(struct rsocket *rs, int fd);
void rs_unwatch(struct rsocket *rs, int fd);
int rs_epoll_new(void);
bool rs_fd_readable(int fd);
struct nupa_list *rs_lock_live(void);
void rs_unlock_live(void);

/* memory.c: queue, rings and slots of a connection. */
int rs_create_transport(struct rsocket *rs, struct rdma_cm_id *id);
void rs_destroy_transport(struct rsocket *rs);
void rs_say_hello(const struct rsocket *rs, struct rs_wire_hello *hello);
int rs_hear_hello(struct rsocket *rs, const void *data, size_t bytes);

/* connection.c: the connection manager's events. */
int rs_new_id(struct rsocket *rs);
int rs_apply_id_options(struct rsocket *rs);
int rs_start_connect(struct rsocket *rs, const struct sockaddr *addr);
void rs_take_cm_events(struct rsocket *rs);
/* rs->fd is readable. */
void rs_take_events(struct rsocket *rs);
struct rsocket *rs_accept_request(struct rsocket *listener, struct rdma_cm_event *event);

/* address.c.  Binding is under `control`. */
int rs_bind(struct rsocket *rs, const struct sockaddr *addr, socklen_t bytes);
int rs_bind_anywhere(struct rsocket *rs);
socklen_t rs_address_bytes(int family);
bool rs_is_address(const struct rsocket *rs, const struct sockaddr *addr, socklen_t bytes);
void rs_put_address(const struct sockaddr *from, int family, struct sockaddr *addr,
		    socklen_t *bytes);

/* service.c: the thread that works while the program does not call. */
int rs_serve(struct rsocket *rs, int fd, void (*serve)(struct rsocket *rs));
void rs_serve_pause(struct rsocket *rs, bool pause);
void rs_unserve(struct rsocket *rs);

/* listen.c */
int rs_start_listening(struct rsocket *rs, int backlog);
struct rsocket *rs_next_connection(struct rsocket *rs);

/* progress.c: completions. */
void rs_progress(struct rsocket *rs);
void rs_arm(struct rsocket *rs);
void rs_break(struct rsocket *rs, int error);
enum rs_wr { RS_WR_DATA, RS_WR_CONTROL, RS_WR_END, RS_WR_RECEIVE };
uint64_t rs_wr_id(enum rs_wr kind, uint64_t bytes, uint32_t wrs);
int rs_post_idle(struct rsocket *rs);
bool rs_post_control(struct rsocket *rs, uint32_t kind, uint32_t value, enum rs_wr wr);

/* notify.c: threads that sleep until the state changes, and time. */
void rs_notify(struct rsocket *rs);
int rs_wake_fd(void);
void rs_wake_clear(int wake_fd);
void rs_waiter_link(struct rsocket *rs, struct rs_waiter *waiter);
void rs_waiter_unlink(struct rsocket *rs, struct rs_waiter *waiter);
int64_t rs_now_ns(void);
int64_t rs_deadline(int64_t timeout_ns);
int rs_poll_ms(int64_t deadline_ns, int most_ms);

/* calls/epoll.c */
/* Whether the number was that of a set, which is closed now. */
bool rs_repoll_close(int fd);

/* wait.c */
int rs_wait(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int64_t deadline_ns);
int rs_wait_closed(struct rsocket *rs, bool (*ready)(struct rsocket *rs), int64_t deadline_ns);

/* send.c, receive.c */
ssize_t rs_stream_send(struct rsocket *rs, struct rs_pieces *from, int flags);
ssize_t rs_stream_receive(struct rsocket *rs, struct rs_pieces *to, int flags);
bool rs_can_read(struct rsocket *rs);
bool rs_can_write(struct rsocket *rs);
int rs_take_error(struct rsocket *rs);
void rs_copy_out(struct rs_pieces *from, void *to, size_t bytes);
void rs_copy_in(struct rs_pieces *to, const void *from, size_t bytes);
uint8_t *rs_stage(struct rsocket *rs, uint32_t *bytes);
int rs_post_data(struct rsocket *rs, struct ibv_send_wr *wr, uint32_t staged);

#define RS_ERROR(code) (errno = (code), -1)

#endif
