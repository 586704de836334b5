// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * The attachments of a kernel: with a context, and of its network interface.  Hints go to the log.
 */
#include "kernel/host/host.h"
#include "engine/attachment/attachment.h"
#include "engine/net/net_internal.h"

#include <linux/printk.h>

#define SAY(format)                                                                                \
	do {                                                                                       \
		struct va_format said = { .fmt = format };                                         \
		va_list args;                                                                      \
		va_start(args, format);                                                            \
		said.va = &args;                                                                   \
		pr_info_ratelimited("nupa: %pV\n", &said);                                         \
		va_end(args);                                                                      \
	} while (0)

void nupa_hint(const char *format, ...)
{
	SAY(format);
}

void nupa_hint_of(const void *kind, const char *format, ...)
{
	SAY(format);
}

int nupa_unsupported(const char *what)
{
	nupa_hint("%s is not supported", what);
	nupa_errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

struct nupa_fabric *nupa_context_fabric(struct ibv_context *context)
{
	return nupa_engine_of(context)->fabric;
}

struct ibv_context *nupa_kernel_open(struct nupa_fabric *fabric, uint32_t host, char *why,
				     size_t why_bytes)
{
	struct nupa_context *context = calloc(1, sizeof(*context));
	struct nupa_engine *engine = NULL;

	if (context) {
		nupa_registry_lock();
		engine = nupa_engine_get(fabric, (int)host, NUPA_MOVER_RELAY, why, why_bytes);
		nupa_registry_unlock();
	} else {
		snprintf(why, why_bytes, "out of memory");
	}
	if (!engine) {
		free(context);
		return NULL;
	}
	context->engine = engine;
	context->ibv.context.num_comp_vectors = 1;
	pthread_mutex_init(&context->events_mutex, NULL);
	nupa_list_init(&context->events);
	nupa_engine_lock(engine);
	nupa_store_release(&engine->slot->gsi_qpn, NUPA_GSI_NONE);
	nupa_list_add(&engine->contexts, &context->link);
	context->resource = nupa_resource_add(
	    &engine->resources, &(struct nupa_resource_row){ .kind = NUPA_RESOURCE_CTX });
	nupa_engine_unlock(engine);
	return &context->ibv.context;
}

void nupa_kernel_close(struct ibv_context *ibv)
{
	struct nupa_context *context = container_of(ibv, struct nupa_context, ibv.context);
	struct nupa_engine *engine = context->engine;

	if (nupa_load_acquire(&nupa_kernel_halted)) { /* all of it is left */
		nupa_port_stop(engine);
		nupa_kernel_events_flush();
		return;
	}
	nupa_engine_lock(engine);
	nupa_list_del(&context->link);
	context->closed = true;
	nupa_resource_drop(&engine->resources, context->resource, NUPA_RESOURCE_CTX);
	nupa_engine_unlock(engine);
	nupa_kernel_events_flush();
	nupa_registry_lock();
	nupa_engine_put(engine);
	nupa_registry_unlock();
	free(context);
}

void nupa_kernel_net_close(struct nupa_net *net)
{
	struct nupa_engine *engine = net->engine;

	if (!nupa_load_acquire(&nupa_kernel_halted)) {
		nupa_net_close(net);
		return;
	}
	nupa_engine_lock(engine);
	engine->net = NULL;
	nupa_engine_unlock(engine);
	nupa_port_stop(engine);
}
