/* SPDX-License-Identifier: BSD-3-Clause
 * The ICRC of packets in UDP, over IPv4 or IPv6. */
#include "packet/icrc.h"

#include "packet/crc.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#define UDP_PORT 4791u
#define BTH_BYTES 12u
#define ICRC_BYTES 4u
#define UDP_BYTES 8u
#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define ONES_BYTES 8u /* in place of an LRH */
#define MASKED_BYTES_MAX (ONES_BYTES + IPV6_BYTES + UDP_BYTES + BTH_BYTES)
#define IPV4_IDENTIFICATION_AT 4u
#define ZEROS_EXPECTED 16u /* from so many on, a packet without is a wrong one */
#define OTHERS_BELIEVED 3u /* unless so many come: the sender is another one now */

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static bool is_ipv4(const struct nupa_roce_path *path)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(path->dst, mapped, sizeof(mapped));
}

/* From the IP header on, with ones for what is not covered; returns its length.  bytes: of the
 * packet with its ICRC. */
static uint32_t put_masked(const struct nupa_roce_path *path, const uint8_t *bth, uint32_t bytes,
			   uint8_t masked[MASKED_BYTES_MAX])
{
	const uint32_t udp_bytes = UDP_BYTES + bytes;
	uint8_t *at = masked;

	memset(at, 0xff, MASKED_BYTES_MAX);
	at += ONES_BYTES;
	if (is_ipv4(path)) {
		at[0] = 0x45;
		put16(at + 2, IPV4_BYTES + udp_bytes);
		put16(at + IPV4_IDENTIFICATION_AT, path->identification);
		put16(at + 6, 0x4000);
		at[9] = 17;
		memcpy(at + 12, path->src + 12, 4);
		memcpy(at + 16, path->dst + 12, 4);
		at += IPV4_BYTES;
	} else {
		at[0] = 0x6f;
		put16(at + 4, udp_bytes);
		at[6] = 17;
		memcpy(at + 8, path->src, 16);
		memcpy(at + 24, path->dst, 16);
		at += IPV6_BYTES;
	}
	put16(at, path->src_port);
	put16(at + 2, UDP_PORT);
	put16(at + 4, udp_bytes);
	at += UDP_BYTES;
	memcpy(at, bth, BTH_BYTES);
	at[4] = 0xff; /* FECN, BECN */
	return (uint32_t)(at + BTH_BYTES - masked);
}

uint32_t nupa_icrc(const struct nupa_roce_path *path, const struct iovec *packet, int n)
{
	uint8_t masked[MASKED_BYTES_MAX];
	uint32_t bytes = ICRC_BYTES, crc;
	const uint8_t *first = packet[0].iov_base;

	for (int i = 0; i < n; i++)
		bytes += (uint32_t)packet[i].iov_len;
	crc = nupa_crc32(0, masked, put_masked(path, first, bytes, masked));
	crc = nupa_crc32(crc, first + BTH_BYTES, packet[0].iov_len - BTH_BYTES);
	for (int i = 1; i < n; i++)
		crc = nupa_crc32(crc, packet[i].iov_base, packet[i].iov_len);
	return crc;
}

/* What differs from the ICRC that the packet has. */
static uint32_t difference(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes)
{
	const struct iovec covered = { (void *)(uintptr_t)packet, bytes - ICRC_BYTES };
	uint32_t icrc;

	memcpy(&icrc, packet + bytes - ICRC_BYTES, sizeof(icrc));
	return nupa_icrc(path, &covered, 1) ^ le32toh(icrc);
}

bool nupa_icrc_right(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes)
{
	return bytes >= BTH_BYTES + ICRC_BYTES && !difference(path, packet, bytes);
}

static uint8_t before[256];   /* by the top byte of what a step makes of it */
static uint32_t forward[256]; /* a step */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
		forward[byte] = crc;
		before[crc >> 24] = (uint8_t)byte;
	}
}

/* Which difference became this one by a byte that did not differ. */
static uint32_t step_back(uint32_t crc)
{
	const uint8_t byte = before[crc >> 24];

	return (crc ^ forward[byte]) << 8 | byte;
}

bool nupa_icrc_plausible(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes)
{
	struct nupa_roce_path first = *path;
	uint32_t crc, behind;

	if (bytes < BTH_BYTES + ICRC_BYTES)
		return false;
	first.identification = 0;
	crc = difference(&first, packet, bytes);
	if (!crc || !is_ipv4(path))
		return !crc;
	pthread_once(&tables_once, make_tables);
	behind = IPV4_BYTES - IPV4_IDENTIFICATION_AT + UDP_BYTES + bytes - ICRC_BYTES;
	while (behind--) /* to where the identification came in */
		crc = step_back(crc);
	return !(crc >> 16);
}

bool nupa_icrc_expected(struct nupa_icrc_sender *sender, const struct nupa_roce_path *path,
			const uint8_t *packet, uint32_t bytes)
{
	struct nupa_roce_path zero = *path;

	zero.identification = 0;
	if (nupa_icrc_right(&zero, packet, bytes)) {
		if (sender->zeros < ZEROS_EXPECTED)
			sender->zeros++;
		sender->others = 0;
		return true;
	}
	if (!nupa_icrc_plausible(path, packet, bytes))
		return false;
	if (sender->zeros == ZEROS_EXPECTED && ++sender->others < OTHERS_BELIEVED)
		return false;
	*sender = (struct nupa_icrc_sender){ 0 };
	return true;
}
