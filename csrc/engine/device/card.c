/* SPDX-License-Identifier: BSD-3-Clause
 * The command descriptor of a context: a sealed memfd that names its attachment. */
#define _GNU_SOURCE
#include "engine/device/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CARD_MAGIC UINT64_C(0x314443415055504e) /* "NPUPACD1" */

int nupa_context_cmd_fd(const struct nupa_engine *engine)
{
	struct nupa_card card = {
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

int nupa_card_read(int fd, struct nupa_card *card)
{
	if (pread(fd, card, sizeof(*card), 0) != (ssize_t)sizeof(*card) ||
	    card->magic != CARD_MAGIC || !memchr(card->path, 0, sizeof(card->path)) ||
	    card->host >= NUPA_HOSTS_MAX || card->slot == 0 || card->slot >= NUPA_SLOTS_MAX ||
	    card->mover > NUPA_MOVER_RELAY)
		return EINVAL;
	return 0;
}
