/* SPDX-License-Identifier: BSD-3-Clause
 * CRCs and headers of single packets as a library: tests/unit/packet compares them with zlib, scapy
 * and packets of Linux's rdma_rxe. */
#include "packet/crc.h"
#include "packet/crc_internal.h"
#include "packet/icrc.h"
#include "packet/roce.h"

#define FACE __attribute__((visibility("default")))

FACE uint32_t face_crc(uint32_t crc, const uint8_t *data, size_t bytes);
FACE uint32_t face_crc_by_tables(uint32_t crc, const uint8_t *data, size_t bytes);
FACE int face_crc_is_accelerated(void);
FACE uint32_t face_icrc(const uint8_t *src, const uint8_t *dst, uint16_t src_port,
			uint16_t identification, const uint8_t *packet, uint32_t bytes);
FACE int face_icrc_find(const uint8_t *src, const uint8_t *dst, uint16_t src_port,
			const uint8_t *packet, uint32_t bytes);
FACE int face_read(const uint8_t *packet, uint32_t bytes, struct nupa_roce_packet *out,
		   uint32_t *payload_at);
FACE int face_valid(const struct nupa_roce_packet *packet);
FACE uint32_t face_write(uint8_t *headers, const struct nupa_roce_packet *packet);

uint32_t face_crc(uint32_t crc, const uint8_t *data, size_t bytes)
{
	return nupa_crc32(crc, data, bytes);
}

uint32_t face_crc_by_tables(uint32_t crc, const uint8_t *data, size_t bytes)
{
	(void)nupa_crc32_of_byte(0); /* makes the tables */
	return ~nupa_crc_by_tables(~crc, data, bytes);
}

int face_crc_is_accelerated(void)
{
	return nupa_crc_accelerated() != NULL;
}

uint32_t face_icrc(const uint8_t *src, const uint8_t *dst, uint16_t src_port,
		   uint16_t identification, const uint8_t *packet, uint32_t bytes)
{
	const struct iovec covered = { (void *)(uintptr_t)packet, bytes };
	struct nupa_icrc_base base;

	nupa_icrc_prepare(&base, src, dst);
	return nupa_icrc_of(&base, src_port, identification, &covered, 1);
}

/* The identification; -1: the ICRC is right for none. */
int face_icrc_find(const uint8_t *src, const uint8_t *dst, uint16_t src_port, const uint8_t *packet,
		   uint32_t bytes)
{
	struct nupa_icrc_base base;
	uint16_t identification = 0;

	nupa_icrc_prepare(&base, src, dst);
	return nupa_icrc_find(&base, src_port, packet, bytes, &identification) ? identification
									       : -1;
}

int face_read(const uint8_t *packet, uint32_t bytes, struct nupa_roce_packet *out,
	      uint32_t *payload_at)
{
	const uint8_t *payload;

	if (!nupa_roce_read(packet, bytes, out, &payload))
		return 0;
	*payload_at = (uint32_t)(payload - packet);
	return 1;
}

int face_valid(const struct nupa_roce_packet *packet)
{
	return nupa_roce_valid(packet);
}

uint32_t face_write(uint8_t *headers, const struct nupa_roce_packet *packet)
{
	return nupa_roce_write(headers, packet);
}
