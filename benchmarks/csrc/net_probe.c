/* SPDX-License-Identifier: BSD-3-Clause
 * Measures the path between two IPv4 addresses.  Over TCP it is the round trip of one byte
 * (TCP_NODELAY, both ends asleep in recv).  Over UDP it is the datagrams that arrive from a sender
 * without limits, one to a system call at each end; with --segment many to one, which the kernel
 * cuts and joins (UDP_SEGMENT, UDP_GRO).  With --poll it is the round trip of a datagram, by ends
 * that never sleep.  `--serve ADDRESS` is the other end; it serves one client and ends. */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#define UDP_BYTES_MAX 65507u
#define RECEIVE_BUFFER_BYTES (4 << 20)
#define QUIET_MS 200 /* a receiver that waited so long has seen the last datagram */

#define SEGMENTS_MAX 64u /* UDP_MAX_SEGMENTS of older kernels */
#define LOOK_EVERY 4096u /* empty polls, at the connection that says when to end */

enum mode { ROUND_TRIP = 1, FLOOD, POLLED };

/* First bytes of the connection: what the server is to do. */
struct request {
	uint32_t mode;
	uint32_t bytes;   /* of a datagram, or of several that go in one call */
	uint32_t segment; /* of each of these; 0: it is one */
};

struct count {
	uint64_t datagrams;
	uint64_t ns; /* from the first to the last */
};

struct options {
	struct sockaddr_in address;
	enum mode mode;
	uint32_t bytes, segment;
	double seconds;
	bool serve;
	bool json;
};

_Noreturn static void usage(const char *program, int status)
{
	fprintf(status ? stderr : stdout,
		"usage: %s --serve --address IPV4 --port PORT\n"
		"       %s --tcp|--udp|--poll --address IPV4 --port PORT [--bytes N] "
		"[--segment N] [--seconds S] [--json]\n",
		program, program);
	exit(status);
}

static void parse(struct options *options, int argc, char **argv)
{
	static const struct option known[] = {
		{ "serve", no_argument, NULL, 'v' },
		{ "tcp", no_argument, NULL, 't' },
		{ "udp", no_argument, NULL, 'u' },
		{ "poll", no_argument, NULL, 'l' },
		{ "address", required_argument, NULL, 'a' },
		{ "port", required_argument, NULL, 'p' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "segment", required_argument, NULL, 'g' },
		{ "seconds", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const struct bench_options for_numbers = { .program = argv[0] };
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		const char *text = optarg;

		if (option == 'v')
			options->serve = true;
		else if (option == 't' || option == 'u')
			options->mode = option == 't' ? ROUND_TRIP : FLOOD;
		else if (option == 'l')
			options->mode = POLLED;
		else if (option == 'a' && inet_pton(AF_INET, text, &options->address.sin_addr) == 1)
			options->address.sin_family = AF_INET;
		else if (option == 'p')
			options->address.sin_port =
			    htons((uint16_t)bench_number(&for_numbers, &text, 1, UINT16_MAX));
		else if (option == 'b')
			options->bytes =
			    (uint32_t)bench_number(&for_numbers, &text, 1, UDP_BYTES_MAX);
		else if (option == 'g')
			options->segment =
			    (uint32_t)bench_number(&for_numbers, &text, 1, UDP_BYTES_MAX);
		else if (option == 's')
			options->seconds = strtod(optarg, NULL);
		else if (option == 'j')
			options->json = true;
		else
			usage(argv[0], option == 'h' ? 0 : 2);
	}
	if (optind != argc || options->serve == (options->mode != 0) ||
	    options->address.sin_family == 0 || options->address.sin_port == 0 ||
	    (options->segment && (options->mode != FLOOD || options->bytes % options->segment ||
				  options->bytes / options->segment > SEGMENTS_MAX)) ||
	    !(options->seconds > 0.0 && options->seconds <= BENCH_SECONDS_MAX))
		usage(argv[0], 2);
}

static int open_socket(int type)
{
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0 ||
	    (type == SOCK_STREAM && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0))
		bench_die("socket");
	return fd;
}

