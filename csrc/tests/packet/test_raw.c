/* SPDX-License-Identifier: BSD-3-Clause
 * Packets in what a packet socket gives: whole ones, wrong ones, and any bytes.  The seed is
 * printed. */
#include "packet/raw.h"
#include "tests/support/runner.h"

#include <linux/if_packet.h>
#include <string.h>

#define GSO_TYPE_AT 1u
#define GSO_SIZE_AT 4u
#define VIRTIO_BYTES 10u
#define ETHERNET_BYTES 14u
#define IP_UDP_BYTES 28u
#define PACKET_BYTES 24u /* of each of those below, BTH to ICRC */
#define ROUNDS 20000

static const uint8_t ip_udp[IP_UDP_BYTES] = {
	0x45, 2,
	0,    IP_UDP_BYTES + 2 * PACKET_BYTES, /* length */
	0x12, 0xff,                            /* identification */
	0x40, 0,                               /* don't fragment */
	64,   17,
	0,    0, /* UDP */
	192,  0,
	2,    1, /* source */
	192,  0,
	2,    2, /* destination */
	0xc1, 0x23,
	0x12, 0xb7, /* ports */
	0,    8 + 2 * PACKET_BYTES,
	0,    0,
};

/* A message of the socket: two packets of one length. */
struct came {
	uint8_t bytes[256], control[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	uint32_t link_bytes, n;
	struct iovec piece;
	struct msghdr msg;
};

static void make(struct came *came, uint32_t link_bytes)
{
	struct tpacket_auxdata aux = { .tp_net = (uint16_t)link_bytes };
	struct cmsghdr *header;
	const uint16_t segment = PACKET_BYTES;

	memset(came, 0, sizeof(*came));
	came->link_bytes = link_bytes;
	came->n = VIRTIO_BYTES + link_bytes + IP_UDP_BYTES + 2 * PACKET_BYTES;
	came->bytes[GSO_TYPE_AT] = 5;
	memcpy(came->bytes + GSO_SIZE_AT, &segment, sizeof(segment));
	memcpy(came->bytes + VIRTIO_BYTES + link_bytes, ip_udp, IP_UDP_BYTES);
	came->piece = (struct iovec){ came->bytes, sizeof(came->bytes) };
	came->msg = (struct msghdr){ .msg_iov = &came->piece,
				     .msg_iovlen = 1,
				     .msg_control = came->control,
				     .msg_controllen = sizeof(came->control) };
	header = CMSG_FIRSTHDR(&came->msg);
	*header = (struct cmsghdr){ .cmsg_level = SOL_PACKET,
				    .cmsg_type = PACKET_AUXDATA,
				    .cmsg_len = CMSG_LEN(sizeof(aux)) };
	memcpy(CMSG_DATA(header), &aux, sizeof(aux));
}

static uint8_t *ip_of(struct came *came)
{
	return came->bytes + VIRTIO_BYTES + came->link_bytes;
}

TEST(fields_are_read_with_and_without_a_link_header)
{
	static const uint8_t src[16] = { [10] = 0xff, 0xff, 192, 0, 2, 1 };
	static const uint8_t dst[16] = { [10] = 0xff, 0xff, 192, 0, 2, 2 };
	const uint32_t links[] = { 0, ETHERNET_BYTES };

	for (uint32_t i = 0; i < 2; i++) {
		struct nupa_packets read;
		struct came came;

		make(&came, links[i]);
		CHECK(nupa_raw_read(&came.msg, came.n, &read));
		CHECK(read.bytes == ip_of(&came) + IP_UDP_BYTES);
		CHECK_EQ(read.n, 2 * PACKET_BYTES);
		CHECK_EQ(read.segment, PACKET_BYTES);
		CHECK(!memcmp(read.path.src, src, 16) && !memcmp(read.path.dst, dst, 16));
		CHECK_EQ(read.path.identification, 0x12ff);
		CHECK_EQ(read.path.src_port, 0xc123);
		CHECK_EQ(read.path.tos, 2);
		CHECK_EQ(read.path.ttl, 64);
		/* One packet alone, and what Ethernet pads it with. */
		came.bytes[GSO_TYPE_AT] = 0;
		CHECK(nupa_raw_read(&came.msg, came.n + 18, &read));
		CHECK_EQ(read.n, 2 * PACKET_BYTES);
		CHECK_EQ(read.segment, read.n);
	}
}

TEST(fields_that_the_icrc_does_not_have_so_are_refused)
{
	static const struct {
		uint32_t at;
		uint8_t is;
	} wrong[] = {
		{ 0, 0x46 },                                /* options */
		{ 0, 0x65 },                                /* version 6 */
		{ 3, IP_UDP_BYTES },                        /* nothing in it */
		{ 3, IP_UDP_BYTES + 2 * PACKET_BYTES + 1 }, /* more than there is */
		{ 3, IP_UDP_BYTES + PACKET_BYTES },         /* another length than UDP's */
		{ 6, 0 },                                   /* fragments permitted */
		{ 6, 0x60 },                                /* more fragments */
		{ 7, 1 },                                   /* a later fragment */
		{ 9, 6 },                                   /* TCP */
		{ 25, 8 + 2 * PACKET_BYTES - 1 },           /* UDP's length */
	};
	struct nupa_packets read;
	struct came came;

	for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		make(&came, ETHERNET_BYTES);
		ip_of(&came)[wrong[i].at] = wrong[i].is;
		CHECK(!nupa_raw_read(&came.msg, came.n, &read));
	}
	make(&came, ETHERNET_BYTES);
	for (uint32_t n = 0; n < came.n; n++)
		CHECK(!nupa_raw_read(&came.msg, n, &read));
	came.msg.msg_flags = MSG_TRUNC;
	CHECK(!nupa_raw_read(&came.msg, came.n, &read));
	came.msg.msg_flags = 0;
	came.msg.msg_controllen = 0;
	CHECK(!nupa_raw_read(&came.msg, came.n, &read));
}

TEST(whatever_comes_is_read_within_its_bounds)
{
	uint64_t random = test_seed();
	uint32_t taken = 0;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct nupa_packets read;
		struct came came;

		make(&came, test_random(&random) % 2 ? 0 : ETHERNET_BYTES);
		for (uint32_t j = 0; j < test_random(&random) % 4; j++)
			came.bytes[test_random(&random) % came.n] = (uint8_t)test_random(&random);
		if (test_random(&random) % 4 == 0)
			came.n = (uint32_t)(test_random(&random) % came.n);
		if (!nupa_raw_read(&came.msg, came.n, &read))
			continue;
		taken++;
		CHECK(read.n && read.segment);
		CHECK(read.bytes >= came.bytes && read.bytes + read.n <= came.bytes + came.n);
	}
	CHECK(taken > ROUNDS / 10);
}
