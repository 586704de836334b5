/* SPDX-License-Identifier: BSD-3-Clause
 * The shim: a preloaded library that shows a program the files of its RDMA device, and the hosts of
 * its fabric.
 *
 *   wrappers.c  the calls of libc that take a path
 *   paths.c     recognises the device's paths and maps them to their copies
 *   tree.c      makes that copy, a tree of real files, and renews files that change
 *   files.c     the table of files, and their content
 *   counters.c  the counters among them
 *   pci.c       the emulated PCI device behind it
 *   libraries.c the drop-in libraries for a program that opens its own
 *
 *   names.c     the calls of libc that resolve names: those of hosts
 *   sockets.c   the calls of libc with addresses of sockets: those of hosts
 *   hosts.c     the hosts, and the addresses of loopback that stand for theirs
 *   listeners.c the listener of a host at a TCP port, found in /proc
 *
 * memory.c serves the program's changes of memory that it registered; netlink/ answers for the
 * kernel where programs ask it for RDMA devices (NETLINK_RDMA); umad/ serves MADs. */
#ifndef NUPA_SHIM_H
#define NUPA_SHIM_H

#include "segment/segment.h"

#include <stddef.h>
#include <sys/socket.h>

#define NUPA_SHIM_ROOT_MAX_BYTES 320u /* a segment's path and a host's name */
#define NUPA_SHIM_PATH_MAX_BYTES                                                                   \
	512u                           /* the root and one of our paths; longer ones are not ours  \
					*/
#define NUPA_SHIM_TEXT_MAX_BYTES 1024u /* a mask of 3,600 CPUs */

