// SPDX-License-Identifier: BSD-3-Clause
/*
 * Process 1 of a guest: runs a table of steps, reports each on the console, then starts an agent
 * for each port.
 */
#include "guest/init.h"
#include "guest/agent.h"
#include "guest/main.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Ports of the agent, nupa.0 to nupa.7: as many in nupa/vm/files/place.py. */
#define PORTS 8
#define PORTS_DIR "/sys/class/virtio-ports"
#define PORT_WAIT_STEP_MS 5
/* A command line of the kernel is no longer than this on x86. */
#define COMMAND_LINE_BYTES 2048
#define FILES_MAX 65536

struct step {
	const char *name;
	int (*run)(struct guest *guest);
	const char *remedy;
};

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int step_kernel(struct guest *guest)
{
	static const struct {
		const char *type, *target;
	} kernel[] = { { "proc", "/proc" }, { "sysfs", "/sys" }, { "devtmpfs", "/dev" } };

	for (size_t i = 0; i < sizeof(kernel) / sizeof(kernel[0]); i++) {
		if (mkdir(kernel[i].target, 0755) && errno != EEXIST)
			return guest_fails(guest, "cannot make %s", kernel[i].target);
		/* EBUSY: the kernel did it. */
		if (mount(kernel[i].type, kernel[i].target, kernel[i].type, 0, NULL) &&
		    errno != EBUSY)
			return guest_fails(guest, "cannot mount %s", kernel[i].target);
	}
	/* As udev would make it: opening it makes the kernel load the module. */
	if ((mkdir("/dev/net", 0755) && errno != EEXIST) ||
	    (mknod("/dev/net/tun", S_IFCHR | 0666, makedev(10, 200)) && errno != EEXIST))
		return guest_fails(guest, "cannot make /dev/net/tun");
	return 0;
}

/* The value of a word KEY=VALUE of the command line; NULL: none. */
static const char *value_of(const char *word, const char *key)
{
	size_t bytes = strlen(key);

	return strncmp(word, key, bytes) ? NULL : word + bytes;
}

static int step_command_line(struct guest *guest)
{
	char text[COMMAND_LINE_BYTES], *rest = text;
	int error = file_read(text, sizeof(text), "/proc/cmdline");

	if (error) {
		errno = -error;
		return guest_fails(guest, "cannot read /proc/cmdline");
	}
	for (char *word; (word = strsep(&rest, " "));) {
		const char *value;

		if ((value = value_of(word, "nupa.host=")))
			snprintf(guest->host, sizeof(guest->host), "%s", value);
		else if ((value = value_of(word, "nupa.kind=")))
			snprintf(guest->kind, sizeof(guest->kind), "%s", value);
		else if ((value = value_of(word, "nupa.bytes=")))
			guest->bytes = strtoull(value, NULL, 10);
		else if ((value = value_of(word, "nupa.hosts=")))
			snprintf(guest->hosts, sizeof(guest->hosts), "%s", value);
	}
	if (guest->host[0] && guest->kind[0] && guest->bytes)
		return 0;
	errno = EINVAL;
	return guest_fails(guest, "nupa.host is '%s', nupa.kind '%s', nupa.bytes %llu", guest->host,
			   guest->kind, (unsigned long long)guest->bytes);
}

static int step_host(struct guest *guest)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	const struct rlimit files = { FILES_MAX, FILES_MAX };
	const struct rlimit locked = { RLIM_INFINITY, RLIM_INFINITY };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int failed = fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request);

	if (fd >= 0)
		close(fd);
	if (failed)
		return guest_fails(guest, "cannot bring lo up");
	if (sethostname(guest->host, strlen(guest->host)))
		return guest_fails(guest, "cannot take the name %s", guest->host);
	if (setrlimit(RLIMIT_NOFILE, &files) || setrlimit(RLIMIT_MEMLOCK, &locked))
		return guest_fails(guest, "cannot set limits");
	return 0;
}

static int step_memory(struct guest *guest)
{
	if (!strcmp(guest->kind, "cxl"))
		return init_cxl(guest);
	if (!strcmp(guest->kind, "ivshmem"))
		return init_ivshmem(guest);
	errno = EINVAL;
	return guest_fails(guest, "nupa.kind is '%s', not cxl or ivshmem", guest->kind);
}

