/* SPDX-License-Identifier: BSD-3-Clause
 * The devices of a program started by `nupa run`: one, of the fabric and host that the environment
 * names. */
#define _GNU_SOURCE
#include "base/explain.h"
#include "engine/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>

static int find_host(const struct nupa_fabric *fabric, const char *name)
{
	int host = nupa_host_of_name(fabric, name);

	if (host < 0)
		nupa_hint("NUPA_HOST=%s: fabric %s has no such host; see `nupa show`", name,
			  nupa_fabric_name(fabric));
	return host;
}

static int find_mover(const char *name)
{
	static const char *const names[] = {
		[NUPA_MOVER_NONE] = "",     [NUPA_MOVER_LOCAL] = "local",
		[NUPA_MOVER_POOL] = "pool", [NUPA_MOVER_SHARED] = "shared",
		[NUPA_MOVER_CMA] = "cma",   [NUPA_MOVER_RELAY] = "relay",
	};

	for (int mover = 0; mover < (int)(sizeof(names) / sizeof(names[0])); mover++)
		if (!strcmp(names[mover], name))
			return mover;
	nupa_hint("NUPA_MOVER=%s: one of local, pool, shared, cma, relay, or unset", name);
	return -EINVAL;
}

static void set_env(struct nupa_fabric *fabric, uint32_t host)
{
	nupa_named_device.host = host;
	nupa_named_device.device.node_type = IBV_NODE_CA;
	nupa_named_device.device.transport_type = IBV_TRANSPORT_IB;
	snprintf(nupa_named_device.device.name, sizeof(nupa_named_device.device.name),
		 "nupa_rdma0");
	snprintf(nupa_named_device.device.dev_name, sizeof(nupa_named_device.device.dev_name),
		 "uverbs0");
	snprintf(nupa_named_device.device.dev_path, sizeof(nupa_named_device.device.dev_path),
		 "/sys/class/infiniband_verbs/uverbs0");
	snprintf(nupa_named_device.device.ibdev_path, sizeof(nupa_named_device.device.ibdev_path),
		 "/sys/class/infiniband/nupa_rdma0");
	nupa_named_device.fabric = fabric;
}

/* Opens the fabric at first use; 0 or -errno.  *present says whether there is one at all. */
static int open_env(bool *present)
{
	const char *path = getenv("NUPA_FABRIC");
	const char *host = getenv("NUPA_HOST");
	const char *mover = getenv("NUPA_MOVER");
	struct nupa_fabric *fabric;
	char why[512];
	int error, found;

	*present = nupa_named_device.fabric || (path && *path);
	if (nupa_named_device.fabric || !*present)
		return 0;
	found = find_mover(mover ? mover : "");
	if (found < 0)
		return found;
	nupa_named_device.mover = (enum nupa_mover)found;
	error = nupa_fabric_open(path, &fabric, why, sizeof(why));
	if (error) {
		nupa_hint("%s", why);
		return error;
	}
	/* A fabric that `nupa run` made goes with its last user: this is one. */
	if (flock(nupa_fabric_fd(fabric), LOCK_SH | LOCK_NB)) {
		error = -errno;
		if (error == -EWOULDBLOCK)
			nupa_hint("fabric %s is being taken down", nupa_fabric_name(fabric));
		else
			nupa_hint("fabric %s cannot be used: flock: %s%s", nupa_fabric_name(fabric),
				  strerror(-error), nupa_remedy(-error));
		nupa_fabric_put(fabric);
		return error;
	}
	found = host && *host ? find_host(fabric, host) : (int)nupa_quietest_host(fabric);
	if (found < 0) {
		nupa_fabric_put(fabric);
		return found;
	}
	set_env(fabric, (uint32_t)found);
	return 0;
}

struct ibv_device **nupa_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof(*list));
	bool present;
	int error;

	if (!list)
		return NULL;
	pthread_mutex_lock(&nupa_named_device.mutex);
	error = open_env(&present);
	if (!error && present)
		list[0] = &nupa_named_device.device;
	else if (!error)
		nupa_hint("there is no RDMA device, as NUPA_FABRIC is not set: start the program "
			  "with `nupa run -- ...`, and keep its environment");
	pthread_mutex_unlock(&nupa_named_device.mutex);
	if (error) {
		free(list);
		errno = -error;
		return NULL;
	}
	if (num_devices)
		*num_devices = list[0] != NULL;
	return list;
}

struct ibv_device *nupa_device_adopt(struct nupa_fabric *fabric, uint32_t host)
{
	bool present;

	pthread_mutex_lock(&nupa_named_device.mutex);
	if (open_env(&present) || !present)
		set_env(nupa_fabric_get(fabric), host);
	pthread_mutex_unlock(&nupa_named_device.mutex);
	return &nupa_named_device.device;
}

void nupa_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *nupa_get_device_name(struct ibv_device *device)
{
	return device->name;
}

uint64_t nupa_get_device_guid(struct ibv_device *device)
{
	(void)device; /* there is but one */
	return nupa_host_guid_be(nupa_named_device.fabric, nupa_named_device.host);
}

int nupa_get_device_index(struct ibv_device *device)
{
	(void)device;
	return 0;
}

struct ibv_context *nupa_open_device(struct ibv_device *device)
{
	char why[512];
	struct ibv_context *context =
	    nupa_open_host(nupa_named_device.fabric, (int)nupa_named_device.host,
			   nupa_named_device.mover, why, sizeof(why));
	int error;

	if (context) {
		context->device = device;
		return context;
	}
	error = errno;
	nupa_hint("%s", why);
	/* To a program, a host that is not ready has no device. */
	errno = error == EHOSTDOWN ? ENODEV : error;
	return NULL;
}
