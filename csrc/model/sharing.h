/* SPDX-License-Identifier: BSD-3-Clause
 * What flows.c and sharing.c share: the classes that have flows, and their rates.
 *
 * I1  users[user_start[r] .. + user_count[r]) are the uses of resource r by classes with flows;
 *     place[u] is where use u is in it, and use_class[u] whose it is.
 * I2  a class with flows has one entry in the queue of ends, at queue_place. */
#ifndef NUPA_MODEL_SHARING_H
#define NUPA_MODEL_SHARING_H

#include "model/flows.h"

#include <stdbool.h>
#include <stddef.h>

#define FLOW_NONE UINT32_MAX

struct flow_mark {
	double bytes;
	uint32_t operation;
};

struct flow_class {
	double sent, rate, at_ns, end_ns;
	uint32_t flows, marks; /* marks: a heap in `mark` from mark_start */
	uint32_t mark_start, bound, queue_place, seen;
};

struct flow_resource {
	double free, weight;
	uint32_t waiting, seen;
};

struct sharing {
	const struct nupa_model_flow_work *work;
	struct flow_class *class;
	struct flow_mark *mark;
	struct flow_resource *resource;
	uint32_t *user_start, *user_count, *users, *place, *use_class;
	uint32_t *queue, queued;   /* classes with flows, a heap by end_ns */
	uint32_t *group, *reached; /* scratch: classes, resources of one solution */
	uint32_t *level_id;        /* scratch: a heap of resources, and of classes by limit */
	double *level;
	uint32_t seen;
	double received_bytes;
};

bool sharing_init(struct sharing *sharing, const struct nupa_model_flow_work *work);
void sharing_free(struct sharing *sharing);

/* Counts what a class's flows were sent since it was last called. */
void sharing_advance(struct sharing *sharing, uint32_t class, double now_ns);
void sharing_join(struct sharing *sharing, uint32_t class);  /* its first flow begins */
void sharing_leave(struct sharing *sharing, uint32_t class); /* its last flow has ended */

/* Computes the rates of all classes that share links with these, near or far. */
void sharing_solve(struct sharing *sharing, const uint32_t *changed, uint32_t count, double now_ns);

void sharing_queue_fix(struct sharing *sharing, uint32_t class);
#endif
