/* SPDX-License-Identifier: BSD-3-Clause
 * Calls for what the device lacks.  Programs probe by them, and go on without; so they are named
 * only if the process exits with an error. */
#define _GNU_SOURCE
#include "base/hint.h"
#include "engine/core/nupa.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFUSED_MAX 4u /* that are named */

static struct {
	pthread_mutex_t mutex;
	pid_t process; /* that made these calls: a fork's child begins anew */
	bool arranged;
	const char *calls[REFUSED_MAX];
	uint32_t n; /* one more: there were others */
} refused = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void at_exit(int status, void *unused)
{
	char calls[384] = "";
	size_t bytes = 0;

	(void)unused;
	pthread_mutex_lock(&refused.mutex);
	for (uint32_t i = 0; i < refused.n && i < REFUSED_MAX && bytes < sizeof(calls); i++) {
		int n = snprintf(calls + bytes, sizeof(calls) - bytes, "%s%s", i ? ", " : "",
				 refused.calls[i]);

		bytes += n > 0 ? (size_t)n : 0;
	}
	pthread_mutex_unlock(&refused.mutex);
	if (status & 0xff && refused.process == getpid())
		nupa_hint(
		    "this program ends with status %d.  It was refused, with EOPNOTSUPP: %s%s; "
		    "see docs/verbs.md",
		    status & 0xff, calls, refused.n > REFUSED_MAX ? ", ..." : "");
}

/* dlclose has to leave at_exit where it is, since exit calls it. */
static bool arrange(void)
{
	Dl_info own;

	return dladdr(&refused, &own) &&
	       dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) &&
	       on_exit(at_exit, NULL) == 0;
}

int nupa_unsupported(const char *call)
{
	bool known = false;

	pthread_mutex_lock(&refused.mutex);
	if (refused.process != getpid()) {
		refused.process = getpid();
		refused.n = 0;
	}
	refused.arranged = refused.arranged || arrange();
	for (uint32_t i = 0; i < refused.n && i < REFUSED_MAX; i++)
		known |= strcmp(refused.calls[i], call) == 0;
	if (!known && refused.n < REFUSED_MAX)
		refused.calls[refused.n] = call;
	refused.n += !known && refused.n <= REFUSED_MAX;
	pthread_mutex_unlock(&refused.mutex);
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}
