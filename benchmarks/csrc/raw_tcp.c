/* SPDX-License-Identifier: BSD-3-Clause
 * TCP over loopback between two processes pinned to two cores.  Measures one-way latency by size
 * (ping-pong, half the round trip), asleep in recv and polling, and the bandwidth of a stream of
 * messages by size.  The reference of RDMA over the fabric. */
#include "bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define DRAIN_BYTES (1u << 20)
#define STREAMS 5u

enum mode { BLOCK, POLL, STREAM, N_MODES };

/* First bytes of each connection: what the server is to do. */
struct request {
	uint64_t bytes;
	uint32_t mode;
	uint32_t pad;
};

static void send_all(int fd, const uint8_t *data, size_t bytes, bool poll)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t sent =
		    send(fd, data + done, bytes - done, MSG_NOSIGNAL | (poll ? MSG_DONTWAIT : 0));

		if (sent >= 0)
			done += (size_t)sent;
		else if (!poll || errno != EAGAIN)
			bench_die("send");
	}
}

/* False: the other end has closed. */
static bool recv_all(int fd, uint8_t *data, size_t bytes, bool poll)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t got = recv(fd, data + done, bytes - done, poll ? MSG_DONTWAIT : 0);

		if (got > 0)
			done += (size_t)got;
		else if (got == 0)
			return false;
		else if (!poll || errno != EAGAIN)
			bench_die("recv");
	}
	return true;
}

static void no_delay(int fd)
{
	int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
		bench_die("TCP_NODELAY");
}

/* Receives until the end of the stream, then says how much it was. */
static void drain(int fd, uint8_t *buffer)
{
	uint64_t total = 0;
	ssize_t got;

	while ((got = recv(fd, buffer, DRAIN_BYTES, 0)) > 0)
		total += (uint64_t)got;
	if (got < 0)
		bench_die("recv");
	send_all(fd, (const uint8_t *)&total, sizeof(total), false);
}

_Noreturn static void serve(int listener, uint8_t *buffer)
{
	struct request request;

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			bench_die("accept");
		no_delay(fd);
		if (recv_all(fd, (uint8_t *)&request, sizeof(request), false)) {
			if (request.mode == STREAM)
				drain(fd, buffer);
			else
				while (recv_all(fd, buffer, request.bytes, request.mode == POLL))
					send_all(fd, buffer, request.bytes, request.mode == POLL);
		}
		close(fd);
	}
}

static int ask(const struct sockaddr_in *server, enum mode mode, uint64_t bytes)
{
	struct request request = { .bytes = bytes, .mode = mode };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (const struct sockaddr *)server, sizeof(*server)) != 0)
		bench_die("connect");
	no_delay(fd);
	send_all(fd, (const uint8_t *)&request, sizeof(request), false);
	return fd;
}

/* Median one-way time, ns. */
static double latency(const struct sockaddr_in *server, enum mode mode, uint8_t *buffer,
		      uint64_t bytes, double seconds)
{
	static struct bench_samples samples;
	int fd = ask(server, mode, bytes);
	uint64_t end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9), now_ns;

	samples.count = 0;
	do {
		uint64_t start_ns = bench_now_ns();

		send_all(fd, buffer, bytes, mode == POLL);
		if (!recv_all(fd, buffer, bytes, mode == POLL)) {
			fprintf(stderr, "the server closed the connection\n");
			exit(1);
		}
		now_ns = bench_now_ns();
		bench_add(&samples, (double)(now_ns - start_ns) / 2.0);
	} while (now_ns < end_ns);
	close(fd);
	return bench_median(&samples);
}

/* GB/s of one stream, to the acknowledgement of its last byte. */
static double stream(const struct sockaddr_in *server, const uint8_t *buffer, uint64_t bytes,
		     double seconds)
{
	int fd = ask(server, STREAM, bytes);
	uint64_t start_ns = bench_now_ns(), end_ns = start_ns + (uint64_t)(seconds * 1e9);
	uint64_t sent = 0, received = 0;

	do {
		send_all(fd, buffer, bytes, false);
		sent += bytes;
	} while (bench_now_ns() < end_ns);
	shutdown(fd, SHUT_WR);
	if (!recv_all(fd, (uint8_t *)&received, sizeof(received), false) || received != sent) {
		fprintf(stderr, "sent %" PRIu64 " bytes, %" PRIu64 " arrived\n", sent, received);
		exit(1);
	}
	end_ns = bench_now_ns();
	close(fd);
	return (double)sent / (double)(end_ns - start_ns);
}

/* Median GB/s of some streams. */
static double bandwidth(const struct sockaddr_in *server, const uint8_t *buffer, uint64_t bytes,
			double seconds)
{
	static struct bench_samples samples;

	samples.count = 0;
	for (uint32_t i = 0; i < STREAMS; i++)
		bench_add(&samples, stream(server, buffer, bytes, seconds / STREAMS));
	return bench_median(&samples);
}

static int listen_on_loopback(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){ .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)address, sizeof(*address)) != 0 ||
	    listen(fd, 4) != 0 || getsockname(fd, (struct sockaddr *)address, &length) != 0)
		bench_die("listen on 127.0.0.1");
	return fd;
}

int main(int argc, char **argv)
{
	struct bench_options options = { .seconds = 1.0,
					 .size_bytes = { 8, 64, 512, 4096, 65536, 1048576 },
					 .n_sizes = 6 };
	size_t largest_bytes = DRAIN_BYTES;
	struct sockaddr_in server;

	bench_parse(&options, argc, argv);
	bench_need_two_cpus(&options);
	for (uint32_t i = 0; i < options.n_sizes; i++)
		if (options.size_bytes[i] > largest_bytes)
			largest_bytes = options.size_bytes[i];

	int listener = listen_on_loopback(&server);
	pid_t child = bench_fork();
	bench_pin(options.cpu[child == 0]);
	uint8_t *buffer = bench_map(largest_bytes, false);
	if (child == 0)
		serve(listener, buffer);
	close(listener);

	double part_seconds = options.seconds / (N_MODES * options.n_sizes);
	if (options.json)
		printf("{\"cpus\": [%d, %d], \"results\": [", options.cpu[0], options.cpu[1]);
	else
		printf("%10s  %16s  %16s  %10s\n", "bytes", "one way, asleep", "one way, polling",
		       "stream");
	for (uint32_t i = 0; i < options.n_sizes; i++) {
		uint64_t bytes = options.size_bytes[i];
		double block_ns = latency(&server, BLOCK, buffer, bytes, part_seconds);
		double poll_ns = latency(&server, POLL, buffer, bytes, part_seconds);
		double gb_per_s = bandwidth(&server, buffer, bytes, part_seconds);

		if (options.json)
			printf("%s{\"bytes\": %" PRIu64 ", \"block_ns\": %.1f, \"poll_ns\": %.1f, "
			       "\"gb_per_s\": %.4f}",
			       i ? ", " : "", bytes, block_ns, poll_ns, gb_per_s);
		else
			printf("%10" PRIu64 "  %13.0f ns  %13.0f ns  %5.3f GB/s\n", bytes, block_ns,
			       poll_ns, gb_per_s);
	}
	if (options.json)
		printf("]}\n");
	bench_end(child);
	return 0;
}
