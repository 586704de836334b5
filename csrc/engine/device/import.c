/* SPDX-License-Identifier: BSD-3-Clause
 * Sharing a context, its PDs and its memory (man ibv_import_device).
 *
 * A context's command descriptor (card.c) names its attachment.  In the same process an imported
 * context is one more context of that attachment, and imported objects are more handles of its
 * objects.  Another process attaches on its own to the same host.  There a PD has the same number,
 * and a region in the fabric's pool is the same memory.  Private memory of the exporter cannot be a
 * region of ours: EOPNOTSUPP. */
#define _GNU_SOURCE
#include "base/explain.h"
#include "engine/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

/* Where this process is attached already, or NULL. */
static struct nupa_fabric *known_fabric(uint64_t generation)
{
	struct nupa_fabric *fabric = NULL;

	nupa_registry_lock();
	for (struct nupa_engine *engine = nupa_engines; engine && !fabric; engine = engine->next)
		if (engine->fabric->geometry.generation == generation)
			fabric = nupa_fabric_get(engine->fabric);
	nupa_registry_unlock();
	return fabric;
}

static int open_fabric(const struct nupa_card *card, struct nupa_fabric **fabric, char *why,
		       size_t why_bytes)
{
	char proc[64];
	int error;

	*fabric = known_fabric(card->generation);
	if (*fabric)
		return 0;
	snprintf(proc, sizeof(proc), "/proc/%u/fd/%u", card->pid, card->fabric_fd);
	error = nupa_fabric_open(card->path[0] == '/' ? card->path : proc, fabric, why, why_bytes);
	if (error)
		return error == -ENOENT ? -ENODEV : error;
	/* The name may be another fabric's by now; and one that is being taken down stays away. */
	if ((*fabric)->geometry.generation != card->generation)
		error = -ENODEV;
	else if (flock(nupa_fabric_fd(*fabric), LOCK_SH | LOCK_NB))
		error = -errno;
	if (error == -ENODEV || error == -EWOULDBLOCK)
		nupa_explain(error, why, why_bytes, "the fabric of the imported context is gone");
	else if (error)
		nupa_explain(error, why, why_bytes,
			     "the fabric of the imported context cannot be used: flock: %s%s",
			     strerror(-error), nupa_remedy(-error));
	if (error)
		nupa_fabric_put(*fabric);
	return error;
}

/* Takes the descriptor over, if it succeeds. */
struct ibv_context *nupa_import_device(int cmd_fd)
{
	struct nupa_fabric *fabric;
	struct nupa_context *context;
	struct ibv_context *ibv;
	struct nupa_card card;
	char why[512];
	int error = nupa_card_read(cmd_fd, &card);

	if (!error)
		error = -open_fabric(&card, &fabric, why, sizeof(why));
	if (error) {
		if (error != EINVAL)
			nupa_hint("%s", why);
		errno = error;
		return NULL;
	}
	ibv = nupa_open_host(fabric, (int)card.host, (enum nupa_mover)card.mover, why, sizeof(why));
	if (!ibv) {
		error = errno;
		nupa_hint("%s", why);
		nupa_fabric_put(fabric);
		errno = error;
		return NULL;
	}
	context = container_of(ibv, struct nupa_context, ibv.context);
	if (context->engine->slot_index != card.slot || context->engine->epoch != card.epoch) {
		context->exporter_slot = card.slot;
		context->exporter_epoch = card.epoch;
	}
	if (card.slot >= fabric->geometry.n_slots ||
	    (context->exporter_slot && !nupa_context_exporter_lives(context))) {
		nupa_close_device(ibv);
		nupa_fabric_put(fabric);
		errno = ENODEV;
		return NULL;
	}
	ibv->device = nupa_device_adopt(fabric, card.host);
	nupa_fabric_put(fabric);
	close(ibv->cmd_fd);
	ibv->cmd_fd = cmd_fd;
	return ibv;
}
