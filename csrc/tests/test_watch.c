/* SPDX-License-Identifier: BSD-3-Clause
 * Watching a fabric: who records, what is read, in which order, and the packets that it becomes. */
#include "end.h"
#include "watch.h"

#include <errno.h>
#include <string.h>

#define BUFFER_BYTES (1u << 20)

static uint8_t buffer[BUFFER_BYTES];
static char why[256];

struct seen {
	struct nupa_watch_packet head;
	uint8_t data[256];
};

static struct seen packets[4096];
static uint32_t n_packets;

/* Reads all that there is. */
static void read_all(struct nupa_watch *watch)
{
	uint32_t n;

	n_packets = 0;
	do {
		size_t bytes = nupa_watch_read(watch, buffer, sizeof(buffer), &n);
		size_t at = 0;

		for (uint32_t i = 0; i < n; i++) {
			struct seen *seen = &packets[n_packets];

			CHECK(n_packets < 4096);
			memcpy(&seen->head, buffer + at, sizeof(seen->head));
			memset(seen->data, 0, sizeof(seen->data));
			memcpy(seen->data, buffer + at + sizeof(seen->head),
			       seen->head.captured_bytes < sizeof(seen->data)
				   ? seen->head.captured_bytes
				   : sizeof(seen->data));
			at += sizeof(seen->head) + ((seen->head.captured_bytes + 7u) & ~7u);
			CHECK(!n_packets || seen->head.ts_ns >= seen[-1].head.ts_ns);
			n_packets++;
		}
		CHECK_EQ(at, bytes);
	} while (n);
}

static struct nupa_watch *watch_fabric(struct nupa_fabric *fabric, uint32_t levels)
{
	struct nupa_watch *watch = nupa_watch_open(fabric, levels, 0, NULL, 0, why, sizeof(why));

	CHECK(watch);
	return watch;
}

static uint32_t opcode_of(const struct seen *seen)
{
	return seen->data[42];
}

static uint32_t psn_of(const struct seen *seen)
{
	return (uint32_t)seen->data[51] << 16 | (uint32_t)seen->data[52] << 8 | seen->data[53];
}

static void a_send_is_seen_with_its_acknowledgement(void)
{
	/* SEND FIRST, LAST, ACK; WRITE ONLY, ACK; READ REQUEST, RESPONSE ONLY */
	static const uint32_t opcodes[] = { 0x00, 0x02, 0x11, 0x0a, 0x11, 0x0c, 0x10 };
	static const uint32_t psns[] = { 0, 1, 1, 2, 2, 3, 3 };
	struct nupa_fabric *fabric = test_fabric();
	uint32_t first;
	struct end *a, *b;
	struct nupa_watch *watch;

	pair_open(fabric, &end_defaults, &a, &b);
	watch = watch_fabric(fabric, NUPA_TRACE_TRANSPORT);
	pattern_fill(a->memory, 5000, 1);
	end_post_recv(b, 1, 0, 8192);
	end_start(a, IBV_WR_SEND, 2, 0, 5000);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	end_start(a, IBV_WR_RDMA_WRITE, 3, 0, 64);
	cq_expect(a->send_cq, 3, IBV_WC_SUCCESS);
	end_start(a, IBV_WR_RDMA_READ, 4, 0, 3000);
	cq_expect(a->send_cq, 4, IBV_WC_SUCCESS);
	read_all(watch);
	first = a->self.psn;
	CHECK_EQ(n_packets, 7);
	for (uint32_t i = 0; i < n_packets; i++) {
		CHECK_EQ(opcode_of(&packets[i]), opcodes[i]);
		CHECK_EQ(psn_of(&packets[i]), first + psns[i]);
	}
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(a_send_is_seen_with_its_acknowledgement),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