static void send_all(int fd, const void *data, size_t bytes)
{
	const uint8_t *from = data;

	for (size_t done = 0; done < bytes;) {
		ssize_t sent = send(fd, from + done, bytes - done, MSG_NOSIGNAL);

		if (sent < 0)
			bench_die("send");
		done += (size_t)sent;
	}
}

/* False: the other end has closed. */
static bool recv_all(int fd, void *data, size_t bytes)
{
	uint8_t *to = data;

	for (size_t done = 0; done < bytes;) {
		ssize_t got = recv(fd, to + done, bytes - done, 0);

		if (got < 0)
			bench_die("recv");
		if (got == 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

/* Datagrams from the first one on until none comes any more. */
static struct count receive_flood(int udp, const struct request *request)
{
	static uint8_t buffer[UDP_BYTES_MAX];
	struct timeval quiet = { .tv_usec = QUIET_MS * 1000 };
	struct count count = { 0 };
	uint64_t first_ns = 0, last_ns = 0;
	ssize_t got;

	while ((got = recv(udp, buffer, sizeof(buffer), 0)) >= 0) {
		const uint32_t each = request->segment ? request->segment : request->bytes;

		if ((uint32_t)got % each)
			continue;
		last_ns = bench_now_ns();
		count.datagrams += (uint32_t)got / each;
		if (!first_ns) {
			first_ns = last_ns;
			if (setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &quiet, sizeof(quiet)) != 0)
				bench_die("SO_RCVTIMEO");
		}
	}
	if (errno != EAGAIN)
		bench_die("recv");
	count.ns = last_ns - first_ns;
	return count;
}

/* Answers each datagram until the client closes its connection. */
static void answer(int udp, int fd)
{
	static uint8_t buffer[UDP_BYTES_MAX];

	for (uint32_t empty = 1;; empty++) {
		struct sockaddr_in from;
		socklen_t bytes = sizeof(from);
		const ssize_t got = recvfrom(udp, buffer, sizeof(buffer), MSG_DONTWAIT,
					     (struct sockaddr *)&from, &bytes);

		if (got > 0 &&
		    sendto(udp, buffer, (size_t)got, 0, (struct sockaddr *)&from, bytes) < 0)
			bench_die("sendto");
		if (got < 0 && empty % LOOK_EVERY == 0 && recv(fd, buffer, 1, MSG_DONTWAIT) == 0)
			return;
	}
}

static void serve(const struct sockaddr_in *address)
{
	static uint8_t buffer[UDP_BYTES_MAX];
	const struct sockaddr *name = (const struct sockaddr *)address;
	int listener = open_socket(SOCK_STREAM), udp = open_socket(SOCK_DGRAM);
	int on = 1, buffer_bytes = RECEIVE_BUFFER_BYTES;
	struct request request;

	/* More than the kernel's limit gives the limit. */
	if (setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes)) != 0 ||
	    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    bind(udp, name, sizeof(*address)) != 0 || bind(listener, name, sizeof(*address)) != 0 ||
	    listen(listener, 1) != 0)
		bench_die("bind");
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		bench_die("accept");
	if (!recv_all(fd, &request, sizeof(request)) || request.bytes > sizeof(buffer)) {
		fprintf(stderr, "the client asked for nothing that is known here\n");
		exit(1);
	}
	if (request.mode == POLLED) {
		answer(udp, fd);
	} else if (request.mode == FLOOD) {
		if (request.segment && setsockopt(udp, SOL_UDP, UDP_GRO, &on, sizeof(on)) != 0)
			bench_die("UDP_GRO");
		struct count count = receive_flood(udp, &request);

		send_all(fd, &count, sizeof(count));
	} else {
		while (recv_all(fd, buffer, request.bytes))
			send_all(fd, buffer, request.bytes);
	}
}

