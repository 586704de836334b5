/* SPDX-License-Identifier: BSD-3-Clause
 * Forged packets: see forge.h. */
#include "tests/wire/forge.h"
#include "engine/core/qp.h"
#include "packet/roce.h"
#include "tests/support/runner.h"

#include <endian.h>
#include <string.h>

#define REAL_MAX 512u
#define PCAP_HEADER_BYTES 24u
#define RECORD_HEADER_BYTES 16u
#define ETHERTYPE_AT 12u
#define BTH_AT_IPV4 42u
#define BTH_AT_IPV6 62u
#define SERVICES 8u
#define SERVICE_OF(opcode) ((opcode) >> 5)
#define OPCODE_CNP 0x81u

/* From the BTH to the ICRC. */
static struct {
	uint8_t bytes[FORGE_BYTES];
	uint32_t length;
} real[REAL_MAX];
static uint32_t n_real;
static uint32_t real_of[SERVICES][REAL_MAX], n_real_of[SERVICES];

uint32_t forge_pick(uint64_t *random, uint32_t below)
{
	return (uint32_t)(test_random(random) >> 16) % below;
}

static uint32_t pick(const struct forge *forge, uint32_t below)
{
	return forge_pick(forge->random, below);
}

static uint32_t any(const struct forge *forge)
{
	return (uint32_t)test_random(forge->random);
}

/* --- packets of rdma_rxe ----------------------------------------------------------------- */

static void keep(const uint8_t *frame, uint32_t bytes)
{
	const uint32_t at = frame[ETHERTYPE_AT] == 0x08 ? BTH_AT_IPV4 : BTH_AT_IPV6;
	const uint32_t length = bytes - at, service = SERVICE_OF(frame[at]);

	CHECK(bytes >= at + NUPA_BTH_BYTES + NUPA_ICRC_BYTES && length <= FORGE_BYTES);
	CHECK(n_real < REAL_MAX);
	memcpy(real[n_real].bytes, frame + at, length);
	real[n_real].length = length;
	real_of[service][n_real_of[service]++] = n_real;
	n_real++;
}

/* A classic pcap file of Ethernet, little endian. */
void forge_load(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t header[PCAP_HEADER_BYTES], record[RECORD_HEADER_BYTES], frame[2 * FORGE_BYTES];
	const uint32_t before = n_real;

	CHECK(file);
	CHECK_EQ(fread(header, 1, sizeof(header), file), sizeof(header));
	while (fread(record, 1, sizeof(record), file) == sizeof(record)) {
		uint32_t length;

		memcpy(&length, record + 8, sizeof(length));
		length = le32toh(length);
		CHECK(length > BTH_AT_IPV4 && length <= sizeof(frame));
		CHECK_EQ(fread(frame, 1, length, file), length);
		keep(frame, length);
	}
	fclose(file);
	CHECK(n_real > before);
}

static uint32_t service_of(const struct forge *forge)
{
	return forge->type == IBV_QPT_RC ? 0 : forge->type == IBV_QPT_UC ? 1 : 3;
}

/* What came behind the first one there, if it fits behind it in a datagram. */
static uint32_t replayed(uint32_t first, uint32_t nth)
{
	const uint32_t which = first + nth;

	return which < n_real && real[which].length <= real[first].length ? which : first;
}

static uint32_t shape_real(const struct forge *forge)
{
	const uint32_t service = service_of(forge);

	if (!pick(forge, 8))
		return pick(forge, n_real);
	return real_of[service][pick(forge, n_real_of[service])];
}

/* --- what they name ---------------------------------------------------------------------- */

static uint32_t psn_of(const struct forge *forge, uint32_t nth)
{
	const uint32_t psn = pick(forge, 3) ? forge->expected_psn : forge->next_psn;

	return nupa_psn_add(psn, nth + (pick(forge, 2) ? 0 : 0xfffff8 + pick(forge, 12))) &
	       0xffffff;
}

static uint64_t address_of(const struct forge *forge)
{
	switch (pick(forge, 6)) {
	case 0:
		return forge->memory + forge->bytes - pick(forge, 64);
	case 1:
		return forge->memory - pick(forge, 64);
	case 2:
		return test_random(forge->random);
	default:
		return forge->memory + pick(forge, forge->bytes - 8192) / 8 * 8;
	}
}

