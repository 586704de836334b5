/* SPDX-License-Identifier: BSD-3-Clause
 * Connection management, the kernel's half of rdma_cm: identifiers, addresses and ports, the CM
 * protocol, events.  The port thread drives it, so that all of it works while no thread of the
 * program runs.  The rdma_ functions (csrc/librdmacm) add rdma-core's part in the program itself.
 *
 * Functions that can fail return 0 or an errno. */
#ifndef NUPA_CM_H
#define NUPA_CM_H

#include "base/list.h"
#include "abi/rdma_abi.h"

#include <stdint.h>

/* The only part of libibverbs.so.1 that librdmacm.so.1 needs beside the verbs (NUPA_PRIVATE_1). */
#pragma GCC visibility push(default)

struct nupa_cm_channel; /* a queue of events; belongs to no device */
struct nupa_cm_id;

#define NUPA_CM_PRIVATE_MAX_BYTES 220u /* IBTA 12.6: of any message */

struct nupa_cm_group { /* a multicast group that an id joined: part of the caller's */
	uint32_t events_got;
};

struct nupa_cm_param { /* of REQ, REP and the events they make */
	uint32_t qpn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint8_t private_bytes;
	uint8_t private_data[NUPA_CM_PRIVATE_MAX_BYTES];
	struct ibv_ece ece;
};

struct nupa_cm_event {
	struct nupa_list link;
	struct nupa_cm_id *id;       /* its receiver; CONNECT_REQUEST: the listener */
	struct nupa_cm_id *child;    /* CONNECT_REQUEST: the new one */
	void *user;                  /* of id, when the event was got */
	struct nupa_cm_group *group; /* MULTICAST_JOIN, MULTICAST_ERROR: as given */
	enum rdma_cm_event_type type;
	int status;
	uint64_t arg;              /* RDMA_CM_EVENT_USER */
	struct nupa_cm_param conn; /* also the private data of datagram services */
	struct ibv_ah_attr ah;     /* ESTABLISHED of a datagram service, MULTICAST_JOIN */
	uint32_t qkey;
};

struct nupa_cm_route { /* the facts that an id knows by now */
	struct sockaddr_storage src, dst;
	union ibv_gid sgid, dgid;
	uint16_t pkey;    /* of the path; 0: the hosts share no partition */
	uint32_t n_paths; /* 1 as soon as the route is resolved */
	bool bound;       /* to the device */
	struct ibv_sa_path_rec path;
};

/* Events.  The fd is readable while one waits; if it is O_NONBLOCK, a call without one fails with
 * EAGAIN. */
int nupa_cm_channel_open(struct nupa_cm_channel **channel);
int nupa_cm_channel_fd(const struct nupa_cm_channel *channel);
/* Closes the fd; a thread that waits for an event, now or later, waits for ever.  Freed when none
 * does. */
void nupa_cm_channel_close(struct nupa_cm_channel *channel);
void nupa_cm_channel_free(struct nupa_cm_channel *channel);
int nupa_cm_get_event(struct nupa_cm_channel *channel, struct nupa_cm_event **event);
void nupa_cm_free_event(struct nupa_cm_event *event);

/* The context outlives its ids.  user comes back in events. */
int nupa_cm_create_id(struct ibv_context *context, struct nupa_cm_channel *channel,
		      enum rdma_port_space ps, enum ibv_qp_type qp_type, void *user,
		      struct nupa_cm_id **id);
/* Ends it, as its state demands; its waiting events are dropped.  Returns how many events of it
 * were got, so that the caller can wait for those.  Each later call fails until it is freed. */
uint32_t nupa_cm_destroy_id(struct nupa_cm_id *id);
void nupa_cm_free_id(struct nupa_cm_id *id);
/* Moves it and its waiting events; *got: as nupa_cm_destroy_id. */
int nupa_cm_migrate_id(struct nupa_cm_id *id, struct nupa_cm_channel *channel, uint32_t *got);
int nupa_cm_set_option(struct nupa_cm_id *id, int level, int name, const void *value, size_t bytes);
void nupa_cm_query(struct nupa_cm_id *id, struct nupa_cm_route *route);
struct ibv_context *nupa_cm_context(const struct nupa_cm_id *id);

int nupa_cm_bind(struct nupa_cm_id *id, const struct sockaddr *addr);
int nupa_cm_resolve_addr(struct nupa_cm_id *id, const struct sockaddr *src,
			 const struct sockaddr *dst);
int nupa_cm_resolve_route(struct nupa_cm_id *id);
int nupa_cm_listen(struct nupa_cm_id *id, int backlog);
int nupa_cm_connect(struct nupa_cm_id *id, const struct nupa_cm_param *param);
/* user: from now on events of an id that a CONNECT_REQUEST brought are delivered. */
int nupa_cm_accept(struct nupa_cm_id *id, void *user, const struct nupa_cm_param *param);
/* The active side has its QP ready: RTU. */
int nupa_cm_ready(struct nupa_cm_id *id);
int nupa_cm_reject(struct nupa_cm_id *id, bool for_ece, const void *data, uint8_t bytes);
int nupa_cm_disconnect(struct nupa_cm_id *id);
int nupa_cm_notify(struct nupa_cm_id *id, enum ibv_event_type event);
/* An event that the program makes for itself. */
int nupa_cm_write_event(struct nupa_cm_id *id, enum rdma_cm_event_type type, int status,
			uint64_t arg);
/* The attributes with which ibv_modify_qp brings the id's QP to attr->qp_state. */
int nupa_cm_init_qp_attr(struct nupa_cm_id *id, struct ibv_qp_attr *attr, int *mask);
/* Maps the group and reports MULTICAST_JOIN, or MULTICAST_ERROR where the host is in no partition;
 * the caller attaches its QP.  *mgid for leaving. */
int nupa_cm_join(struct nupa_cm_id *id, const struct sockaddr *addr, struct nupa_cm_group *group);
/* Drops the event of the join if it was not got yet.  Returns how many of the group were got. */
uint32_t nupa_cm_leave(struct nupa_cm_id *id, struct nupa_cm_group *group);

#pragma GCC visibility pop

#endif
