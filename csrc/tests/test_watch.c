/* SPDX-License-Identifier: BSD-3-Clause
 * Watching a fabric: who records, what is read, in which order, and the packets that it becomes. */
#include "atomics.h"
#include "end.h"
#include "recorder.h"
#include "segment_internal.h"
#include "watch.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* --- who is told --------------------------------------------------------------------- */

static uint32_t word_of(const struct nupa_fabric *fabric)
{
	return nupa_load_relaxed(&fabric->sb->trace);
}

static void all_watches_together_say_what_is_recorded(void)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_watch *net, *queue;

	CHECK_EQ(word_of(fabric), 0);
	net = nupa_watch_open(fabric, NUPA_TRACE_NET, 96, NULL, 0, why, sizeof(why));
	CHECK_EQ(word_of(fabric), NUPA_TRACE_WORD(NUPA_TRACE_NET, 96));
	queue = nupa_watch_open(fabric, NUPA_TRACE_QUEUE, 64, NULL, 0, why, sizeof(why));
	CHECK_EQ(word_of(fabric), NUPA_TRACE_WORD(NUPA_TRACE_NET | NUPA_TRACE_QUEUE, 96));
	nupa_watch_stop(net);
	CHECK_EQ(word_of(fabric), NUPA_TRACE_WORD(NUPA_TRACE_QUEUE, 64));
	nupa_watch_close(net);
	nupa_watch_close(queue);
	CHECK_EQ(word_of(fabric), 0);
	nupa_fabric_put(fabric);
}

static void attachments_record_when_the_watch_is_open(void)
{
	struct nupa_fabric *fabric = test_fabric();
	struct end *a, *b;
	struct nupa_watch *watch;

	pair_open(fabric, &end_defaults, &a, &b);
	watch = watch_fabric(fabric, NUPA_TRACE_NET);
	for (uint32_t i = 1; i < fabric->geometry.n_slots; i++)
		if (NUPA_CLAIM_STATE(fabric->slots[i].claim) == NUPA_SLOT_LIVE)
			CHECK_EQ(nupa_load_relaxed(&fabric->slots[i].trace_seen), word_of(fabric));
	nupa_watch_close(watch);
	fabric_close(fabric, a, b);
}

static void no_more_watches_than_there_is_room_for(void)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_watch *watches[NUPA_WATCHERS_MAX];

	for (uint32_t i = 0; i < NUPA_WATCHERS_MAX; i++)
		watches[i] = watch_fabric(fabric, NUPA_TRACE_NET);
	CHECK(!nupa_watch_open(fabric, NUPA_TRACE_NET, 0, NULL, 0, why, sizeof(why)));
	CHECK_EQ(errno, EUSERS);
	nupa_watch_close(watches[3]);
	watches[3] = watch_fabric(fabric, NUPA_TRACE_NET);
	for (uint32_t i = 0; i < NUPA_WATCHERS_MAX; i++)
		nupa_watch_close(watches[i]);
	nupa_fabric_put(fabric);
}

static void what_cannot_be_watched_is_refused(void)
{
	struct nupa_fabric *fabric = test_fabric();
	const uint16_t port = (uint16_t)nupa_fabric_n_ports(fabric);

	CHECK(!nupa_watch_open(fabric, 0, 0, NULL, 0, why, sizeof(why)));
	CHECK_EQ(errno, EINVAL);
	CHECK(!nupa_watch_open(fabric, 16, 0, NULL, 0, why, sizeof(why)));
	CHECK_EQ(errno, EINVAL);
	CHECK(!nupa_watch_open(fabric, 1, 0, &port, 1, why, sizeof(why)));
	CHECK_EQ(errno, EINVAL);
	CHECK(strstr(why, "port"));
	CHECK_EQ(word_of(fabric), 0);
	nupa_fabric_put(fabric);
}