static void exchange(int fd, void *buffer, uint32_t bytes, bool polled)
{
	ssize_t got = -1;

	send_all(fd, buffer, bytes);
	if (!polled) {
		if (recv_all(fd, buffer, bytes))
			return;
		fprintf(stderr, "the server closed the connection\n");
		exit(1);
	}
	while (got < 0) {
		got = recv(fd, buffer, bytes, MSG_DONTWAIT);
		if (got < 0 && errno != EAGAIN)
			bench_die("recv");
	}
}

/* Median round trip, ns, of samples after the first tenth of the time. */
static double round_trip_ns(int fd, uint32_t bytes, double seconds, bool polled)
{
	static struct bench_samples samples;
	static uint8_t buffer[UDP_BYTES_MAX];
	uint64_t start_ns = bench_now_ns(), now_ns;
	uint64_t end_ns = start_ns + (uint64_t)(seconds * 1e9);
	uint64_t warm_ns = start_ns + (uint64_t)(seconds * 1e8);

	do {
		uint64_t before_ns = bench_now_ns();

		exchange(fd, buffer, bytes, polled);
		now_ns = bench_now_ns();
		if (now_ns > warm_ns)
			bench_add(&samples, (double)(now_ns - before_ns));
	} while (now_ns < end_ns);
	return bench_median(&samples);
}

/* Returns how many were sent. */
static uint64_t send_flood(const struct sockaddr_in *address, const struct options *options)
{
	static uint8_t buffer[UDP_BYTES_MAX];
	const uint64_t end_ns = bench_now_ns() + (uint64_t)(options->seconds * 1e9);
	const uint32_t bytes = options->bytes, segment = options->segment;
	const int segment_bytes = (int)segment;
	uint64_t sent = 0;
	int udp = open_socket(SOCK_DGRAM);

	if (connect(udp, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
	    (segment &&
	     setsockopt(udp, SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes)) != 0))
		bench_die("connect");
	while (bench_now_ns() < end_ns) {
		if (send(udp, buffer, bytes, 0) >= 0)
			sent += segment ? bytes / segment : 1;
		else if (errno != ENOBUFS)
			bench_die("send");
	}
	close(udp);
	return sent;
}

static void flood(int fd, const struct options *options)
{
	struct count count;
	uint64_t sent = send_flood(&options->address, options);

	if (!recv_all(fd, &count, sizeof(count)) || count.ns == 0) {
		fprintf(stderr, "of %" PRIu64 " datagrams fewer than two arrived\n", sent);
		exit(1);
	}
	double received_per_s = (double)(count.datagrams - 1) * 1e9 / (double)count.ns;
	double sent_per_s = (double)sent / options->seconds;

	printf(options->json ? "{\"sent_per_s\": %.0f, \"received_per_s\": %.0f}\n"
			     : "%.0f datagrams/s sent, %.0f received\n",
	       sent_per_s, received_per_s);
}

int main(int argc, char **argv)
{
	struct options options = { .bytes = 1, .seconds = 1.0 };

	parse(&options, argc, argv);
	signal(SIGALRM, bench_overdue);
	alarm((unsigned int)options.seconds + 10);
	if (options.serve) {
		serve(&options.address);
		return 0;
	}

	struct request request = { .mode = options.mode,
				   .bytes = options.bytes,
				   .segment = options.segment };
	int fd = open_socket(SOCK_STREAM);
	if (connect(fd, (struct sockaddr *)&options.address, sizeof(options.address)) != 0)
		bench_die("connect");
	send_all(fd, &request, sizeof(request));
	if (options.mode == FLOOD) {
		flood(fd, &options);
		return 0;
	}
	int udp = open_socket(SOCK_DGRAM);
	const bool polled = options.mode == POLLED;
	if (connect(udp, (struct sockaddr *)&options.address, sizeof(options.address)) != 0)
		bench_die("connect");
	printf(options.json ? "{\"round_trip_ns\": %.0f}\n" : "%.0f ns\n",
	       round_trip_ns(polled ? udp : fd, options.bytes, options.seconds, polled));
	return 0;
}