static const struct step steps[] = {
	{ "file systems of the kernel", step_kernel, "the kernel lacks one of them: use Debian's" },
	{ "command line", step_command_line, "`nupa vm up` gives all three: use it" },
	{ "modules", init_modules,
	  "the initramfs is of another kernel: remove the cache's folder of initramfs" },
	{ "host", step_host, "the kernel lacks IPv4 or the name is too long (64 bytes)" },
	{ "shared memory", step_memory,
	  "see the kernel's lines above; with --kind cxl QEMU 11 or newer is needed, and --mem a "
	  "multiple of 256M" },
	{ "root", init_root,
	  "the machine's / must be exported as " ROOT_TAG ", and its files be readable for QEMU" },
	{ "doorbell", init_bell, "" },
	{ "network", init_network, "the kernel lacks virtio_net, or [guests] network is wrong" },
	{ "kernel's attachment", init_attach,
	  "see the kernel's lines above; `nupa vm up` without --modules does without it" },
};

static _Noreturn void power_off(void)
{
	fflush(NULL);
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

static void run_steps(struct guest *guest)
{
	for (const struct step *step = steps; step < steps + sizeof(steps) / sizeof(steps[0]);
	     step++) {
		double started_s = now_s();
		int error = step->run(guest);

		if (error) {
			fprintf(stderr, "nupa: step %s failed: %s: %s (errno %d)\nnupa: %s\n",
				step->name, guest->why, strerror(-error), -error, step->remedy);
			power_off();
		}
		fprintf(stderr, "nupa: step %s: %.0f ms, %.2f s since the kernel's start\n",
			step->name, (now_s() - started_s) * 1000, now_s());
	}
}

/* The number of the port whose name that is: its device's path, or -ENODEV. */
static int find_port(const char *name, char *path, size_t bytes)
{
	for (int device = 0; device < 4; device++)
		for (int port = 0; port <= PORTS; port++) {
			char found[32];

			if (file_read(found, sizeof(found), PORTS_DIR "/vport%dp%d/name", device,
				      port) ||
			    strcmp(found, name) != 0)
				continue;
			snprintf(path, bytes, "/dev/vport%dp%d", device, port);
			return 0;
		}
	return -ENODEV;
}

/* Opens port nupa.*number*, as soon as the kernel has it. */
static int open_port(int number)
{
	const struct timespec step = { .tv_nsec = PORT_WAIT_STEP_MS * 1000000L };
	char name[16], path[64];

	snprintf(name, sizeof(name), "nupa.%d", number);
	for (int waited_ms = 0; find_port(name, path, sizeof(path));
	     waited_ms += PORT_WAIT_STEP_MS) {
		if (waited_ms >= DEVICE_WAIT_MS)
			return -ENODEV;
		nanosleep(&step, NULL);
	}
	int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static pid_t start_agent(int number, const char *hello)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	int port = open_port(number);
	int error = port < 0 ? port : agent_serve(port, hello, init_refresh);
	fprintf(stderr, "nupa: agent of port nupa.%d: %s\n", number, strerror(-error));
	_exit(1);
}

static pid_t start_bell(const struct guest *guest)
{
	pid_t pid = guest->bell.there ? fork() : 0;

	if (pid || !guest->bell.there)
		return pid;
	fprintf(stderr, "nupa: doorbell: %s\n", strerror(-bell_serve(guest)));
	_exit(1);
}

/* Starts the agents, and again those that end; reaps all orphaned children. */
static _Noreturn void keep_agents(const struct guest *guest, const char *hello)
{
	pid_t agents[PORTS], bell = start_bell(guest);

	for (int i = 0; i < PORTS; i++)
		agents[i] = start_agent(i, hello);
	for (;;) {
		pid_t gone = wait(NULL);

		if (gone == bell) {
			sleep(1);
			bell = start_bell(guest);
		}
		for (int i = 0; i < PORTS; i++) {
			if (agents[i] != gone && agents[i] > 0)
				continue;
			sleep(1); /* one that fails at once must not take the whole processor */
			agents[i] = start_agent(i, hello);
		}
	}
}

int guest_init(void)
{
	static struct guest guest;
	struct utsname kernel;
	char boot[64], hello[512];

	/* Before anything else, so that the time of each step is known. */
	fprintf(stderr, "nupa: init, %.2f s since the kernel's start\n", now_s());
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	run_steps(&guest);
	uname(&kernel);
	if (file_read(boot, sizeof(boot), "/proc/sys/kernel/random/boot_id"))
		boot[0] = '\0';
	snprintf(hello, sizeof(hello),
		 "protocol=1\nkernel=%s\nhost=%s\ndevice=" MEMORY_LINK "\nbytes=%llu\nboot=%s\n"
		 "bell=%d\n",
		 kernel.release, guest.host, (unsigned long long)guest.bytes, boot,
		 guest.bell.there);
	fprintf(stderr, "nupa: ready, %.2f s since the kernel's start\n", now_s());
	keep_agents(&guest, hello);
}