static void a_dead_watcher_is_forgotten(void)
{
	struct nupa_fabric *fabric = test_fabric();
	struct nupa_watch *watch;
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(nupa_watch_open(fabric, NUPA_TRACE_TLP, 0, NULL, 0, why, sizeof(why)) ? 0
											    : 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(NUPA_TRACE_LEVELS(word_of(fabric)) == NUPA_TRACE_TLP);
	watch = watch_fabric(fabric, NUPA_TRACE_NET);
	CHECK_EQ(NUPA_TRACE_LEVELS(word_of(fabric)), NUPA_TRACE_NET);
	nupa_watch_close(watch);
	CHECK_EQ(word_of(fabric), 0);
	nupa_fabric_put(fabric);
}

/* --- what is read -------------------------------------------------------------------- */

/* Two attachments that record what they are told to, and a watch of them. */
struct two {
	struct nupa_fabric *fabric;
	struct recorder a, b;
	struct nupa_watch *watch;
};

static struct two two_open(uint32_t levels)
{
	struct two two = { .fabric = test_fabric() };

	two.a = recorder_open(two.fabric, 0);
	two.b = recorder_open(two.fabric, 1);
	two.watch = watch_fabric(two.fabric, levels);
	return two;
}

static void two_close(struct two *two)
{
	nupa_watch_close(two->watch);
	recorder_close(&two->a);
	recorder_close(&two->b);
	nupa_fabric_put(two->fabric);
}

static struct nupa_watch_counts counts_of(const struct two *two)
{
	struct nupa_watch_counts counts;

	nupa_watch_counts(two->watch, &counts);
	return counts;
}

/* A SEND with this PSN. */
static void put_send(struct recorder *from, const struct recorder *to, uint32_t psn, uint32_t bytes)
{
	static uint8_t data[65536];
	struct nupa_msg msg = {
		.op = NUPA_OP_SEND,
		.flags = NUPA_F_FIRST | NUPA_F_LAST,
		.src_qpn = from->slot << 16 | 1,
		.dest_qpn = to->slot << 16 | 2,
		.psn = psn,
		.length_bytes = bytes,
	};

	recorder_message(from, to, msg, 2, data, bytes);
}

/* Frames that are all alike but for their first bytes. */
static void put_frame(struct recorder *from, uint32_t to_host, uint8_t first, uint8_t gso_type,
		      uint8_t flags, uint64_t time_ns)
{
	uint8_t data[100] = { first, [12] = 0x08, [14] = 0x45, [16] = 0xaa, [17] = 0xbb };
	struct nupa_trace_frame body = {
		.data = { .total_bytes = 9000, .mtu_bytes = 9000, .piece_bytes = sizeof(data) },
		.gso_type = gso_type,
	};
	struct nupa_trace_record record = { .kind = NUPA_TRACE_FRAME,
					    .flags = flags,
					    .peer = (uint16_t)(to_host + 1) };

	recorder_put(from, record, time_ns, &body, sizeof(body), data, sizeof(data));
}

static void rings_are_merged_by_time(void)
{
	struct two two = two_open(NUPA_TRACE_NET);
	uint64_t now_ns = test_now_ns();

	for (uint32_t i = 0; i < 100; i++)
		put_frame(i % 3 ? &two.a : &two.b, i % 3 ? 1 : 0, (uint8_t)(2 * i), 0, 0,
			  now_ns + i);
	do
		read_all(two.watch);
	while (!n_packets);
	CHECK_EQ(n_packets, 100);
	for (uint32_t i = 0; i < 100; i++) {
		CHECK_EQ(packets[i].data[0], 2 * i & 255);
		CHECK_EQ(packets[i].head.host, i % 3 ? 0 : 1);
	}
	two_close(&two);
}

static void what_was_overwritten_is_counted(void)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	uint32_t n_records = 0, first;

	for (; two.a.header->tail < 3 * (uint64_t)NUPA_TRACE_BYTES + 500000; n_records++)
		put_send(&two.a, &two.b, n_records, 20000);
	read_all(two.watch);
	CHECK_EQ(counts_of(&two).invalid, 0);
	CHECK_EQ(counts_of(&two).lost + counts_of(&two).records, n_records);
	CHECK(counts_of(&two).records > 20 && counts_of(&two).lost > 100);
	/* What is there is whole, and the end of all. */
	first = psn_of(&packets[0]);
	for (uint32_t i = 0; i < n_packets; i++)
		CHECK_EQ(psn_of(&packets[i]), first + i);
	two_close(&two);
}

