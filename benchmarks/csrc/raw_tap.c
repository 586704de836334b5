/* SPDX-License-Identifier: BSD-3-Clause
 * The reference of nupa_net0: two TAP devices, each in a network namespace, and one thread that
 * moves frames between them.  No interface of a program costs less.  The devices have vnet_hdr,
 * checksum and segmentation offload, and MTU 65280; with --plain they have none of these.  The
 * program ends with its parent, and its namespaces end with it. */
#include "bench.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef TUN_F_USO4 /* Linux 6.2 */
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

#define FRAME_MAX_BYTES (1u << 17)
#define OFFLOAD_MTU_BYTES 65280
#define PLAIN_MTU_BYTES 1500
#define BURST_FRAMES 64 /* from one side before the other has its turn */

struct options {
	char *netns[2]; /* paths; NULL: make them */
	int cpu;        /* -1: not pinned */
	bool plain;
	bool own_user_ns; /* made on the way */
};

struct end {
	int tap_fd;
	int netns_fd;
	uint64_t frames;  /* read here */
	uint64_t dropped; /* read here, refused there */
};

static const char name[] = "tap0";
static const char *const address[2] = { "10.0.0.1", "10.0.0.2" };

_Noreturn static void usage(const char *program, int status)
{
	fprintf(status ? stderr : stdout, "usage: %s [--netns PATH,PATH] [--cpu N] [--plain]\n",
		program);
	exit(status);
}

static void parse(struct options *options, int argc, char **argv)
{
	static const struct option known[] = {
		{ "netns", required_argument, NULL, 'n' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "plain", no_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const struct bench_options for_numbers = { .program = argv[0] };
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		const char *text = optarg;

		if (option == 'n') {
			options->netns[0] = optarg;
			options->netns[1] = strchr(optarg, ',');
			if (!options->netns[1])
				usage(argv[0], 2);
			*options->netns[1]++ = '\0';
		} else if (option == 'c') {
			options->cpu = (int)bench_number(&for_numbers, &text, 0, CPU_SETSIZE - 1);
		} else if (option == 'p') {
			options->plain = true;
		} else {
			usage(argv[0], option == 'h' ? 0 : 2);
		}
	}
	if (optind != argc)
		usage(argv[0], 2);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		bench_die(path);
	close(fd);
}

/* In a user namespace of our own, in which we are root, where we are not root here. */
static void new_netns(struct options *options)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWNET) == 0)
		return;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
		bench_die("a network namespace needs root, or user namespaces that are allowed");
	options->own_user_ns = true;
	write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	write_file("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	write_file("/proc/self/gid_map", map);
}

/* Goes into the namespace at *path*, or into a new one. */
static int enter_netns(struct options *options, const char *path)
{
	if (!path)
		new_netns(options);
	int fd = open(path ? path : "/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || (path && setns(fd, CLONE_NEWNET) != 0))
		bench_die(path ? path : "/proc/self/ns/net");
	return fd;
}

static void configure(const char *ipv4, int mtu_bytes)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct ifreq request;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		bench_die("socket");
	memset(&request, 0, sizeof(request));
	memcpy(request.ifr_name, name, sizeof(name));
	request.ifr_mtu = mtu_bytes;
	if (ioctl(fd, SIOCSIFMTU, &request) != 0)
		bench_die("MTU of tap0");
	inet_pton(AF_INET, ipv4, &in.sin_addr);
	memcpy(&request.ifr_addr, &in, sizeof(in));
	if (ioctl(fd, SIOCSIFADDR, &request) != 0)
		bench_die("address of tap0");
	inet_pton(AF_INET, "255.255.255.0", &in.sin_addr);
	memcpy(&request.ifr_netmask, &in, sizeof(in));
	if (ioctl(fd, SIOCSIFNETMASK, &request) != 0)
		bench_die("netmask of tap0");
	request.ifr_flags = IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &request) != 0)
		bench_die("tap0 up");
	close(fd);
}

static int open_tap(bool plain)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	unsigned long offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		bench_die("/dev/net/tun");
	if (!plain)
		request.ifr_flags |= IFF_VNET_HDR;
	memcpy(request.ifr_name, name, sizeof(name));
	if (ioctl(fd, TUNSETIFF, &request) != 0)
		bench_die("TUNSETIFF");
	if (!plain && ioctl(fd, TUNSETOFFLOAD, offloads | TUN_F_USO4 | TUN_F_USO6) != 0 &&
	    ioctl(fd, TUNSETOFFLOAD, offloads) != 0)
		bench_die("TUNSETOFFLOAD");
	return fd;
}

/* Forwards a burst at most from *from*; true if it was a whole burst, so that more may wait. */
static bool forward(struct end *from, const struct end *to, uint8_t *frame)
{
	for (int i = 0; i < BURST_FRAMES; i++) {
		ssize_t bytes = read(from->tap_fd, frame, FRAME_MAX_BYTES);

		if (bytes < 0) {
			if (errno != EAGAIN)
				bench_die("read from tap0");
			return false;
		}
		from->frames++;
		if (write(to->tap_fd, frame, (size_t)bytes) != bytes)
			from->dropped++;
	}
	return true;
}

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
	(void)signal_number;
	stopped = 1;
}

static void pump(struct end *ends)
{
	static uint8_t frame[FRAME_MAX_BYTES];
	struct pollfd fds[2] = { { .fd = ends[0].tap_fd, .events = POLLIN },
				 { .fd = ends[1].tap_fd, .events = POLLIN } };

	while (!stopped) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			bench_die("poll");
		bool more[2] = { fds[0].revents & POLLIN, fds[1].revents & POLLIN };

		while ((more[0] || more[1]) && !stopped)
			for (int i = 0; i < 2; i++)
				if (more[i])
					more[i] = forward(&ends[i], &ends[1 - i], frame);
	}
}

/* How programs get there. */
static void announce(const struct options *options, const struct end *ends)
{
	char user[64] = "";

	if (options->own_user_ns)
		snprintf(user, sizeof(user), " --preserve-credentials --user=/proc/%d/ns/user",
			 getpid());
	for (int i = 0; i < 2; i++)
		printf("%s: nsenter%s --net=/proc/%d/fd/%d\n", address[i], user, getpid(),
		       ends[i].netns_fd);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct options options = { .cpu = -1 };
	struct sigaction action = { .sa_handler = stop };
	struct end ends[2] = { 0 };

	parse(&options, argc, argv);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		bench_die("PR_SET_PDEATHSIG");
	if (options.cpu >= 0)
		bench_pin(options.cpu);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	for (int i = 0; i < 2; i++) {
		ends[i].netns_fd = enter_netns(&options, options.netns[i]);
		ends[i].tap_fd = open_tap(options.plain);
		configure(address[i], options.plain ? PLAIN_MTU_BYTES : OFFLOAD_MTU_BYTES);
	}
	announce(&options, ends);
	pump(ends);
	for (int i = 0; i < 2; i++)
		printf("from %s: %" PRIu64 " frames, %" PRIu64 " of them dropped\n", address[i],
		       ends[i].frames, ends[i].dropped);
	return 0;
}
