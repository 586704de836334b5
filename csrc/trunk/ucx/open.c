/* SPDX-License-Identifier: BSD-3-Clause
 * Begins with UCX: its configuration, a worker, a listener. */
#include "base/explain.h"
#include "trunk/ucx/internal.h"
#include "trunk/ucx/ucx.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_address(const struct nupa_trunk_address *from, struct sockaddr_storage *to,
			 char *why, size_t why_bytes)
{
	struct sockaddr_in *four = (struct sockaddr_in *)(void *)to;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)to;

	memset(to, 0, sizeof(*to));
	if (!memchr(from->address, 0, sizeof(from->address)) || from->port > 65535)
		return nupa_explain(-EINVAL, why, why_bytes, "port %u: choose 0 to 65535",
				    from->port);
	if (inet_pton(AF_INET, from->address, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons((uint16_t)from->port);
		return 0;
	}
	if (inet_pton(AF_INET6, from->address, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons((uint16_t)from->port);
		return 0;
	}
	return nupa_explain(-EINVAL, why, why_bytes, "'%s' is no address of IPv4 or IPv6",
			    from->address);
}

static int say(struct ucx *ucx, nupa_ucs_status status, const char *what, char *why,
	       size_t why_bytes)
{
	return nupa_explain(-EIO, why, why_bytes, "UCX %s: %s: %s", ucx->name, what,
			    ucx->api.ucs_status_string(status));
}

/* Variables are the user's. */
static void prefer(const struct ucx *ucx, void *config, const char *name, const char *value)
{
	char variable[64];

	snprintf(variable, sizeof(variable), "UCX_%s", name);
	if (!getenv(variable))
		(void)ucx->api.ucp_config_modify(config, name, value);
}

/* Two machines do not meet if UCX numbers their devices differently.  Before 1.16 it follows
 * readdir(3), which differs among machines, and later their names.  Hence a connection by TCP has
 * several devices only where they are named, else that of its address. */
static void choose_devices(struct ucx *ucx, void *config)
{
	const char *names = getenv("UCX_NET_DEVICES"), *transports = getenv("UCX_TLS");
	unsigned int major, minor, release, devices = 1;
	char rails[16];

	for (; names && *names; names++)
		devices += *names == ',';
	ucx->api.ucp_get_version(&major, &minor, &release);
	if (major == 1 && minor < 16)
		devices = 1;
	ucx->by_tcp = !transports || strcmp(transports, "tcp") == 0;
	if (ucx->by_tcp)
		prefer(ucx, config, "CM_USE_ALL_DEVICES", devices > 1 ? "y" : "n");
	if (devices == 1)
		return;
	snprintf(rails, sizeof(rails), "%u", devices);
	prefer(ucx, config, "MAX_EAGER_RAILS", rails);
	prefer(ucx, config, "MAX_RNDV_RAILS", rails);
	prefer(ucx, config, "MAX_RMA_RAILS", rails);
}

static int make_context(struct ucx *ucx, char *why, size_t why_bytes)
{
	const struct nupa_ucp_params params = {
		.field_mask = NUPA_UCP_PARAM_FEATURES | NUPA_UCP_PARAM_ESTIMATED_EPS,
		.features = NUPA_UCP_FEATURE_TAG | NUPA_UCP_FEATURE_RMA | NUPA_UCP_FEATURE_WAKEUP,
		.estimated_num_eps = ucx->machines,
	};
	nupa_ucs_status status;
	void *config;

	status = ucx->api.ucp_config_read(NULL, NULL, &config);
	if (status != NUPA_UCS_OK)
		return say(ucx, status, "its configuration cannot be read", why, why_bytes);
	prefer(ucx, config, "TLS", "tcp");
	choose_devices(ucx, config);
	status = ucx->api.ucp_init_version(NUPA_UCP_API_MAJOR, NUPA_UCP_API_MINOR, &params, config,
					   &ucx->context);
	ucx->api.ucp_config_release(config);
	if (status != NUPA_UCS_OK)
		return say(ucx, status, "no transport can be used (see UCX_TLS, UCX_NET_DEVICES)",
			   why, why_bytes);
	return 0;
}

/* The trunk's own traffic must not go through the fabric that it serves. */
static int check_libraries(char *why, size_t why_bytes)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOLOAD | RTLD_LAZY);
	Dl_info info = { 0 };
	void *ours;

	if (!verbs)
		return 0;
	ours = dlsym(verbs, "nupa_cm_create_id");
	dlclose(verbs);
	if (!ours)
		return 0;
	(void)dladdr(ours, &info);
	return nupa_explain(-ELIBBAD, why, why_bytes,
			    "UCX has loaded %s, a library of NUPA: start the trunk without "
			    "LD_LIBRARY_PATH and LD_PRELOAD",
			    info.dli_fname ? info.dli_fname : "libibverbs.so.1");
}

