/* SPDX-License-Identifier: BSD-3-Clause
 * Contexts: devices that the program has opened, each on an attachment of this process. */
#include "base/explain.h"
#include "engine/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

static void close_fds(const struct nupa_context *context)
{
	if (context->ibv.context.cmd_fd >= 0)
		close(context->ibv.context.cmd_fd);
	if (context->ibv.context.async_fd >= 0)
		close(context->ibv.context.async_fd);
}

/* The descriptors of a context: 0, or -errno and the call that failed. */
static int open_fds(struct nupa_context *context, const char **call)
{
	struct ibv_context *ibv = &context->ibv.context;
	int error = 0;

	ibv->async_fd = -1;
	ibv->cmd_fd = nupa_context_cmd_fd(context->engine, call);
	if (ibv->cmd_fd < 0) {
		error = ibv->cmd_fd;
	} else {
		*call = "eventfd";
		ibv->async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
		error = ibv->async_fd < 0 ? -errno : 0;
	}
	if (error)
		close_fds(context);
	return error;
}

static struct nupa_context *context_new(struct nupa_engine *engine, char *why, size_t why_bytes)
{
	struct nupa_context *context = calloc(1, sizeof(*context));
	const char *call = "calloc";
	int error = -ENOMEM;

	if (context) {
		context->engine = engine;
		error = open_fds(context, &call);
	}
	if (error) {
		free(context);
		nupa_explain(error, why, why_bytes, "cannot open the device: %s: %s%s", call,
			     strerror(-error), nupa_remedy(-error));
		errno = -error;
		return NULL;
	}
	nupa_fill_ops(&context->ibv);
	context->ibv.context.num_comp_vectors = 1;
	pthread_mutex_init(&context->ibv.context.mutex, NULL);
	pthread_mutex_init(&context->events_mutex, NULL);
	pthread_cond_init(&context->events_acked, NULL);
	nupa_list_init(&context->events);
	nupa_engine_lock(engine);
	nupa_list_add(&engine->contexts, &context->link);
	context->resource = nupa_resource_add(
	    &engine->resources, &(struct nupa_resource_row){ .kind = NUPA_RESOURCE_CTX });
	nupa_engine_unlock(engine);
	return context;
}

struct ibv_context *nupa_open_host(struct nupa_fabric *fabric, int host, enum nupa_mover mover,
				   char *why, size_t why_bytes)
{
	struct nupa_engine *engine;
	struct nupa_context *context = NULL;

	if (host >= (int)fabric->geometry.n_hosts) {
		snprintf(why, why_bytes, "host %d asked for, fabric %s has hosts 0 to %u", host,
			 nupa_fabric_name(fabric), fabric->geometry.n_hosts - 1);
		errno = EINVAL;
		return NULL;
	}
	nupa_fork_prepare();
	nupa_guard_install();
	nupa_registry_lock();
	engine = nupa_engine_get(fabric, host, mover, why, why_bytes);
	if (engine) {
		context = context_new(engine, why, why_bytes);
		if (!context) {
			int error = errno;

			nupa_engine_put(engine);
			errno = error;
		}
	}
	nupa_registry_unlock();
	return context ? &context->ibv.context : NULL;
}

/* Whether objects of the context are left, which the engine may come back to. */
static bool context_is_used(const struct nupa_engine *engine, const struct ibv_context *context)
{
	for (struct nupa_list *at = engine->pds.next; at != &engine->pds; at = at->next)
		if (container_of(at, struct nupa_pd, link)->ibv.context == context)
			return true;
	for (struct nupa_list *at = engine->cqs.next; at != &engine->cqs; at = at->next)
		if (container_of(at, struct nupa_cq, link)->ibv.context == context)
			return true;
	for (uint32_t i = 0; i < engine->qp_limit; i++)
		if (engine->qps[i] && engine->qps[i]->ibv.context == context)
			return true;
	return false;
}

/* A context with objects left is kept for as long as the attachment: they go on, without events. */
int nupa_close_device(struct ibv_context *ibv)
{
	struct nupa_context *context = container_of(ibv, struct nupa_context, ibv.context);
	struct nupa_engine *engine = context->engine;
	bool used;

	nupa_registry_lock();
	nupa_engine_lock(engine);
	nupa_list_del(&context->link);
	nupa_resource_drop(&engine->resources, context->resource, NUPA_RESOURCE_CTX);
	for (struct nupa_list *link; (link = nupa_list_pop(&context->events));)
		free(container_of(link, struct nupa_event, link));
	used = context_is_used(engine, ibv);
	if (used) {
		context->closed = true;
		nupa_list_add(&engine->closed, &context->link);
	}
	nupa_engine_unlock(engine);
	close_fds(context);
	nupa_engine_put(engine);
	nupa_registry_unlock();
	if (!used)
		nupa_context_free(context);
	return 0;
}

int nupa_context_host(struct ibv_context *context)
{
	return (int)nupa_engine_of(context)->host;
}

int nupa_context_slot(struct ibv_context *context)
{
	return (int)nupa_engine_of(context)->slot_index;
}

struct nupa_fabric *nupa_context_fabric(struct ibv_context *context)
{
	return nupa_engine_of(context)->fabric;
}
