// SPDX-License-Identifier: BSD-3-Clause
/*
 * The network of the guests alone: eth0's address, and all names in /etc/hosts, from the word
 * nupa.hosts=ADDRESS:NAME,ADDRESS:NAME of the kernel's command line.
 */
#include "guest/init.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define NETMASK "255.255.255.0"
#define HOSTS "/etc/hosts"

static void set_address(struct ifreq *request, struct in_addr address)
{
	const struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = address };

	memcpy(&request->ifr_addr, &name, sizeof(name));
}

int network_ask(int family, unsigned long request, void *argument)
{
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0), failed, error;

	if (fd < 0)
		return -1;
	failed = ioctl(fd, request, argument);
	error = errno;
	close(fd);
	errno = error;
	return failed;
}

int network_up(struct guest *guest, const char *interface, struct in_addr address)
{
	struct ifreq request = { 0 };
	struct in_addr mask;
	int failed;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	set_address(&request, address);
	failed = network_ask(AF_INET, SIOCSIFADDR, &request);
	inet_pton(AF_INET, NETMASK, &mask);
	set_address(&request, mask);
	failed = failed || network_ask(AF_INET, SIOCSIFNETMASK, &request);
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	failed = failed || network_ask(AF_INET, SIOCSIFFLAGS, &request);
	return failed ? guest_fails(guest, "cannot bring %s up", interface) : 0;
}

/* Parses an entry; the address is this guest's if the name is. */
static int take_host(struct guest *guest, char *entry, FILE *names, struct in_addr *ours)
{
	char *name = strchr(entry, ':');
	struct in_addr address;

	if (name)
		*name++ = 0;
	if (!name || !*name || inet_pton(AF_INET, entry, &address) != 1) {
		errno = EINVAL;
		return guest_fails(guest, "nupa.hosts has an entry '%s'", entry);
	}
	if (!strcmp(name, guest->host))
		*ours = address;
	if (fprintf(names, "%s %s\n", entry, name) < 0)
		return guest_fails(guest, "cannot write " HOSTS);
	return 0;
}

int init_network(struct guest *guest)
{
	struct in_addr ours = { 0 };
	char *rest = guest->hosts;
	int error = 0;

	if (!guest->hosts[0])
		return 0; /* none was meant */
	FILE *names = fopen(HOSTS, "ae");
	if (!names)
		return guest_fails(guest, "cannot open " HOSTS);
	for (char *entry; !error && (entry = strsep(&rest, ","));)
		error = take_host(guest, entry, names, &ours);
	if (fclose(names) && !error)
		error = guest_fails(guest, "cannot write " HOSTS);
	if (error)
		return error;
	if (!ours.s_addr) {
		errno = EINVAL;
		return guest_fails(guest, "nupa.hosts does not name %s", guest->host);
	}
	return network_up(guest, "eth0", ours);
}
