/* SPDX-License-Identifier: BSD-3-Clause
 * Declarations shared by the files of the rdma_ functions: the private parts of programs'
 * structures.  These functions are the user's half of rdma_cm.  They bring QPs through their
 * states, wait where a call is synchronous, and turn events of csrc/engine/cm into those of
 * <rdma/rdma_cma.h>.
 *
 * How each thing here that names another ends; the core's table is in engine/cm/internal.h.
 *
 *   names            of                    ends with
 *   devices          contexts              counted: the last id on one takes it off
 *   groups           groups, of an id      group left, id destroyed: both wait for events that
 *                                          were got
 *   event.owner      id                    counted: destroying the id waits
 *   event.group      group                 counted: leaving the group waits
 *   id.event         event, of a listener  counted for the listener, which waits
 *   id.qp, id.srq    QP, SRQ               rdma_destroy_qp, rdma_destroy_srq: NULL
 *   closed           event channels        CLOSED_KEPT later ones closed: freed */
#ifndef NUPA_RDMA_INTERNAL_H
#define NUPA_RDMA_INTERNAL_H

#include "engine/cm/cm.h"
#include "librdmacm/verbs_calls.h"

#include <pthread.h>

/* Objects shared by the ids on one context: created with the first, destroyed with the last. */
struct rdma_device {
	struct nupa_list link;
	struct ibv_context *verbs;
	struct ibv_pd *pd;     /* the default one */
	struct ibv_xrcd *xrcd; /* likewise; NULL until wanted */
	uint32_t users;
	uint8_t max_initiator_depth, max_responder_resources;
};

struct rdma_channel {
	struct rdma_event_channel channel;
	struct nupa_cm_channel *cm;
};

struct rdma_group { /* a multicast group that was joined */
	struct nupa_cm_group cm;
	struct nupa_list link;
	struct rdma_private *id;
	bool send_only;
	void *context;
	struct sockaddr_storage addr;
	union ibv_gid mgid;
	uint16_t mlid;
	bool attached;
	uint32_t events_done; /* acknowledged, of this group */
};

struct rdma_private {
	struct rdma_cm_id id;
	struct nupa_cm_id *cm;
	struct rdma_device *device; /* NULL until bound */
	bool sync;                  /* has a channel of its own, and waits */
	bool connect_error;
	uint8_t initiator_depth, responder_resources;
	struct ibv_ece local_ece, remote_ece;
	struct ibv_qp_init_attr *qp_init_attr; /* of a passive endpoint: for its children */
	uint8_t *connect;                      /* rdma_addrinfo.ai_connect */
	size_t connect_len;
	struct rdma_addrinfo *addrinfo; /* of rdma_resolve_addrinfo, until it is taken */
	struct ibv_sa_path_rec path;
	struct nupa_list groups;
	pthread_mutex_t mutex; /* guards events_done and groups */
	pthread_cond_t done;
	uint32_t events_done; /* acknowledged */
};

struct rdma_event {
	struct rdma_cm_event event;
	struct rdma_private *owner; /* the id that counts it */
	struct rdma_group *group;
	struct nupa_cm_event *cm; /* holds the private data */
};

static inline struct rdma_private *rdma_private_of(struct rdma_cm_id *id)
{
	return container_of(id, struct rdma_private, id);
}

/* 0, or -1 with errno. */
static inline int rdma_result(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

static inline bool rdma_is_ud(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD;
}

/* device.c */
/* The device of this process, opened once; NULL with errno. */
struct ibv_context *rdma_default_context(void);
struct rdma_device *rdma_device_get(struct ibv_context *verbs);
void rdma_device_put(struct rdma_device *device);
struct ibv_xrcd *rdma_device_xrcd(struct rdma_device *device);

/* event.c */
struct rdma_event_channel *rdma_channel_open(void);
void rdma_release_event(struct rdma_event *event);
void rdma_drop_event(struct rdma_private *id);
void rdma_wait_done(struct rdma_private *id, const uint32_t *done, uint32_t wanted);

/* id.c */
/* An id on a given device, whichever the environment names. */
int rdma_create_id_on(struct ibv_context *verbs, struct rdma_event_channel *channel,
		      struct rdma_cm_id **id, void *context, enum rdma_port_space ps,
		      enum ibv_qp_type qp_type);
struct rdma_private *rdma_private_new(struct rdma_event_channel *channel, void *context,
				      enum rdma_port_space ps, enum ibv_qp_type qp_type);
void rdma_private_free(struct rdma_private *id);
/* Fills in the facts that the core knows by now: addresses, device, path. 0 or an errno. */
int rdma_refresh(struct rdma_private *id);

/* qp.c */
void rdma_qp_to_error(struct rdma_private *id);
int rdma_qp_to_rtr(struct rdma_private *id, uint8_t responder_resources);
int rdma_qp_to_rts(struct rdma_private *id, uint8_t initiator_depth);
int rdma_connection_ready(struct rdma_private *id);

/* group.c */
int rdma_group_joined(struct rdma_group *group, const struct nupa_cm_event *event);
/* It was removed from the list before. */
int rdma_leave_group(struct rdma_private *id, struct rdma_group *group);
void rdma_leave_all(struct rdma_private *id);

/* get_event.c */
/* Synchronous calls: waits for the event and keeps it in the id. */
int rdma_complete(struct rdma_private *id);

#endif