static void what_an_owner_recorded_before_its_end_is_read(void)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct recorder again;
	uint32_t slot = two.a.slot;

	put_send(&two.a, &two.b, 1, 10);
	read_all(two.watch);
	CHECK_EQ(n_packets, 1);
	put_send(&two.a, &two.b, 2, 10);
	recorder_close(&two.a);
	read_all(two.watch);
	CHECK_EQ(n_packets, 1);
	/* Who has the slot next is another one. */
	again = recorder_open(two.fabric, 0);
	CHECK_EQ(again.slot, slot);
	put_send(&again, &two.b, 0x1000007, 10);
	read_all(two.watch);
	CHECK_EQ(n_packets, 1);
	CHECK_EQ(psn_of(&packets[0]), 7);
	CHECK_EQ(counts_of(&two).lost, 0);
	two.a = again;
	two_close(&two);
}

static void memory_of_the_dead_is_given_back_when_nobody_watches(void)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct nupa_fabric *fabric = nupa_fabric_get(two.fabric);
	uint32_t slot = two.a.slot;

	put_send(&two.a, &two.b, 1, 10);
	recorder_close(&two.a);
	CHECK(nupa_fabric_arena_held(fabric, slot));
	nupa_watch_close(two.watch);
	CHECK(!nupa_fabric_arena_held(fabric, slot));
	recorder_close(&two.b);
	nupa_fabric_put(two.fabric);
	nupa_fabric_put(fabric);
}

static void a_stopped_watch_shows_nothing_new(void)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);

	put_send(&two.a, &two.b, 1, 10);
	nupa_watch_stop(two.watch);
	put_send(&two.a, &two.b, 2, 10);
	read_all(two.watch);
	CHECK_EQ(n_packets, 1);
	CHECK_EQ(psn_of(&packets[0]), 1);
	two_close(&two);
}

static void nonsense_is_counted_and_passed(void)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct nupa_trace_record *record = (void *)(two.a.header + 1);

	put_send(&two.a, &two.b, 1, 10);
	record->bytes = 12;
	put_send(&two.b, &two.a, 5, 10);
	read_all(two.watch);
	CHECK_EQ(n_packets, 1);
	CHECK_EQ(psn_of(&packets[0]), 5);
	CHECK_EQ(counts_of(&two).invalid, 1);
	put_send(&two.a, &two.b, 2, 10);
	read_all(two.watch);
	CHECK_EQ(n_packets, 1);
	two_close(&two);
}

static void a_message_larger_than_the_buffer_comes_in_parts(void)
{
	struct two two = two_open(NUPA_TRACE_TRANSPORT);
	struct nupa_trace_message body = {
		.msg = { .op = NUPA_OP_WRITE,
			 .flags = NUPA_F_FIRST | NUPA_F_LAST,
			 .src_qpn = two.a.slot << 16,
			 .dest_qpn = two.b.slot << 16,
			 .psn = 0xfffff0,
			 .reth = { 0x1000, 7, 20000000 } },
		.data = { .total_bytes = 20000000, .mtu_bytes = 1024, .piece_bytes = 8 },
		.qp_type = 2,
		.dest_host = 1,
	};
	struct nupa_trace_record record = { .kind = NUPA_TRACE_MESSAGE, .peer = 2, .transfer = 9 };
	static uint8_t data[19532 * 8];
	uint32_t n, total = 0;

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i / 8);
	recorder_put(&two.a, record, 0, &body, sizeof(body), data, sizeof(data));
	for (;;) {
		size_t bytes = nupa_watch_read(two.watch, buffer, sizeof(buffer), &n);
		struct nupa_watch_packet *packet = (void *)buffer;

		if (!bytes)
			break;
		for (uint32_t i = 0; i < n; i++, total++) {
			uint8_t *at = (uint8_t *)(packet + 1);
			uint32_t headers = total ? 54 : 70;

			CHECK_EQ(packet->sequence, total);
			CHECK_EQ((at[51] << 16 | at[52] << 8 | at[53]),
				 (0xfffff0 + total) & 0xffffff);
			CHECK_EQ(packet->captured_bytes, headers + 8);
			CHECK_EQ(at[headers], total & 255);
			packet = (void *)(at + ((packet->captured_bytes + 7u) & ~7u));
		}
	}
	CHECK_EQ(total, 19532);
	two_close(&two);
}

