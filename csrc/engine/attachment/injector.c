/* SPDX-License-Identifier: BSD-3-Clause
 * The attachment of an injector, made and ended. */
#include "engine/attachment/attachment.h"
#include "base/explain.h"
#include "engine/inject/inject_engine.h"

#include <errno.h>
#include <stdlib.h>

struct nupa_injector *nupa_injector_open(struct nupa_fabric *fabric, uint32_t host, char *why,
					 size_t why_bytes)
{
	struct nupa_injector *injector;
	pthread_condattr_t attr;

	if (host >= fabric->geometry.n_hosts) {
		errno = EINVAL;
		nupa_explain(0, why, why_bytes, "host %u asked for, fabric %s has hosts 0 to %u",
			     host, nupa_fabric_name(fabric), fabric->geometry.n_hosts - 1);
		return NULL;
	}
	injector = calloc(1, sizeof(*injector));
	if (!injector) {
		nupa_explain(0, why, why_bytes, "no memory for an injector");
		errno = ENOMEM;
		return NULL;
	}
	injector->engine = nupa_engine_attach(fabric, host, why, why_bytes);
	if (!injector->engine) {
		int error = errno;

		free(injector);
		errno = error;
		return NULL;
	}
	pthread_mutex_init(&injector->turn, NULL);
	pthread_mutex_init(&injector->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&injector->answered, &attr);
	pthread_condattr_destroy(&attr);
	nupa_engine_lock(injector->engine);
	injector->engine->injector = injector;
	nupa_engine_unlock(injector->engine);
	return injector;
}

void nupa_injector_close(struct nupa_injector *injector)
{
	nupa_engine_lock(injector->engine);
	injector->engine->injector = NULL;
	nupa_engine_unlock(injector->engine);
	nupa_engine_detach(injector->engine);
	pthread_cond_destroy(&injector->answered);
	pthread_mutex_destroy(&injector->mutex);
	pthread_mutex_destroy(&injector->turn);
	free(injector);
}
