/* SPDX-License-Identifier: BSD-3-Clause
 * The calls of injection that the engine makes. */
#ifndef NUPA_INJECT_ENGINE_H
#define NUPA_INJECT_ENGINE_H

#include "engine/inject/inject.h"
#include "engine/transport/transport.h"

#include <pthread.h>

struct nupa_injector {
	struct nupa_engine *engine;
	pthread_mutex_t turn;  /* one packet at a time */
	pthread_mutex_t mutex; /* of what follows; the engine's lock comes before it */
	pthread_cond_t answered;
	uint32_t ticket; /* of the packet that a verdict is awaited for */
	uint32_t slot;   /* of the process that gives it; 0: none is awaited */
	struct nupa_inject_result result;
};

/* inject.c, inject_judge.c: a packet that was injected, the verdict on one; false: nonsense. */
bool nupa_inject_receive(struct nupa_engine *engine, struct nupa_channel *channel,
			 const struct nupa_msg *msg, const uint8_t *payload);
bool nupa_inject_verdict(struct nupa_engine *engine, const struct nupa_channel *channel,
			 const struct nupa_msg *msg);
/* A packet that came by the wire of this host, judged as one that was injected; the caller has
 * checked where it came from. */
enum nupa_inject_verdict nupa_inject_by_wire(struct nupa_engine *engine, uint32_t host,
					     const struct nupa_roce_packet *packet,
					     const uint8_t *payload);
/* The verdict on a packet that does not get here: enum nupa_inject_reason. */
void nupa_inject_drop(struct nupa_channel *channel, const struct nupa_msg *msg, uint32_t reason);
void nupa_inject_lose_peer(struct nupa_injector *injector, uint32_t peer);

#endif
