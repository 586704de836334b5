/* SPDX-License-Identifier: BSD-3-Clause
 * The command descriptor of a context: a sealed memfd that names its attachment. */
#define _GNU_SOURCE
#include "base/rlimit.h"
#include "engine/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CARD_MAGIC UINT64_C(0x314443415055504e) /* "NPUPACD1" */

int nupa_context_cmd_fd(const struct nupa_engine *engine, const char **call)
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
	int fd, error;

	*call = "memfd_create";
	fd = memfd_create("nupa-context", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	memcpy(card.path, engine->fabric->path, sizeof(card.path));
	*call = "pwrite";
	if (nupa_limit_allows_file(sizeof(card)) &&
	    pwrite(fd, &card, sizeof(card), 0) == (ssize_t)sizeof(card)) {
		*call = "fcntl(F_ADD_SEALS)";
		if (!fcntl(fd, F_ADD_SEALS,
			   F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
			return fd;
	}
	error = -errno;
	close(fd);
	return error;
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
