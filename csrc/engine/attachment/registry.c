/* SPDX-License-Identifier: BSD-3-Clause
 * The attachments of this process, and the device that its environment names. */
#include "engine/attachment/attachment.h"

struct nupa_engine *nupa_engines;
uint32_t nupa_engines_readers;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;

void nupa_registry_lock(void)
{
	pthread_mutex_lock(&registry);
}

void nupa_registry_unlock(void)
{
	pthread_mutex_unlock(&registry);
}

void nupa_registry_init(void)
{
	pthread_mutex_init(&registry, NULL);
}

struct nupa_named_device nupa_named_device = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* In a child process: the mappings are pictures of the parent's. */
void nupa_device_list_forget(void)
{
	pthread_mutex_init(&nupa_named_device.mutex, NULL);
	nupa_named_device.fabric = NULL;
}
