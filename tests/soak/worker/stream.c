/* SPDX-License-Identifier: BSD-3-Clause
 * The stream of operations of one direction of a link, and the bytes in them.  Both follow from the
 * link's seed, so that sender and receiver agree without a message. */
#include "soak.h"

#include <string.h>

uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t z = a + b * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint32_t choose_bytes(uint64_t random)
{
	static const uint32_t limits[] = { 1,    65,   65,    65,    4097,
					   4097, 4097, 65537, 65537, MESSAGE_MAX_BYTES + 1 };
	uint32_t limit = limits[random % 10];

	return (uint32_t)(random >> 8) % limit;
}

struct step stream_next(struct stream *stream)
{
	static const uint32_t reliable[] = {
		IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,  IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_SEND,       IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	static const uint32_t unreliable[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
					       IBV_WR_RDMA_WRITE_WITH_IMM };
	uint64_t random = mix(stream->seed, stream->next);
	struct step step = {
		.number = stream->next++,
		.seed = random,
		.bits = (uint32_t)mix(random, 1),
		.imm = (uint32_t)mix(random, 2),
		.bytes = choose_bytes(mix(random, 3)),
	};

	step.opcode = stream->reliable ? reliable[random % 12] : unreliable[random % 4];
	/* There has to be a place for it. */
	if (stream->unannounced == WINDOWS &&
	    (step.opcode == IBV_WR_RDMA_WRITE || step.opcode == IBV_WR_RDMA_WRITE_WITH_IMM))
		step.opcode = IBV_WR_SEND;
	if (stream->xrc && step.opcode == IBV_WR_SEND_WITH_INV)
		step.opcode = IBV_WR_SEND;
	switch (step.opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		step.writes = true;
		step.write = stream->writes++;
		stream->unannounced++;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		step.bytes = 8;
		break;
	default:
		break;
	}
	step.announces = step.opcode == IBV_WR_SEND || step.opcode == IBV_WR_SEND_WITH_IMM ||
			 step.opcode == IBV_WR_SEND_WITH_INV ||
			 step.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	if (step.announces)
		stream->unannounced = 0;
	return step;
}

/* Word i of a pattern. */
static uint64_t word_of(uint64_t seed, uint64_t i)
{
	uint64_t z = (seed ^ i) * UINT64_C(0x9e3779b97f4a7c15);

	return z ^ (z >> 32);
}

void pattern_fill(uint8_t *at, size_t bytes, uint64_t seed, uint64_t offset)
{
	while (bytes) {
		uint64_t word = word_of(seed, offset / 8);
		size_t from = offset % 8, n = 8 - from < bytes ? 8 - from : bytes;

		memcpy(at, (uint8_t *)&word + from, n);
		at += n;
		offset += n;
		bytes -= n;
	}
}

size_t pattern_match(const uint8_t *at, size_t bytes, uint64_t seed, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		uint64_t word = word_of(seed, (offset + done) / 8);
		size_t from = (offset + done) % 8;
		size_t n = 8 - from < bytes - done ? 8 - from : bytes - done;

		if (memcmp(at + done, (uint8_t *)&word + from, n) != 0)
			return done;
		done += n;
	}
	return bytes;
}