static void a_super_frame_has_its_own_length(void)
{
	struct two two = two_open(NUPA_TRACE_NET);

	put_frame(&two.a, 1, 2, 1, 0, 0);
	put_frame(&two.a, 1, 2, 0, 0, 0);
	read_all(two.watch);
	CHECK_EQ(n_packets, 2);
	CHECK_EQ(packets[0].head.captured_bytes, 100);
	CHECK_EQ(packets[0].head.original_bytes, 9000);
	CHECK_EQ(packets[0].data[16] << 8 | packets[0].data[17], 9000 - 14);
	CHECK_EQ(packets[1].data[16] << 8 | packets[1].data[17], 0xaabb);
	two_close(&two);
}

static void a_frame_to_all_leaves_its_source_once(void)
{
	struct two two = two_open(NUPA_TRACE_NET);

	put_frame(&two.a, 1, 0xff, 0, 0, 0);
	put_frame(&two.a, 0, 0xff, 0, 0, 0);
	put_frame(&two.a, 1, 0xff, 0, 0, 0); /* the next one: host 1 has had the first */
	read_all(two.watch);
	CHECK_EQ(n_packets, 2);
	two_close(&two);
}

static void a_fault_is_seen_where_it_happened(void)
{
	struct two two = two_open(NUPA_TRACE_NET | NUPA_TRACE_TRANSPORT);
	struct nupa_trace_message body = {
		.msg = { .op = NUPA_OP_SEND, .flags = 3, .src_qpn = two.a.slot << 16, .psn = 4 },
		.data = { .mtu_bytes = 4096, .piece_bytes = 4096 },
		.qp_type = 2,
		.dest_host = 1,
	};
	struct nupa_trace_record record = { .kind = NUPA_TRACE_MESSAGE,
					    .flags = NUPA_TRACE_DROPPED,
					    .peer = (uint16_t)two.a.slot };

	put_frame(&two.b, 1, 2, 0, NUPA_TRACE_CORRUPT, 0);
	recorder_put(&two.b, record, 0, &body, sizeof(body), NULL, 0);
	read_all(two.watch);
	CHECK_EQ(n_packets, 2);
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(packets[i].head.port, test_fabric_port(1));
		CHECK_EQ(packets[i].head.host, 1);
		CHECK_EQ(packets[i].head.direction, 1);
	}
	CHECK_EQ(packets[0].head.flags, 8);
	CHECK_EQ(packets[1].head.flags & 32, 32);
	CHECK_EQ(psn_of(&packets[1]), 4);
	two_close(&two);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		CASE(a_send_is_seen_with_its_acknowledgement),
		CASE(all_watches_together_say_what_is_recorded),
		CASE(attachments_record_when_the_watch_is_open),
		CASE(no_more_watches_than_there_is_room_for),
		CASE(what_cannot_be_watched_is_refused),
		CASE(a_dead_watcher_is_forgotten),
		CASE(rings_are_merged_by_time),
		CASE(what_was_overwritten_is_counted),
		CASE(what_an_owner_recorded_before_its_end_is_read),
		CASE(memory_of_the_dead_is_given_back_when_nobody_watches),
		CASE(a_stopped_watch_shows_nothing_new),
		CASE(nonsense_is_counted_and_passed),
		CASE(a_message_larger_than_the_buffer_comes_in_parts),
		CASE(a_super_frame_has_its_own_length),
		CASE(a_frame_to_all_leaves_its_source_once),
		CASE(a_fault_is_seen_where_it_happened),
	};

	return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
