// SPDX-License-Identifier: BSD-3-Clause
/*
 * The kernel's own attachment: nupa_core, nupa_net and nupa_rdma (csrc/kernel), where `nupa vm up
 * --modules` has put them beside the kernel's modules.  nupa_net0 gets the addresses that `nupa net
 * up` gives.
 */
#include "guest/init.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOADED_DIR "/run/nupa" /* where init_root has moved MODULES_DIR */
#define NETDEV "nupa_net0"

/* Line *line* of a file begins with an address: 0 or -errno. */
static int read_address(const char *path, int line, uint64_t *address)
{
	FILE *file = fopen(path, "re");
	char text[128];
	int error = 0;

	if (!file)
		return -errno;
	for (int i = 0; i <= line && !error; i++)
		if (!fgets(text, sizeof(text), file))
			error = -ENODATA;
	fclose(file);
	if (!error && sscanf(text, "%" SCNx64, address) != 1)
		error = -EINVAL;
	return error;
}

/* Where the shared memory is in this guest's physical address space. */
static int find_memory(struct guest *guest, uint64_t *address)
{
	const char *name = strrchr(guest->memory, '/') + 1;
	char path[PATH_MAX];
	int error;

	/* sysfs-bus-dax; sysfs-bus-pci: a line for each BAR. */
	if (guest->pci[0])
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", guest->pci);
	else
		snprintf(path, sizeof(path), "/sys/bus/dax/devices/%s/resource", name);
	error = read_address(path, guest->pci[0] ? 2 : 0, address);
	if (!error)
		return 0;
	errno = -error;
	return guest_fails(guest, "cannot read %s", path);
}

static int load(struct guest *guest, const char *name, const char *parameters)
{
	int error = module_load_with(LOADED_DIR, name, parameters);

	if (!error)
		return 0;
	errno = -error;
	return guest_fails(guest, "cannot load %s %s", name, parameters);
}

/* fd4e:5550:4100::N, with the digits of 10.0.0.N, as in segment/gid.c. */
static int add_unique_local(struct guest *guest, struct in_addr ipv4)
{
	struct in6_ifreq request = { .ifr6_prefixlen = 64,
				     .ifr6_ifindex = (int)if_nametoindex(NETDEV) };
	char text[INET6_ADDRSTRLEN];

	snprintf(text, sizeof(text), "fd4e:5550:4100::%u", ntohl(ipv4.s_addr) & 0xff);
	inet_pton(AF_INET6, text, &request.ifr6_addr);
	if (network_ask(AF_INET6, SIOCSIFADDR, &request))
		return guest_fails(guest, "cannot add %s to " NETDEV, text);
	return 0;
}

/* A host's MAC address ends with its IPv4 address. */
static int bring_up(struct guest *guest)
{
	struct ifreq request = { .ifr_name = NETDEV };
	struct in_addr ipv4;
	int error;

	if (network_ask(AF_INET, SIOCGIFHWADDR, &request))
		return guest_fails(guest, "there is no " NETDEV);
	memcpy(&ipv4, request.ifr_hwaddr.sa_data + 2, sizeof(ipv4));
	/* The fabric gives addresses: nobody else has them. */
	(void)file_write("0", "/proc/sys/net/ipv6/conf/" NETDEV "/accept_dad");
	error = network_up(guest, NETDEV, ipv4);
	return error ? error : add_unique_local(guest, ipv4);
}

int init_attach(struct guest *guest)
{
	char parameters[128];
	uint64_t address = 0;
	int error;

	if (access(LOADED_DIR "/nupa_core.ko", F_OK))
		return 0; /* none was meant */
	error = find_memory(guest, &address);
	if (error)
		return error;
	snprintf(parameters, sizeof(parameters), "base=%" PRIu64 " bytes=%" PRIu64 " host=%s",
		 address, guest->bytes, guest->host);
	error = load(guest, "nupa_core", parameters);
	if (!error)
		error = load(guest, "nupa_net", "");
	if (!error)
		error = bring_up(guest);
	return error ? error : load(guest, "nupa_rdma", "netdev=" NETDEV);
}
