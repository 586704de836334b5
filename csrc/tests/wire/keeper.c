/* SPDX-License-Identifier: BSD-3-Clause
 * A keeper for tests: it gives each process that joins a socket of its own, and steers nothing. */
#define _GNU_SOURCE
#include "tests/wire/keeper.h"

#include "engine/core/qp.h"
#include "wire/keeper_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

/* The GID of an address of either family. */
static void set_gid(uint8_t gid[16], const char *address)
{
	if (strchr(address, ':')) {
		CHECK_EQ(inet_pton(AF_INET6, address, gid), 1);
		return;
	}
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	CHECK_EQ(inet_pton(AF_INET, address, gid + 12), 1);
}

int wired_socket(const uint8_t gid[16], uint16_t port)
{
	const int on = 1, discover = IP_PMTUDISC_DO;
	union nupa_keeper_address address;
	int fd;

	nupa_keeper_address(gid, port, &address);
	fd = socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
	if (nupa_keeper_is_ipv4(gid))
		CHECK_EQ(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover)),
			 0);
	CHECK_EQ(bind(fd, &address.any, nupa_keeper_address_bytes(&address)), 0);
	return fd;
}

static void welcome(struct keeper *keeper, int fd)
{
	struct nupa_wire_hello hello;
	struct nupa_wire_welcome answer = { .magic = NUPA_WIRE_MAGIC,
					    .version = NUPA_WIRE_VERSION,
					    .index = keeper->n_joined };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS,
				  .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec piece = { &answer, sizeof(answer) };
	struct msghdr msg = { .msg_iov = &piece,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	int udp = keeper->medium == NUPA_WIRE_FRAMES
		      ? -1
		      : wired_socket(keeper->local, NUPA_WIRE_UDP_PORT);

	CHECK_EQ(recv(fd, &hello, sizeof(hello), 0), sizeof(hello));
	CHECK_EQ(hello.magic, NUPA_WIRE_MAGIC);
	if (udp < 0)
		msg.msg_controllen = 0;
	memcpy(CMSG_DATA(&control.header), &udp, sizeof(udp));
	CHECK_EQ(sendmsg(fd, &msg, MSG_NOSIGNAL), sizeof(answer));
	if (udp >= 0)
		close(udp);
	keeper->joined[keeper->n_joined] = fd;
	nupa_store_release(&keeper->n_joined, keeper->n_joined + 1);
}

/* A folder of its own: a case that failed leaves its folder, and pids come again. */
void wired_path(char path[WIRED_PATH_BYTES])
{
	char folder[] = "/tmp/nupa-test-wire-XXXXXX";

	CHECK(mkdtemp(folder));
	snprintf(path, WIRED_PATH_BYTES, "%s/socket", folder);
}

void wired_path_remove(const char path[WIRED_PATH_BYTES])
{
	char folder[WIRED_PATH_BYTES];

	memcpy(folder, path, sizeof(folder));
	CHECK_EQ(rmdir(dirname(folder)), 0);
}

static void *keep(void *arg)
{
	struct keeper *keeper = arg;

	for (;;) {
		struct pollfd fds[] = { { .fd = keeper->wake, .events = POLLIN },
					{ .fd = keeper->listener, .events = POLLIN } };

		CHECK(poll(fds, 2, -1) > 0);
		if (fds[0].revents)
			return NULL;
		welcome(keeper, accept4(keeper->listener, NULL, NULL, SOCK_CLOEXEC));
	}
}

void keeper_open(struct keeper *keeper, const char *local, const char *remote,
		 enum nupa_wire_medium medium, uint32_t mtu_bytes)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct nupa_wire_info info = {
		.host = WIRE_HOST, .state = NUPA_WIRE_UP, .medium = medium, .mtu_bytes = mtu_bytes
	};
	char why[512] = "";
	int index;

	memset(keeper, 0, sizeof(*keeper));
	keeper->medium = medium;
	keeper->fabric = test_fabric();
	set_gid(keeper->local, local);
	keeper->engine = nupa_engine_attach(keeper->fabric, WIRE_HOST, why, sizeof(why));
	CHECK(keeper->engine);
	wired_path(keeper->path);
	memcpy(address.sun_path, keeper->path, sizeof(address.sun_path));
	keeper->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(keeper->listener >= 0);
	CHECK_EQ(bind(keeper->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_EQ(listen(keeper->listener, 8), 0);
	keeper->wake = eventfd(0, EFD_CLOEXEC);
	CHECK_EQ(pthread_create(&keeper->thread, NULL, keep, keeper), 0);
	info.slot = keeper->engine->slot_index;
	info.epoch = keeper->engine->epoch;
	set_gid(info.remote, remote);
	memcpy(info.local, keeper->local, sizeof(info.local));
	memcpy(info.socket, keeper->path, sizeof(info.socket));
	index = nupa_wire_add(keeper->fabric, &info, why, sizeof(why));
	if (index < 0)
		fprintf(stderr, "%s\n", why);
	CHECK(index >= 0);
	keeper->index = (uint32_t)index;
}

void keeper_close(struct keeper *keeper)
{
	CHECK_EQ(write(keeper->wake, &(uint64_t){ 1 }, sizeof(uint64_t)), sizeof(uint64_t));
	pthread_join(keeper->thread, NULL);
	while (keeper->n_joined)
		close(keeper->joined[--keeper->n_joined]);
	close(keeper->wake);
	close(keeper->listener);
	CHECK_EQ(unlink(keeper->path), 0);
	wired_path_remove(keeper->path);
	nupa_engine_detach(keeper->engine);
	nupa_fabric_put(keeper->fabric);
}

struct nupa_wire_info keeper_info(const struct keeper *keeper)
{
	struct nupa_wire_info infos[NUPA_WIRES_MAX];

	CHECK_EQ(nupa_wire_list(keeper->fabric, infos, NUPA_WIRES_MAX), 1);
	return infos[0];
}

/* --- a network that loses packets ---------------------------------------------------- */

static bool draws(struct lossy *lossy, uint32_t of_10000)
{
	return of_10000 && test_random(&lossy->random) % 10000 < of_10000;
}

bool lossy_unasked(struct lossy *lossy, uint32_t from, const uint8_t *bth)
{
	struct lossy_way *asker = &lossy->ways[from], *asked = &lossy->ways[!from];
	const uint32_t psn = (uint32_t)bth[9] << 16 | (uint32_t)bth[10] << 8 | bth[11];
	const bool is_answer = bth[0] >= BTH_READ_RESPONSE && bth[0] <= BTH_ATOMIC_ACK;

	if (!is_answer) {
		if (bth[8] & BTH_ACKREQ ||
		    (asker->begun && nupa_psn_diff(psn, asker->next_psn) < 0)) {
			asker->asked = true;
			asker->asked_psn = psn;
		}
		if (!asker->begun || nupa_psn_diff(psn, asker->next_psn) >= 0)
			asker->next_psn = nupa_psn_add(psn, 1);
		asker->begun = true;
		return false;
	}
	if (bth[0] != BTH_ACK || bth[12] >> 5) /* a response, or a NAK */
		return false;
	if (!asked->asked || nupa_psn_diff(psn, asked->asked_psn) < 0)
		return true;
	asked->asked = false;
	return false;
}

/* One packet of this keeper's process, to the other's. */
static void carry(struct lossy *lossy, uint32_t from, uint8_t *held, size_t *held_bytes)
{
	uint8_t bytes[sizeof(struct nupa_wire_envelope) + NUPA_WIRE_PACKET_MAX_BYTES];
	struct nupa_wire_envelope *envelope = (struct nupa_wire_envelope *)(void *)bytes;
	const ssize_t n = recv(lossy->keepers[from]->joined[0], bytes, sizeof(bytes), MSG_DONTWAIT);
	const int to = lossy->keepers[!from]->joined[0];

	if (n <= 0 || draws(lossy, lossy->lose) ||
	    (lossy->loses && lossy->loses(lossy, from, bytes + sizeof(*envelope))))
		return;
	envelope->flags |= NUPA_WIRE_IDENTIFIED;
	if (draws(lossy, lossy->change))
		bytes[sizeof(*envelope) +
		      test_random(&lossy->random) % ((size_t)n - sizeof(*envelope))] ^= 0x10;
	if (!*held_bytes && draws(lossy, lossy->delay)) {
		memcpy(held, bytes, (size_t)n);
		*held_bytes = (size_t)n;
		return;
	}
	(void)!send(to, bytes, (size_t)n, MSG_NOSIGNAL);
	if (draws(lossy, lossy->repeat))
		(void)!send(to, bytes, (size_t)n, MSG_NOSIGNAL);
	if (*held_bytes)
		(void)!send(to, held, *held_bytes, MSG_NOSIGNAL);
	*held_bytes = 0;
}

static void *carry_all(void *arg)
{
	struct lossy *lossy = arg;
	uint8_t held[2][sizeof(struct nupa_wire_envelope) + NUPA_WIRE_PACKET_MAX_BYTES];
	size_t held_bytes[2] = { 0 };

	for (;;) {
		struct pollfd fds[] = {
			{ .fd = lossy->wake, .events = POLLIN },
			{ .fd = lossy->keepers[0]->joined[0], .events = POLLIN },
			{ .fd = lossy->keepers[1]->joined[0], .events = POLLIN },
		};

		CHECK(poll(fds, 3, -1) > 0);
		if (fds[0].revents)
			return NULL;
		for (uint32_t i = 0; i < 2; i++)
			if (fds[i + 1].revents)
				carry(lossy, i, held[i], &held_bytes[i]);
	}
}

static void lossy_start(struct lossy *lossy, struct keeper *a, struct keeper *b)
{
	while (nupa_load_acquire(&a->n_joined) != 1 || nupa_load_acquire(&b->n_joined) != 1)
		sched_yield();
	lossy->keepers[0] = a;
	lossy->keepers[1] = b;
	lossy->random = test_seed();
	lossy->wake = eventfd(0, EFD_CLOEXEC);
	CHECK_EQ(pthread_create(&lossy->thread, NULL, carry_all, lossy), 0);
}

static void lossy_stop(struct lossy *lossy)
{
	CHECK_EQ(write(lossy->wake, &(uint64_t){ 1 }, sizeof(uint64_t)), sizeof(uint64_t));
	pthread_join(lossy->thread, NULL);
	close(lossy->wake);
}

/* --- both ends ----------------------------------------------------------------------- */

void wired_address(char address[INET_ADDRSTRLEN], uint32_t side)
{
	const struct in_addr in = { htonl(UINT32_C(0x7f800000) | (uint32_t)getpid() << 1 | side) };

	CHECK(inet_ntop(AF_INET, &in, address, INET_ADDRSTRLEN));
}

static void open_between(struct wired *wired, const struct end_options *options, uint32_t mtu_bytes,
			 const char *a, const char *b, struct lossy *lossy)
{
	const enum nupa_wire_medium medium = lossy ? NUPA_WIRE_FRAMES : NUPA_WIRE_UDP;
	struct end_options with_mtu = *options;

	keeper_open(&wired->a, a, b, medium, mtu_bytes);
	keeper_open(&wired->b, b, a, medium, mtu_bytes);
	while (128u << with_mtu.mtu < mtu_bytes)
		with_mtu.mtu++;
	wired->end_a = end_open(wired->a.fabric, &with_mtu);
	wired->end_b = end_open(wired->b.fabric, &with_mtu);
	set_gid(wired->end_a->self.gid.raw, a);
	set_gid(wired->end_b->self.gid.raw, b);
	end_connect(wired->end_a, &wired->end_b->self);
	end_connect(wired->end_b, &wired->end_a->self);
	wired->lossy = lossy;
	if (lossy)
		lossy_start(lossy, &wired->a, &wired->b);
}

void wired_open(struct wired *wired, const struct end_options *options, uint32_t mtu_bytes)
{
	wired_open_lossy(wired, options, mtu_bytes, NULL);
}

void wired_open_lossy(struct wired *wired, const struct end_options *options, uint32_t mtu_bytes,
		      struct lossy *lossy)
{
	char a[INET_ADDRSTRLEN], b[INET_ADDRSTRLEN];

	wired_address(a, 0);
	wired_address(b, 1);
	open_between(wired, options, mtu_bytes, a, b, lossy);
}

/* --- IPv6 ---------------------------------------------------------------------------- */

/* Loopback has one address of it: a network of this process may have more. */
static const char *const addresses6[] = { "fd4e:5550::1", "fd4e:5550::2" };

static void write_text(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* False: not allowed here.  This process has one thread. */
static bool enter_network(void)
{
	char uid_map[32], gid_map[32];

	if (!unshare(CLONE_NEWNET))
		return true;
	snprintf(uid_map, sizeof(uid_map), "0 %u 1", (unsigned int)geteuid());
	snprintf(gid_map, sizeof(gid_map), "0 %u 1", (unsigned int)getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	write_text("/proc/self/uid_map", uid_map);
	write_text("/proc/self/setgroups", "deny");
	write_text("/proc/self/gid_map", gid_map);
	return true;
}

/* An address may be bound once the kernel has looked for duplicates of it. */
static void await_address(const struct in6_addr *address)
{
	const struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = *address };
	const uint64_t until_ns = test_now_ns() + WAIT_NS;
	const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	while (bind(fd, (const struct sockaddr *)&at, sizeof(at))) {
		CHECK(errno == EADDRNOTAVAIL && test_now_ns() < until_ns);
		sched_yield();
	}
	close(fd);
}

/* False: this system has no IPv6. */
static bool add_addresses(void)
{
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	CHECK_EQ(ioctl(fd, SIOCSIFFLAGS, &loopback), 0);
	CHECK_EQ(ioctl(fd, SIOCGIFINDEX, &loopback), 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct {
			struct in6_addr address;
			uint32_t prefix_bits;
			int interface;
		} request = { .prefix_bits = 128, .interface = loopback.ifr_ifindex };

		CHECK_EQ(inet_pton(AF_INET6, addresses6[i], &request.address), 1);
		CHECK_EQ(ioctl(fd, SIOCSIFADDR, &request), 0);
		await_address(&request.address);
	}
	close(fd);
	return true;
}

bool wired_open_ipv6(struct wired *wired, const struct end_options *options, uint32_t mtu_bytes)
{
	if (!enter_network() || !add_addresses()) {
		printf("  skipped: no network of its own with IPv6 here\n");
		return false;
	}
	open_between(wired, options, mtu_bytes, addresses6[0], addresses6[1], NULL);
	return true;
}

void wired_close(struct wired *wired)
{
	end_close(wired->end_a);
	end_close(wired->end_b);
	if (wired->lossy)
		lossy_stop(wired->lossy);
	keeper_close(&wired->a);
	keeper_close(&wired->b);
}