/* Only these functions of a library that each process loads are seen. */
#define NUPA_SHIM_WRAPPER __attribute__((visibility("default")))
/* The function of libc is ours. */
#define NUPA_SHIM_ALIAS(name, ours)                                                                \
	NUPA_SHIM_WRAPPER extern __typeof__(name) name __attribute__((alias(#ours)))

/* The host whose files are shown; the fabric is open as long as they are written. */
struct nupa_shim_view {
	struct nupa_fabric *fabric;
	uint32_t host;
};

/* Where files really are: in folders of the PCI device, as in sysfs.  Classes have links to them.
 * The domain is none that a machine has. */
#define NUPA_SHIM_PCI "4e55:00:00.0"
#define NUPA_SHIM_PCI_BUS "/sys/devices/pci4e55:00"
#define NUPA_SHIM_PCI_DEVICE NUPA_SHIM_PCI_BUS "/" NUPA_SHIM_PCI
#define NUPA_SHIM_PCI_ON_BUS "/sys/bus/pci/devices/4e55:00:00.0"

/* One file of the tree: of constant text, a link, or text that say() writes. */
struct nupa_shim_file {
	const char *path;
	const char
	    *text; /* NULL: say() does; with `link`: where it leads, in the tree if in /sys */
	void (*say)(const struct nupa_shim_view *view, uint32_t index, char *text, size_t bytes);
	uint32_t index; /* for say(): which of several alike */
	bool link;
	bool live;          /* its text changes: written anew at each access */
	bool ethernet_only; /* not there where the link layer is InfiniBand */
	bool infiniband_only;
};
extern const struct nupa_shim_file nupa_shim_files[];
extern const uint32_t nupa_shim_n_files;

/* counters.c */
enum nupa_shim_counter_index {
	NUPA_SHIM_XMIT_DATA,
	NUPA_SHIM_XMIT_PACKETS,
	NUPA_SHIM_RCV_DATA,
	NUPA_SHIM_RCV_PACKETS,
	NUPA_SHIM_XMIT_WAIT,
	NUPA_SHIM_XMIT_DISCARDS,
	NUPA_SHIM_LINK_DOWNED,
	NUPA_SHIM_UNICAST_XMIT,
	NUPA_SHIM_UNICAST_RCV,
	NUPA_SHIM_RETRIES,
};
void nupa_shim_counter(const struct nupa_shim_view *view, uint32_t index, char *text, size_t bytes);
/* index: where in struct nupa_hw_counters. */
void nupa_shim_wire_counter(const struct nupa_shim_view *view, uint32_t index, char *text,
			    size_t bytes);
void nupa_shim_hw_counter(const struct nupa_shim_view *view, uint32_t index, char *text,
			  size_t bytes);

/* pci.c */
enum nupa_shim_pci_index {
	NUPA_SHIM_PCI_VENDOR,
	NUPA_SHIM_PCI_PART,
	NUPA_SHIM_PCI_REVISION,
	NUPA_SHIM_PCI_CLASS,
	NUPA_SHIM_PCI_UEVENT,
	NUPA_SHIM_PCI_MODALIAS,
	NUPA_SHIM_PCI_SPEED,
	NUPA_SHIM_PCI_WIDTH,
	NUPA_SHIM_PCI_CPUS,
	NUPA_SHIM_PCI_CPU_LIST,
};
void nupa_shim_pci(const struct nupa_shim_view *view, uint32_t index, char *text, size_t bytes);

/* paths.c: the fabric's path and the host's name, as `nupa run` set them; whether it did. */
bool nupa_shim_place(const char **fabric, const char **host);
/* *path* itself, or the place of its copy, written to the buffer.  Keeps errno. */
const char *nupa_shim_path(const char *path, char buffer[NUPA_SHIM_PATH_MAX_BYTES]);
/* The same of a path relative to a folder that is open, which counts where that folder is "/". */
const char *nupa_shim_path_at(int dir, const char *path, char buffer[NUPA_SHIM_PATH_MAX_BYTES]);
/* The program's name of a path of the copy, in place. */
void nupa_shim_name(char *path);

/* libraries.c: *name*, or the path of our library in the place of one that a program brings. */
const char *nupa_shim_library(const char *name);

/* tree.c: makes the tree at *root*, and renews the live files at or below *path*, a path of the
 * device.  0 or a negative errno. */
int nupa_shim_tree_show(const char *root, const char *fabric, const char *host, const char *path);

/* hosts.c: the hosts of the fabric.  NULL: the program has no host, or is in a guest, whose names
 * are those of its own network. */
struct nupa_shim_host {
	char name[NUPA_NAME_BYTES + 1];
	uint32_t ipv4; /* host byte order */
	uint8_t ipv6[16];
	bool wired;        /* it is another machine, at one of the following addresses */
	uint32_t far_ipv4; /* 0: that is IPv6 */
	uint8_t far_ipv6[16];
};
struct nupa_shim_net {
	uint32_t n_hosts;
	uint32_t self; /* the program's host */
	bool machines; /* other hosts are other machines, guests among them */
	bool aliased;  /* no nupa_net0 is here: addresses of loopback stand for those of hosts */
	struct nupa_shim_host hosts[NUPA_HOSTS_MAX];
};
const struct nupa_shim_net *nupa_shim_net(void);
const struct nupa_shim_host *nupa_shim_host_of_name(const char *name);

/* Whether the address is of the fabric's networks. */
bool nupa_shim_may_lead_to_a_host(const struct sockaddr *addr, socklen_t bytes);
/* Where such an address leads.  host < 0: to none. */
struct nupa_shim_target {
	int host;
	uint16_t port;
	bool ipv6;                     /* the host's IPv6 address */
	bool wired;                    /* `alias` is the address of another machine */
	struct sockaddr_storage alias; /* of the same family and port */
	socklen_t bytes;
};
/* Returns false where addresses have no aliases. */
bool nupa_shim_target(const struct sockaddr *addr, socklen_t bytes, struct nupa_shim_target *to);
/* The alias of a host's IPv4 or IPv6 address: an IPv4 address in host byte order. */
uint32_t nupa_shim_alias(const struct nupa_shim_net *net, uint32_t host, bool ipv6);
/* The alias of the program's own host, without a port, as the source of what goes to *to*. */
void nupa_shim_own_alias(const struct nupa_shim_target *to, struct sockaddr_storage *own);
/* Replaces the alias of a host by the host's address, in place. */
void nupa_shim_unalias(struct sockaddr *addr, socklen_t bytes);

/* listeners.c: whether a program of a host listens at its address and TCP port; else, *who* gets
 * the program that does, as text, or "". */
bool nupa_shim_listens(const struct nupa_shim_target *at, char *who, size_t who_bytes);

#endif
