/* SPDX-License-Identifier: BSD-3-Clause
 * Fields that differ from packet to packet enter as differences from tables, so that each packet
 * costs its own bytes only. */
#include "packet/icrc.h"
#include "base/bytes.h"
#include "packet/crc.h"
#include "packet/roce.h"

#include <pthread.h>
#include <string.h>

#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define UDP_BYTES 8u
#define ONES_BYTES 8u
#define BTH_RESV8A 4u      /* with FECN and BECN: ones */
#define LOW_EXPECTED 16u   /* from so many on, a packet with a high identification is wrong */
#define OTHERS_BELIEVED 3u /* unless so many come: the sender is another one now */
#define WORD_BYTES 4u      /* lengths of packets are multiples of it */

/* The differences in the state before the BTH that the two bytes of a field make. */
struct field {
	uint32_t high[256], low[256];
};

static struct {
	struct field ipv4_bytes, ipv4_identification, ipv6_bytes, src_port, udp_bytes;
	uint32_t resv8a[256]; /* of a byte there that is no ones */
	/* x^(-8n - 208) at n / 4, so that an identification's difference is brought back to its
	 * own 16 bits from n bytes behind the UDP header. */
	uint32_t back[NUPA_ICRC_PACKET_MAX_BYTES / WORD_BYTES];
} tables;

/* Of a field that begins so many bytes before the BTH. */
static void fill(struct field *field, uint32_t before)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t difference = nupa_crc32_of_byte((uint8_t)byte);

		field->high[byte] = nupa_crc32_later(difference, before - 1);
		field->low[byte] = nupa_crc32_later(difference, before - 2);
	}
}

static void make_tables(void)
{
	const uint32_t one = 1u << 31;
	uint32_t back = nupa_crc32_earlier(one, WORD_BYTES + UDP_BYTES + IPV4_BYTES - 6);

	fill(&tables.ipv4_bytes, UDP_BYTES + IPV4_BYTES - 2);
	fill(&tables.ipv4_identification, UDP_BYTES + IPV4_BYTES - 4);
	fill(&tables.ipv6_bytes, UDP_BYTES + IPV6_BYTES - 4);
	fill(&tables.src_port, UDP_BYTES);
	fill(&tables.udp_bytes, UDP_BYTES - 4);
	for (uint32_t byte = 0; byte < 256; byte++)
		tables.resv8a[byte] =
		    nupa_crc32_earlier(nupa_crc32_of_byte((uint8_t)~byte), BTH_RESV8A + 1);
	for (uint32_t i = 0; i < NUPA_ICRC_PACKET_MAX_BYTES / WORD_BYTES; i++) {
		tables.back[i] = back;
		back = nupa_crc32_earlier(back, WORD_BYTES);
	}
}

static uint32_t of_field(const struct field *field, uint32_t value)
{
	return field->high[value >> 8 & 0xff] ^ field->low[value & 0xff];
}

static bool is_ipv4(const uint8_t address[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(address, mapped, sizeof(mapped));
}

void nupa_icrc_prepare(struct nupa_icrc_base *base, const uint8_t src[16], const uint8_t dst[16])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint8_t bytes[ONES_BYTES + IPV6_BYTES + UDP_BYTES] = { 0 }, *at = bytes;

	pthread_once(&once, make_tables);
	base->is_ipv4 = is_ipv4(src) && is_ipv4(dst);
	memset(at, 0xff, ONES_BYTES);
	at += ONES_BYTES;
	if (base->is_ipv4) {
		at = nupa_put32(at, 0x45ff0000); /* version, header length; TOS; length */
		at = nupa_put32(at, 0x00004000); /* identification; not to be fragmented */
		at = nupa_put32(at, 0xff11ffff); /* TTL; UDP; checksum */
		memcpy(at, src + 12, 4);
		memcpy(at + 4, dst + 12, 4);
		at += 8;
	} else {
		at = nupa_put32(at, 0x6fffffff); /* version; traffic class, flow label */
		at = nupa_put32(at, 0x000011ff); /* length; UDP; hop limit */
		memcpy(at, src, 16);
		memcpy(at + 16, dst, 16);
		at += 32;
	}
	at = nupa_put32(at, NUPA_ROCE_PORT); /* source port, destination port */
	at = nupa_put32(at, 0x0000ffff);     /* length; checksum */
	base->state = nupa_crc32(0, bytes, (size_t)(at - bytes));
}

/* Before the BTH of a packet of so many bytes with its ICRC. */
static uint32_t before_bth(const struct nupa_icrc_base *base, uint16_t src_port,
			   uint16_t identification, uint32_t bytes)
{
	const uint32_t udp_bytes = bytes + UDP_BYTES;
	uint32_t state = base->state;

	if (base->is_ipv4)
		state ^= of_field(&tables.ipv4_bytes, udp_bytes + IPV4_BYTES) ^
			 of_field(&tables.ipv4_identification, identification);
	else
		state ^= of_field(&tables.ipv6_bytes, udp_bytes);
	return state ^ of_field(&tables.src_port, src_port) ^
	       of_field(&tables.udp_bytes, udp_bytes);
}

