/* SPDX-License-Identifier: BSD-3-Clause */
/* Forwards Ethernet frames between two interfaces and impairs those of one UDP port, by a seed.
 *
 *   impair IFACE IFACE SEED PORT LOSS DUPLICATE REORDER CORRUPT MARK [RECORD]
 *
 * LOSS to MARK are probabilities, 0 to 1.  PORT 0: all frames, of which none is corrupted or
 * marked. It prints a line when it forwards, and its counts when SIGTERM ends it.  The decision
 * about the nth packet of a direction follows from the seed.  netem(8) has no seed before
 * Linux 6.6, and not every kernel has netem.  The file RECORD has the last packets of RoCE v2 at
 * any time (record.py).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_BYTES 65536u
#define HELD 64u
#define HOLD_FRAMES 8u
#define HOLD_NS 2000000u /* then it goes, even if no frame follows */
#define PASSAGES 65536u
#define BTH_BYTES 12u

enum { LOSS, DUPLICATE, REORDER, CORRUPT, MARK, KINDS };
static const char *const NAMES[KINDS] = { "lost", "duplicated", "reordered", "corrupted",
					  "marked" };

struct held {
	uint8_t *frame; /* NULL: free */
	ssize_t bytes;
	uint64_t after, until_ns;
};

struct direction {
	int in, out;
	uint8_t number;
	uint64_t random, passed;
	struct held held[HELD];
};

/* A packet as it came, and what was done to it. */
struct passage {
	uint64_t ns; /* CLOCK_MONOTONIC */
	uint32_t dqpn, psn, bytes;
	uint8_t way, opcode, hits, headers[9]; /* what follows the BTH, as far as it goes */
};

struct record {
	uint64_t n; /* so many have passed */
	struct passage last[PASSAGES];
};

static struct record *record; /* NULL: none */
static double probability[KINDS];
static uint64_t counts[KINDS], forwarded, selected;
static unsigned port;
static volatile sig_atomic_t ended;

