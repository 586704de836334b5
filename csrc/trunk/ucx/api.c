/* SPDX-License-Identifier: BSD-3-Clause
 * Loads UCX and finds its functions. */
#include "trunk/ucx/api.h"

#include "base/explain.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#define DEFAULT_LIBRARY "libucp.so.0"

struct symbol {
	const char *name;
	size_t at; /* in struct nupa_ucx_api */
};

#define UCX(name)                                                                                  \
	{                                                                                          \
#name, offsetof(struct nupa_ucx_api, name)                                         \
	}

static const struct symbol symbols[] = {
	UCX(ucp_get_version),    UCX(ucp_config_read),     UCX(ucp_config_modify),
	UCX(ucp_config_release), UCX(ucp_init_version),    UCX(ucp_cleanup),
	UCX(ucp_worker_create),  UCX(ucp_worker_destroy),  UCX(ucp_worker_progress),
	UCX(ucp_worker_get_efd), UCX(ucp_worker_arm),      UCX(ucp_listener_create),
	UCX(ucp_listener_query), UCX(ucp_listener_reject), UCX(ucp_listener_destroy),
	UCX(ucp_ep_create),      UCX(ucp_ep_close_nbx),    UCX(ucp_tag_send_nbx),
	UCX(ucp_tag_recv_nbx),   UCX(ucp_mem_map),         UCX(ucp_mem_unmap),
	UCX(ucp_rkey_pack),      UCX(ucp_ep_rkey_unpack),  UCX(ucp_rkey_buffer_release),
	UCX(ucp_rkey_destroy),   UCX(ucp_put_nbx),         UCX(ucp_ep_flush_nbx),
	UCX(ucp_request_cancel), UCX(ucp_request_free),    UCX(ucp_request_check_status),
	UCX(ucs_status_string),
};

static int find_symbols(struct nupa_ucx_api *api, const char *library, char *why, size_t why_bytes)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		/* libucs is one that libucp needs: dlsym(3) searches those, too. */
		void *found = dlsym(api->ucp, symbols[i].name);

		if (!found)
			return nupa_explain(-ELIBBAD, why, why_bytes,
					    "%s has no %s: the trunk needs UCX 1.11 or later",
					    library, symbols[i].name);
		*(void **)(void *)((uint8_t *)api + symbols[i].at) = found;
	}
	return 0;
}

int nupa_ucx_load(struct nupa_ucx_api *api, const char *library, char *why, size_t why_bytes)
{
	unsigned int major, minor, release;
	int rc;

	if (!library || !*library)
		library = DEFAULT_LIBRARY;
	/* UCX would print its own report of a crash, and end a debugger's turn. */
	setenv("UCX_HANDLE_ERRORS", "none", 0);
	/* It would warn of messages that nobody takes any more when a connection ends. */
	setenv("UCX_LOG_LEVEL", "error", 0);
	api->ucp = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!api->ucp)
		return nupa_explain(-ENOENT, why, why_bytes,
				    "cannot load UCX: %s; install libucx0, or name its libucp.so.0",
				    dlerror());
	rc = find_symbols(api, library, why, why_bytes);
	if (rc)
		return rc;
	api->ucp_get_version(&major, &minor, &release);
	if (major != NUPA_UCP_API_MAJOR || minor < NUPA_UCP_API_MINOR)
		return nupa_explain(-ELIBBAD, why, why_bytes,
				    "%s is UCX %u.%u.%u: the trunk needs 1.%u or a later 1.x",
				    library, major, minor, release, NUPA_UCP_API_MINOR);
	return 0;
}