static int make_worker(struct ucx *ucx, char *why, size_t why_bytes)
{
	const struct nupa_ucp_worker_params params = { 0 };
	nupa_ucs_status status = ucx->api.ucp_worker_create(ucx->context, &params, &ucx->worker);

	if (status == NUPA_UCS_OK)
		status = ucx->api.ucp_worker_get_efd(ucx->worker, &ucx->fd);
	return status == NUPA_UCS_OK ? 0 : say(ucx, status, "no worker", why, why_bytes);
}

static int listen_at(struct ucx *ucx, const struct nupa_trunk_address *where, char *why,
		     size_t why_bytes)
{
	struct nupa_ucp_listener_attr attr = { .field_mask = NUPA_UCP_LISTENER_ATTR_SOCKADDR };
	struct nupa_ucp_listener_params params = {
		.field_mask = NUPA_UCP_LISTENER_SOCK_ADDR | NUPA_UCP_LISTENER_CONN_HANDLER,
		.conn_handler = { ucx_link_requested, ucx },
	};
	struct sockaddr_storage address;
	nupa_ucs_status status;
	int rc = parse_address(where, &address, why, why_bytes);

	if (rc)
		return rc;
	params.sockaddr.addr = (struct sockaddr *)&address;
	params.sockaddr.addrlen = address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
								: sizeof(struct sockaddr_in);
	status = ucx->api.ucp_listener_create(ucx->worker, &params, &ucx->listener);
	if (status != NUPA_UCS_OK) {
		ucx->listener = NULL;
		return nupa_explain(-EADDRINUSE, why, why_bytes,
				    "cannot listen at %s port %u: %s: choose another port, or an "
				    "address of this machine",
				    where->address, where->port,
				    ucx->api.ucs_status_string(status));
	}
	if (ucx->api.ucp_listener_query(ucx->listener, &attr) == NUPA_UCS_OK)
		ucx->port = ntohs(attr.sockaddr.ss_family == AF_INET6
				      ? ((struct sockaddr_in6 *)(void *)&attr.sockaddr)->sin6_port
				      : ((struct sockaddr_in *)(void *)&attr.sockaddr)->sin_port);
	return 0;
}

static int take_addresses(struct ucx *ucx, const struct nupa_trunk_config *config, char *why,
			  size_t why_bytes)
{
	int rc = 0;

	ucx->addresses = calloc(ucx->machines, sizeof(ucx->addresses[0]));
	if (!ucx->addresses)
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	for (uint32_t i = 0; i < ucx->machines && !rc; i++)
		if (i != ucx->machine)
			rc =
			    parse_address(&config->machines[i], &ucx->addresses[i], why, why_bytes);
	return rc;
}

static void name_it(struct ucx *ucx)
{
	unsigned int major, minor, release;
	Dl_info info = { 0 };
	void *symbol;

	memcpy(&symbol, &ucx->api.ucp_get_version, sizeof(symbol));
	ucx->api.ucp_get_version(&major, &minor, &release);
	(void)dladdr(symbol, &info);
	snprintf(ucx->name, sizeof(ucx->name), "%u.%u.%u %s", major, minor, release,
		 info.dli_fname ? info.dli_fname : "");
}

int nupa_ucx_open(uint32_t machine, const struct nupa_trunk_config *config,
		  struct nupa_carrier **out, char *why, size_t why_bytes)
{
	struct ucx *ucx = calloc(1, sizeof(*ucx));
	int rc;

	if (!ucx)
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	ucx->carrier.ops = &ucx_ops;
	ucx->machine = machine;
	ucx->machines = config->n_machines;
	ucx->returned_end = &ucx->returned;
	rc = nupa_ucx_load(&ucx->api, config->library, why, why_bytes);
	if (!rc) {
		name_it(ucx);
		rc = take_addresses(ucx, config, why, why_bytes);
	}
	if (!rc)
		rc = make_context(ucx, why, why_bytes);
	if (!rc)
		rc = check_libraries(why, why_bytes);
	if (!rc)
		rc = make_worker(ucx, why, why_bytes);
	if (!rc)
		rc = listen_at(ucx, &config->listen, why, why_bytes);
	if (rc) {
		ucx_free(&ucx->carrier);
		return rc;
	}
	*out = &ucx->carrier;
	return 0;
}