static void end(int number)
{
	(void)number;
	ended = 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* splitmix64 */
static uint64_t draw(struct direction *way)
{
	uint64_t z = way->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static int open_interface(const char *name)
{
	int one = 1, size = 8 << 20, fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = (int)if_nametoindex(name) };
	if (fd < 0 || at.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) != 0) {
		perror(name);
		exit(1);
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	return fd;
}

static uint32_t word16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

/* RFC 1624: the checksum at SUM after the word at AT was OLD. */
static void adjust(uint8_t *sum, const uint8_t *at, uint32_t old)
{
	uint32_t value = (~word16(sum) & 0xffff) + (~old & 0xffff) + word16(at);
	value = (value & 0xffff) + (value >> 16);
	value = ~((value & 0xffff) + (value >> 16)) & 0xffff;
	sum[0] = (uint8_t)(value >> 8);
	sum[1] = (uint8_t)value;
}

/* Returns the offset of the UDP header of a whole datagram to the port; 0: none. */
static size_t udp_header(const uint8_t *frame, size_t bytes)
{
	size_t at = 0;
	if (bytes >= 14 + 20 && word16(frame + 12) == ETHERTYPE_IP &&
	    frame[14 + 9] == IPPROTO_UDP && (word16(frame + 14 + 6) & 0x3fff) == 0)
		at = 14 + 4 * (size_t)(frame[14] & 15);
	else if (bytes >= 14 + 40 && word16(frame + 12) == ETHERTYPE_IPV6 &&
		 frame[14 + 6] == IPPROTO_UDP)
		at = 14 + 40;
	return at != 0 && bytes > at + 8 && word16(frame + at + 2) == port ? at : 0;
}

/* Flips one to three bits of the payload; the UDP checksum stays right, if there is one. */
static void corrupt(struct direction *way, uint8_t *frame, size_t udp)
{
	size_t payload = word16(frame + udp + 4) - 8;
	for (unsigned flips = 1 + draw(way) % 3; flips > 0; flips--) {
		size_t at = udp + 8 + draw(way) % (payload & ~(size_t)1);
		uint8_t *word = frame + udp + ((at - udp) & ~(size_t)1);
		uint32_t old = word16(word);
		frame[at] ^= (uint8_t)(1u << draw(way) % 8);
		if (word16(frame + udp + 6) != 0)
			adjust(frame + udp + 6, word, old);
	}
}

/* Congestion experienced, where the sender says that it understands it. */
static bool mark(uint8_t *frame)
{
	uint8_t *ip = frame + 14;
	uint32_t old = word16(ip);
	bool six = ip[0] >> 4 == 6;
	uint8_t *traffic_class = ip + 1, ce = six ? 0x30 : 0x03;
	if ((*traffic_class & ce) == 0)
		return false;
	*traffic_class |= ce;
	if (!six)
		adjust(ip + 10, ip, old);
	return true;
}

static struct record *open_record(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	void *at;
	if (fd < 0 || ftruncate(fd, sizeof(struct record)) != 0 ||
	    (at = mmap(NULL, sizeof(struct record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
		MAP_FAILED) {
		perror(path);
		exit(1);
	}
	close(fd);
	return at;
}

/* Of the packet whose UDP header is at *udp*. */
static void note(const struct direction *way, const uint8_t *frame, size_t udp, const bool *hit)
{
	const uint8_t *bth = frame + udp + 8;
	size_t bytes = word16(frame + udp + 4) - 8;
	struct passage passed = { .ns = now_ns(), .bytes = (uint32_t)bytes, .way = way->number };
	if (bytes < BTH_BYTES)
		return;
	passed.opcode = bth[0];
	passed.dqpn = (uint32_t)bth[5] << 16 | word16(bth + 6);
	passed.psn = (uint32_t)bth[9] << 16 | word16(bth + 10);
	for (unsigned kind = 0; kind < KINDS; kind++)
		passed.hits |= (uint8_t)(hit[kind] << kind);
	bytes -= BTH_BYTES;
	memcpy(passed.headers, bth + BTH_BYTES,
	       bytes < sizeof(passed.headers) ? bytes : sizeof(passed.headers));
	record->last[record->n % PASSAGES] = passed;
	__atomic_store_n(&record->n, record->n + 1, __ATOMIC_RELEASE);
}

static void put(struct direction *way, const uint8_t *frame, ssize_t bytes)
{
	while (send(way->out, frame, (size_t)bytes, 0) < 0 && errno == ENOBUFS && !ended)
		usleep(50);
	forwarded++;
}

static void hold(struct direction *way, const uint8_t *frame, ssize_t bytes, uint64_t frames)
{
	for (unsigned i = 0; i < HELD; i++) {
		struct held *held = &way->held[i];
		if (held->frame != NULL)
			continue;
		held->frame = malloc((size_t)bytes);
		if (held->frame == NULL)
			abort();
		memcpy(held->frame, frame, (size_t)bytes);
		held->bytes = bytes;
		held->after = way->passed + frames;
		held->until_ns = now_ns() + HOLD_NS;
		return;
	}
	put(way, frame, bytes);
}

static void release(struct direction *way, uint64_t now)
{
	for (unsigned i = 0; i < HELD; i++) {
		struct held *held = &way->held[i];
		if (held->frame == NULL || (held->after > way->passed && held->until_ns > now))
			continue;
		put(way, held->frame, held->bytes);
		free(held->frame);
		held->frame = NULL;
	}
}

static void handle(struct direction *way, uint8_t *frame, ssize_t bytes)
{
	size_t udp = port == 0 ? 0 : udp_header(frame, (size_t)bytes);
	bool hit[KINDS];
	if (port != 0 && udp == 0) {
		put(way, frame, bytes);
		return;
	}
	selected++;
	way->passed++;
	for (unsigned kind = 0; kind < KINDS; kind++)
		hit[kind] = (double)(draw(way) >> 11) * 0x1p-53 < probability[kind];
	uint64_t frames = 1 + draw(way) % HOLD_FRAMES;
	if (record != NULL && udp != 0)
		note(way, frame, udp, hit);
	if (hit[LOSS]) {
		counts[LOSS]++;
		release(way, now_ns());
		return;
	}
	if (udp != 0 && hit[MARK] && mark(frame))
		counts[MARK]++;
	if (hit[DUPLICATE]) {
		counts[DUPLICATE]++;
		hold(way, frame, bytes, frames);
	}
	if (udp != 0 && hit[CORRUPT] && word16(frame + udp + 4) > 9) {
		counts[CORRUPT]++;
		corrupt(way, frame, udp);
	}
	if (hit[REORDER]) {
		counts[REORDER]++;
		hold(way, frame, bytes, frames);
	} else {
		put(way, frame, bytes);
	}
	release(way, now_ns());
}

static bool holds(const struct direction *way)
{
	for (unsigned i = 0; i < HELD; i++) {
		if (way->held[i].frame != NULL)
			return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	static uint8_t frame[FRAME_BYTES];
	struct direction way[2] = { 0 };
	if (argc != 5 + KINDS && argc != 6 + KINDS)
		return 2;
	if (argc == 6 + KINDS)
		record = open_record(argv[5 + KINDS]);
	for (int i = 0; i < 2; i++) {
		way[i].number = (uint8_t)i;
		way[i].in = way[1 - i].out = open_interface(argv[1 + i]);
		way[i].random = strtoull(argv[3], NULL, 0) * 2 + (unsigned)i;
	}
	port = (unsigned)atoi(argv[4]);
	for (int kind = 0; kind < KINDS; kind++)
		probability[kind] = atof(argv[5 + kind]);
	signal(SIGTERM, end);
	puts("forwarding");
	fflush(stdout);
	struct pollfd polled[2] = { { .fd = way[0].in, .events = POLLIN },
				    { .fd = way[1].in, .events = POLLIN } };
	while (!ended) {
		poll(polled, 2, holds(&way[0]) || holds(&way[1]) ? 1 : 100);
		for (int i = 0; i < 2; i++) {
			for (unsigned turn = 0; turn < 64; turn++) {
				ssize_t bytes = recv(way[i].in, frame, sizeof(frame), MSG_DONTWAIT);
				if (bytes <= 0)
					break;
				handle(&way[i], frame, bytes);
			}
			release(&way[i], now_ns());
		}
	}
	printf("{\"forwarded\": %llu, \"selected\": %llu", (unsigned long long)forwarded,
	       (unsigned long long)selected);
	for (int kind = 0; kind < KINDS; kind++)
		printf(", \"%s\": %llu", NAMES[kind], (unsigned long long)counts[kind]);
	puts("}");
	return 0;
}
