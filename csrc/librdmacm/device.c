/* SPDX-License-Identifier: BSD-3-Clause
 * Devices: opened once for a process, with a default PD and XRC domain for the ids on them. */
#include "librdmacm/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct nupa_list devices = { &devices, &devices };
static struct ibv_context *opened;
static pid_t opened_by; /* a child has none of its parent's */

struct ibv_context *rdma_default_context(void)
{
	struct ibv_device **list;
	struct ibv_context *context;
	int error;

	pthread_mutex_lock(&mutex);
	if (opened && opened_by != getpid())
		opened = NULL;
	if (!opened) {
		list = ibv_get_device_list(NULL);
		error = list ? ENODEV : errno;
		if (list && list[0]) {
			opened = ibv_open_device(list[0]);
			opened_by = getpid();
			error = errno;
		}
		if (list)
			ibv_free_device_list(list);
		if (!opened)
			errno = error;
	}
	context = opened;
	pthread_mutex_unlock(&mutex);
	return context;
}

/* man rdma_get_devices: they stay open while the library is loaded. */
struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **list = calloc(2, sizeof(*list));

	if (!list)
		return NULL;
	list[0] = rdma_default_context();
	if (!list[0]) {
		free(list);
		return NULL;
	}
	if (num_devices)
		*num_devices = 1;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

static struct rdma_device *device_new(struct ibv_context *verbs)
{
	struct ibv_device_attr_ex attr;
	struct rdma_device *device;
	int error = ibv_query_device_ex(verbs, NULL, &attr);

	if (error) {
		errno = error;
		return NULL;
	}
	device = calloc(1, sizeof(*device));
	if (!device)
		return NULL;
	device->verbs = verbs;
	device->max_initiator_depth = (uint8_t)attr.orig_attr.max_qp_init_rd_atom;
	device->max_responder_resources = (uint8_t)attr.orig_attr.max_qp_rd_atom;
	device->pd = ibv_alloc_pd(verbs);
	if (!device->pd) {
		error = errno;
		free(device);
		errno = error;
		return NULL;
	}
	nupa_list_add(&devices, &device->link);
	return device;
}

struct rdma_device *rdma_device_get(struct ibv_context *verbs)
{
	struct rdma_device *device = NULL;

	pthread_mutex_lock(&mutex);
	for (struct nupa_list *at = devices.next; at != &devices; at = at->next)
		if (container_of(at, struct rdma_device, link)->verbs == verbs)
			device = container_of(at, struct rdma_device, link);
	if (!device)
		device = device_new(verbs);
	if (device)
		device->users++;
	pthread_mutex_unlock(&mutex);
	return device;
}

void rdma_device_put(struct rdma_device *device)
{
	pthread_mutex_lock(&mutex);
	if (--device->users == 0) {
		nupa_list_del(&device->link);
		if (device->xrcd)
			ibv_close_xrcd(device->xrcd);
		/* Busy if the program still has objects on it: then it stays, as in rdma-core. */
		ibv_dealloc_pd(device->pd);
		free(device);
	}
	pthread_mutex_unlock(&mutex);
}

struct ibv_xrcd *rdma_device_xrcd(struct rdma_device *device)
{
	pthread_mutex_lock(&mutex);
	if (!device->xrcd) {
		struct ibv_xrcd_init_attr attr = {
			.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
			.fd = -1,
			.oflags = O_CREAT,
		};

		device->xrcd = ibv_open_xrcd(device->verbs, &attr);
	}
	pthread_mutex_unlock(&mutex);
	return device->xrcd;
}