static uint32_t take_real(const struct forge *forge, uint32_t which, uint32_t nth, uint8_t *out)
{
	const uint32_t psn = psn_of(forge, nth);

	memcpy(out, real[which].bytes, real[which].length);
	for (uint32_t i = 0; i < 3; i++) {
		out[5 + i] = (uint8_t)(forge->qpn >> 8 * (2 - i));
		out[9 + i] = (uint8_t)(psn >> 8 * (2 - i));
	}
	if (nupa_opcode(out[0]).headers & NUPA_HEADER_RETH && pick(forge, 2)) {
		const uint64_t va = htobe64(address_of(forge));
		const uint32_t rkey = htobe32(forge->rkey);

		memcpy(out + NUPA_BTH_BYTES, &va, sizeof(va));
		memcpy(out + NUPA_BTH_BYTES + 8, &rkey, sizeof(rkey));
	}
	if (nupa_opcode(out[0]).headers & NUPA_HEADER_DETH && pick(forge, 8)) {
		const uint32_t qkey = htobe32(forge->qkey);

		memcpy(out + NUPA_BTH_BYTES, &qkey, sizeof(qkey));
	}
	return real[which].length;
}

/* --- made ones --------------------------------------------------------------------------- */

static uint8_t opcode_of(const struct forge *forge)
{
	uint8_t code;

	if (!pick(forge, 8))
		return (uint8_t)any(forge);
	if (!pick(forge, 16))
		return OPCODE_CNP;
	do
		code = (uint8_t)(service_of(forge) << 5 | pick(forge, 32));
	while (!nupa_opcode(code).known);
	return code;
}

static uint32_t make(const struct forge *forge, const struct forge_shape *shape, uint32_t nth,
		     uint8_t *out)
{
	const uint32_t bytes = shape->payload_bytes;
	const struct nupa_roce_packet packet = {
		.opcode = shape->opcode,
		.version = !pick(forge, 64),
		.pad_bytes = shape->pad_bytes,
		.syndrome = (uint8_t)any(forge),
		.flush = (uint8_t)pick(forge, 64),
		.flags = (uint8_t)any(forge),
		.pkey = pick(forge, 16) ? 0xffff : pick(forge, 65536),
		.dqpn = pick(forge, 16) ? forge->qpn : forge->qpn + pick(forge, 4),
		.psn = psn_of(forge, nth),
		.rkey = pick(forge, 8) ? forge->rkey : any(forge),
		.dma_bytes = pick(forge, 3) ? bytes + (pick(forge, 2) ? 0 : pick(forge, 9000))
					    : any(forge) >> pick(forge, 32),
		.imm = any(forge),
		.qkey = pick(forge, 8) ? forge->qkey : any(forge),
		.source_qpn = pick(forge, 1 << 24),
		.srqn = pick(forge, 1 << 24),
		.msn = pick(forge, 1 << 24),
		.va = address_of(forge),
		.swap = test_random(forge->random),
		.compare = test_random(forge->random),
		.original = test_random(forge->random),
	};
	const uint32_t length = nupa_roce_write(out, &packet);

	memset(out + length, (int)pick(forge, 256), bytes + packet.pad_bytes);
	return length + bytes + packet.pad_bytes + NUPA_ICRC_BYTES;
}

/* --- either ------------------------------------------------------------------------------ */

struct forge_shape forge_shape(const struct forge *forge)
{
	static const uint32_t odd[] = { 0, 1, 3, 4, 8, 32, 1023, 1024, 4095, 4096, 4097, 5000 };
	struct forge_shape shape = { .real = -1 };

	if (!pick(forge, 4)) {
		shape.real = (int32_t)shape_real(forge);
		return shape;
	}
	shape.opcode = opcode_of(forge);
	if (nupa_opcode(shape.opcode).payload || !pick(forge, 8))
		shape.payload_bytes = odd[pick(forge, sizeof(odd) / sizeof(odd[0]))];
	shape.pad_bytes = (uint8_t)(pick(forge, 16) ? -shape.payload_bytes & 3 : pick(forge, 4));
	return shape;
}

uint32_t forge_packet(const struct forge *forge, const struct forge_shape *shape, uint32_t nth,
		      uint8_t packet[FORGE_BYTES])
{
	const uint32_t length =
	    shape->real < 0 ? make(forge, shape, nth, packet)
			    : take_real(forge, replayed((uint32_t)shape->real, nth), nth, packet);

	for (uint32_t flips = pick(forge, 4) ? 0 : pick(forge, 4); flips; flips--)
		packet[pick(forge, pick(forge, 4) && length > 40 ? 40 : length)] ^=
		    (uint8_t)(1u << pick(forge, 8));
	return length;
}
