/* SPDX-License-Identifier: BSD-3-Clause
 * The path shim: a preloaded library that shows a program the files of its RDMA device.
 *
 *   wrappers.c  the calls of libc that take a path
 *   paths.c     recognises the device's paths and maps them to their copies
 *   tree.c      makes that copy, a tree of real files, and renews files that change
 *   files.c     the table of files, and their content
 *   counters.c  the counters among them
 *   pci.c       the emulated PCI device behind it
 *   libraries.c the drop-in libraries for a program that opens its own
 *
 * memory.c serves the program's changes of memory that it registered. */
#ifndef NUPA_SHIM_H
#define NUPA_SHIM_H

#include "segment/segment.h"

#include <stddef.h>

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

/* paths.c: *path* itself, or the place of its copy, written to the buffer.  Keeps errno. */
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

#endif
