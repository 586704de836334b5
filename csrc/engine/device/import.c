/* SPDX-License-Identifier: BSD-3-Clause
 * Sharing a context, its PDs and its memory (man ibv_import_device).
 *
 * A context's command descriptor is a sealed memfd that names its attachment.  In the same process
 * an imported context is one more context of that attachment, and imported objects are more handles
 * of its objects.  Another process attaches on its own to the same host: there a PD is the same
 * number, and a region is the same memory where that is the fabric's pool.  Private memory of the
 * exporter cannot be a region of ours: EOPNOTSUPP. */
#define _GNU_SOURCE
#include "engine/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define CARD_MAGIC UINT64_C(0x314443415055504e) /* "NPUPACD1" */

/* The contents of the descriptor, which its reader does not trust. */
struct card {
	uint64_t magic;
	uint64_t generation;
	uint32_t pid, fabric_fd; /* the exporter's: for a fabric without a path */
	uint32_t slot, epoch, host, mover;
	char path[256];
};

int nupa_context_cmd_fd(const struct nupa_engine *engine)
{
	struct card card = {
		.magic = CARD_MAGIC,
		.generation = engine->fabric->geometry.generation,
		.pid = (uint32_t)getpid(),
		.fabric_fd = (uint32_t)engine->fabric->fd,
		.slot = engine->slot_index,
		.epoch = engine->epoch,
		.host = engine->host,
		.mover = engine->forced_mover,
	};
	int fd = memfd_create("nupa-context", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	memcpy(card.path, engine->fabric->path, sizeof(card.path));
	if (pwrite(fd, &card, sizeof(card), 0) != (ssize_t)sizeof(card) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		close(fd);
		return -1;
	}
	return fd;
}

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

static int open_fabric(const struct card *card, struct nupa_fabric **fabric, char *why,
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
	if (error) {
		snprintf(why, why_bytes, "the fabric of the imported context is gone");
		nupa_fabric_put(*fabric);
	}
	return error;
}

static int read_card(int fd, struct card *card)
{
	if (pread(fd, card, sizeof(*card), 0) != (ssize_t)sizeof(*card) ||
	    card->magic != CARD_MAGIC || !memchr(card->path, 0, sizeof(card->path)) ||
	    card->host >= NUPA_HOSTS_MAX || card->slot == 0 || card->slot >= NUPA_SLOTS_MAX ||
	    card->mover > NUPA_MOVER_RELAY)
		return EINVAL;
	return 0;
}

/* Takes the descriptor over, if it succeeds. */
struct ibv_context *nupa_import_device(int cmd_fd)
{
	struct nupa_fabric *fabric;
	struct nupa_context *context;
	struct ibv_context *ibv;
	struct card card;
	char why[512];
	int error = read_card(cmd_fd, &card);

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
