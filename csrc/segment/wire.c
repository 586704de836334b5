/* SPDX-License-Identifier: BSD-3-Clause
 * The table of wires.  What an entry says is another process's word, so all of it is checked here
 * or by its reader. */
#include "segment/wire.h"
#include "base/atomics.h"

#include <errno.h>
#include <string.h>

/* The host of an entry; n_hosts or more: it is free. */
static uint32_t host_of(const struct nupa_wire_entry *entry)
{
	return nupa_load_acquire(&entry->host) - 1;
}

bool nupa_wire_taken(const struct nupa_fabric *fabric, const struct nupa_wire_entry *entry)
{
	return host_of(entry) < fabric->geometry.n_hosts;
}

bool nupa_wire_kept(const struct nupa_fabric *fabric, const struct nupa_wire_entry *entry)
{
	const uint32_t slot = nupa_load_relaxed(&entry->slot);
	uint64_t claim;

	if (slot == 0 || slot >= fabric->geometry.n_slots)
		return false;
	claim = nupa_load_acquire(&fabric->slots[slot].claim);
	return NUPA_CLAIM_STATE(claim) == NUPA_SLOT_LIVE &&
	       NUPA_CLAIM_EPOCH(claim) == nupa_load_acquire(&entry->epoch);
}

/* An address of an entry, which may change meanwhile: false if so. */
static bool read_address(const struct nupa_wire_entry *entry, const uint8_t from[16],
			 uint8_t gid[16])
{
	const uint64_t *words = (const uint64_t *)(const void *)from;
	const uint32_t host = nupa_load_acquire(&entry->host);
	const uint64_t copy[2] = { nupa_load_relaxed(&words[0]), nupa_load_relaxed(&words[1]) };

	memcpy(gid, copy, sizeof(copy));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return nupa_load_relaxed(&entry->host) == host;
}

struct nupa_wire_entry *nupa_wire_at(const struct nupa_fabric *fabric, uint32_t index)
{
	struct nupa_wire_entry *entry;

	if (index >= NUPA_WIRES_MAX)
		return NULL;
	entry = &fabric->sb->wires[index];
	return nupa_wire_taken(fabric, entry) && nupa_wire_kept(fabric, entry) ? entry : NULL;
}

int nupa_wire_of_host(const struct nupa_fabric *fabric, uint32_t host)
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		const struct nupa_wire_entry *entry = &fabric->sb->wires[i];

		if (host_of(entry) == host && nupa_wire_at(fabric, i))
			return (int)i;
	}
	return -ENOENT;
}

bool nupa_wire_is_lost(const struct nupa_fabric *fabric, uint32_t host)
{
	bool taken = false;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++)
		taken |= host_of(&fabric->sb->wires[i]) == host;
	return taken && nupa_wire_of_host(fabric, host) < 0;
}

bool nupa_wire_remote(const struct nupa_wire_entry *entry, uint8_t gid[16])
{
	return read_address(entry, entry->remote, gid);
}

bool nupa_wire_near(const struct nupa_wire_entry *entry, uint8_t gid[16])
{
	return read_address(entry, entry->local, gid);
}

int nupa_wire_host_of_remote(const struct nupa_fabric *fabric, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		const struct nupa_wire_entry *entry = nupa_wire_at(fabric, i);
		uint8_t remote[16];

		if (entry && read_address(entry, entry->remote, remote) &&
		    !memcmp(remote, gid, sizeof(remote)))
			return (int)host_of(entry);
	}
	return -ENOENT;
}

/* Those of dead keepers too, so that GIDs keep their places. */
uint32_t nupa_wire_locals(const struct nupa_fabric *fabric, uint8_t found[NUPA_WIRE_LOCALS_MAX][16])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX && n < NUPA_WIRE_LOCALS_MAX; i++) {
		const struct nupa_wire_entry *entry = &fabric->sb->wires[i];
		bool known = false;

		if (!nupa_wire_taken(fabric, entry) || !read_address(entry, entry->local, found[n]))
			continue;
		for (uint32_t k = 0; k < n; k++)
			known |= !memcmp(found[k], found[n], 16);
		n += !known;
	}
	return n;
}

bool nupa_wire_local(const struct nupa_fabric *fabric, uint32_t n, uint8_t gid[16])
{
	uint8_t found[NUPA_WIRE_LOCALS_MAX][16];

	if (n >= nupa_wire_locals(fabric, found))
		return false;
	memcpy(gid, found[n], sizeof(found[n]));
	return true;
}

bool nupa_wire_is_mtu(uint32_t bytes)
{
	return bytes >= NUPA_WIRE_MTU_MIN_BYTES && bytes <= NUPA_MTU_BYTES &&
	       !(bytes & (bytes - 1));
}

uint32_t nupa_wire_mtu_bytes(const struct nupa_wire_entry *entry)
{
	const uint32_t bytes = nupa_load_relaxed(&entry->mtu_bytes);

	return nupa_wire_is_mtu(bytes) ? bytes : NUPA_WIRE_MTU_MIN_BYTES;
}

uint32_t nupa_wires_mtu_bytes(const struct nupa_fabric *fabric)
{
	uint32_t least = NUPA_MTU_BYTES;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		const struct nupa_wire_entry *entry = nupa_wire_at(fabric, i);
		const uint32_t bytes = entry ? nupa_wire_mtu_bytes(entry) : NUPA_MTU_BYTES;

		least = bytes < least ? bytes : least;
	}
	return least;
}
