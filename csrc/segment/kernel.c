/* SPDX-License-Identifier: BSD-3-Clause
 * Kernels that share a fabric: which one this process runs under, its place in the fabric's table,
 * and whose a slot is. */
#include "base/atomics.h"
#include "segment/coherence.h"
#include "segment/segment_internal.h"
#include "segment/trunk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t pretended_id;

void nupa_kernel_pretend(uint64_t id)
{
	pretended_id = id;
}

uint64_t nupa_kernel_id_of(const char text[NUPA_BOOT_ID_CHARS])
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (size_t i = 0; i < NUPA_BOOT_ID_CHARS; i++)
		hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
	return hash ? hash : 1;
}

/* random(4): /proc/sys/kernel/random/boot_id is another one for each boot. */
uint64_t nupa_kernel_id(void)
{
	char text[64];
	ssize_t n;
	int fd;

	if (pretended_id)
		return pretended_id;
	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text));
	close(fd);
	return n < NUPA_BOOT_ID_CHARS ? 0 : nupa_kernel_id_of(text);
}

uint32_t nupa_pid_namespace(void)
{
	static uint64_t known; /* pid << 32 | namespace: a child may be in another one */
	uint64_t seen = __atomic_load_n(&known, __ATOMIC_RELAXED);
	uint32_t pid = (uint32_t)getpid();
	struct stat status;
	uint32_t namespace;

	if (seen >> 32 == pid)
		return (uint32_t)seen;
	if (stat("/proc/self/ns/pid", &status))
		return 0;
	/* Each kernel's first namespace has the same number. */
	namespace = (uint32_t)status.st_ino ^ (uint32_t)nupa_kernel_id();
	namespace += !namespace;
	__atomic_store_n(&known, (uint64_t)pid << 32 | namespace, __ATOMIC_RELAXED);
	return namespace;
}

/* SOFTWARE: who we are is known when we attach: a host is one kernel. */
static void look_by_ourselves(struct nupa_fabric *fabric)
{
	fabric->net_epoch = &fabric->own_net_epoch;
	if (fabric->creator)
		return;
	fabric->own_port_epoch = nupa_load_acquire(fabric->port_epoch);
	fabric->port_epoch = &fabric->own_port_epoch;
}

int nupa_fabric_join(struct nupa_fabric *fabric)
{
	uint64_t *creator = &fabric->sb->kernels[1];
	uint64_t id;

	fabric->kernel = 0;
	fabric->creator = true;
	fabric->port_epoch = &fabric->sb->port_epoch;
	fabric->net_epoch = &fabric->sb->net_epoch;
	if (!nupa_fabric_machines(fabric))
		return 0;
	fabric->boot = id = nupa_kernel_id();
	if (!id)
		return -ENXIO;
	if (!fabric->geometry.magic)
		nupa_store_release(creator, id);
	fabric->creator = nupa_load_acquire(creator) == id;
	if (nupa_fabric_incoherent(fabric)) {
		if (!nupa_coherence_possible())
			return -EOPNOTSUPP;
		look_by_ourselves(fabric);
		return 0;
	}
	for (uint32_t i = 1; i < NUPA_KERNELS_MAX; i++) {
		uint64_t *entry = &fabric->sb->kernels[i];
		uint64_t seen = nupa_load_acquire(entry);

		if (seen == id || (seen == 0 && (nupa_cas_seq(entry, &seen, id) || seen == id))) {
			fabric->kernel = i;
			return 0;
		}
	}
	return -EUSERS;
}

uint32_t nupa_fabric_owner(const struct nupa_fabric *fabric)
{
	return NUPA_OWNER(fabric->kernel, getpid());
}

void nupa_slots_of(const struct nupa_fabric *fabric, uint32_t host, uint32_t *first, uint32_t *end)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint32_t each = (sb->n_slots - 1) / sb->n_hosts;

	if (nupa_fabric_has_trunk(fabric)) {
		nupa_machine_slots(fabric, sb->trunk.host_machine[host], first, end);
		return;
	}
	*first = nupa_fabric_incoherent(fabric) ? 1 + host * each : 1;
	*end = nupa_fabric_incoherent(fabric) ? *first + each : sb->n_slots;
}

bool nupa_slot_apart(const struct nupa_fabric *fabric, uint32_t slot)
{
	uint32_t first, end;

	if (!nupa_fabric_incoherent(fabric))
		return false;
	if (!fabric->kernel)
		return true;
	nupa_slots_of(fabric, fabric->kernel - 1, &first, &end);
	return slot < first || slot >= end;
}

bool nupa_slot_elsewhere(const struct nupa_fabric *fabric, uint64_t claim)
{
	return NUPA_CLAIM_KERNEL(claim) != fabric->kernel;
}