uint32_t nupa_icrc_of(const struct nupa_icrc_base *base, uint16_t src_port, uint16_t identification,
		      const struct iovec *packet, int n)
{
	const uint8_t *bth = packet[0].iov_base;
	size_t bytes = NUPA_ICRC_BYTES;
	uint32_t crc;

	for (int i = 0; i < n; i++)
		bytes += packet[i].iov_len;
	crc = before_bth(base, src_port, identification, (uint32_t)bytes) ^
	      tables.resv8a[bth[BTH_RESV8A]];
	for (int i = 0; i < n; i++)
		crc = nupa_crc32(crc, packet[i].iov_base, packet[i].iov_len);
	return crc;
}

/* The difference between the ICRC that the packet has and that of an identification. */
static uint32_t difference(const struct nupa_icrc_base *base, uint16_t src_port,
			   uint16_t identification, const uint8_t *packet, uint32_t bytes)
{
	const uint8_t *end = packet + bytes - NUPA_ICRC_BYTES;
	const struct iovec covered = { (void *)(uintptr_t)packet, bytes - NUPA_ICRC_BYTES };

	return nupa_icrc_of(base, src_port, identification, &covered, 1) ^
	       ((uint32_t)end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 |
		(uint32_t)end[3] << 24);
}

bool nupa_icrc_find(const struct nupa_icrc_base *base, uint16_t src_port, const uint8_t *packet,
		    uint32_t bytes, uint16_t *identification)
{
	uint32_t found;

	if (!base->is_ipv4)
		*identification = 0;
	if (bytes < NUPA_BTH_BYTES + NUPA_ICRC_BYTES || bytes > NUPA_ICRC_PACKET_MAX_BYTES ||
	    bytes % WORD_BYTES)
		return false;
	found = difference(base, src_port, *identification, packet, bytes);
	if (!found || !base->is_ipv4)
		return !found;
	found = nupa_crc32_multiply(found, tables.back[(bytes - NUPA_ICRC_BYTES) / WORD_BYTES]);
	/* A reflected polynomial: its first byte is the lower one of the upper half. */
	*identification ^= (uint16_t)((found >> 16 & 0xff) << 8 | found >> 24);
	return !(found & 0xffff);
}

uint32_t nupa_icrc(const struct nupa_roce_path *path, const struct iovec *packet, int n)
{
	struct nupa_icrc_base base;

	nupa_icrc_prepare(&base, path->src, path->dst);
	return nupa_icrc_of(&base, path->src_port, path->identification, packet, n);
}

bool nupa_icrc_right(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes)
{
	struct nupa_icrc_base base;
	uint16_t identification = path->identification;

	nupa_icrc_prepare(&base, path->src, path->dst);
	return nupa_icrc_find(&base, path->src_port, packet, bytes, &identification) &&
	       (!base.is_ipv4 || identification == path->identification);
}

bool nupa_icrc_plausible(const struct nupa_roce_path *path, const uint8_t *packet, uint32_t bytes)
{
	struct nupa_icrc_base base;
	uint16_t identification = 0;

	nupa_icrc_prepare(&base, path->src, path->dst);
	return nupa_icrc_find(&base, path->src_port, packet, bytes, &identification);
}

bool nupa_icrc_expected(struct nupa_icrc_sender *sender, const struct nupa_icrc_base *base,
			uint16_t src_port, uint16_t identification, const uint8_t *packet,
			uint32_t bytes)
{
	if (!nupa_icrc_find(base, src_port, packet, bytes, &identification))
		return false;
	if (identification < NUPA_ICRC_LOW) {
		sender->anew |= sender->low && identification <= sender->last;
		if (sender->low < LOW_EXPECTED)
			sender->low++;
		sender->others = 0;
		sender->last = identification;
		return true;
	}
	if (sender->low == LOW_EXPECTED &&
	    (sender->anew || identification - sender->last > (int)NUPA_ICRC_LOW) &&
	    ++sender->others < OTHERS_BELIEVED)
		return false;
	*sender = (struct nupa_icrc_sender){ 0 };
	return true;
}

uint32_t nupa_icrc_of_frame(enum nupa_icrc_first first, const uint8_t *headers, uint32_t udp_at,
			    uint32_t bth_at, uint32_t bytes)
{
	uint8_t masked[ONES_BYTES + NUPA_ICRC_HEADERS_MAX_BYTES + NUPA_BTH_BYTES];
	uint8_t *ip = masked + ONES_BYTES;
	uint32_t crc;

	memset(masked, 0xff, ONES_BYTES);
	memcpy(ip, headers, bth_at + NUPA_BTH_BYTES);
	switch (first) {
	case NUPA_ICRC_IPV4:
		ip[1] = 0xff; /* type of service */
		ip[8] = 0xff; /* time to live */
		memset(ip + 10, 0xff, 2);
		break;
	case NUPA_ICRC_IPV6:
		ip[0] |= 0x0f; /* traffic class and flow label */
		memset(ip + 1, 0xff, 3);
		ip[7] = 0xff; /* hop limit */
		break;
	case NUPA_ICRC_LRH:
		ip[0] |= 0xf0; /* virtual lane */
		break;
	}
	if (udp_at)
		memset(ip + udp_at + 6, 0xff, 2);
	ip[bth_at + BTH_RESV8A] = 0xff;
	crc = first == NUPA_ICRC_LRH ? nupa_crc32(0, ip, bth_at + NUPA_BTH_BYTES)
				     : nupa_crc32(0, masked, ONES_BYTES + bth_at + NUPA_BTH_BYTES);
	return nupa_crc32(crc, headers + bth_at + NUPA_BTH_BYTES, bytes - bth_at - NUPA_BTH_BYTES);
}
