/* SPDX-License-Identifier: BSD-3-Clause
 * The PCI device that a host's RDMA device is, as the kernel's Documentation/ABI/testing/
 * sysfs-bus-pci has it.  Its identity is that of ibv_query_device; its link is the port's.  It has
 * no NUMA node of its own, so all CPUs are local. */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "engine/device/device.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLASS_ETHERNET 0x020000u /* PCI Code and ID Assignment 1.3 */
#define CLASS_INFINIBAND 0x020700u
#define CPUS_MAX 3600u /* as many as a mask has room for */

/* As of /sys/devices/system/cpu/online: "0-3,8". */
static void online_list(char *list, size_t bytes)
{
	int fd = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, list, bytes - 1);

	if (fd >= 0)
		close(fd);
	if (got > 0) {
		list[got] = '\0';
		list[strcspn(list, "\n")] = '\0';
	} else { /* no sysfs: a container without it */
		snprintf(list, bytes, "0-%ld", sysconf(_SC_NPROCESSORS_ONLN) - 1);
	}
}

/* The list as a mask: words of 32 CPUs, the highest first. */
static void online_mask(char *text, size_t bytes)
{
	uint32_t words[(CPUS_MAX + 31) / 32] = { 0 }, top = 0;
	char list[NUPA_SHIM_TEXT_MAX_BYTES];
	size_t at = 0;

	online_list(list, sizeof(list));
	for (char *part = list; *part;) {
		unsigned long from = strtoul(part, &part, 10), to = from;

		if (*part == '-')
			to = strtoul(part + 1, &part, 10);
		for (; from <= to && from < CPUS_MAX; from++) {
			words[from / 32] |= UINT32_C(1) << from % 32;
			top = (uint32_t)from / 32;
		}
		part += strcspn(part, ",");
		part += *part == ',';
	}
	for (uint32_t i = top + 1; i-- > 0 && at < bytes;)
		at += (size_t)snprintf(text + at, bytes - at, "%08x%c", words[i], i ? ',' : '\n');
}

void nupa_shim_pci(const struct nupa_shim_view *view, uint32_t index, char *text, size_t bytes)
{
	const struct nupa_host *host = &view->fabric->hosts[view->host];
	const struct nupa_port *port = &view->fabric->ports[host->port];
	const unsigned int class =
	    host->link_layer == NUPA_LINK_ETHERNET ? CLASS_ETHERNET : CLASS_INFINIBAND;
	char modalias[64], list[NUPA_SHIM_TEXT_MAX_BYTES];

	snprintf(modalias, sizeof(modalias), "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		 NUPA_VENDOR_ID, NUPA_PART_ID, NUPA_VENDOR_ID, NUPA_PART_ID, class >> 16,
		 class >> 8 & 0xff, class & 0xff);
	switch ((enum nupa_shim_pci_index)index) {
	case NUPA_SHIM_PCI_VENDOR:
		snprintf(text, bytes, "0x%04x\n", NUPA_VENDOR_ID);
		break;
	case NUPA_SHIM_PCI_PART:
		snprintf(text, bytes, "0x%04x\n", NUPA_PART_ID);
		break;
	case NUPA_SHIM_PCI_REVISION:
		snprintf(text, bytes, "0x%02x\n", NUPA_HW_VERSION);
		break;
	case NUPA_SHIM_PCI_CLASS:
		snprintf(text, bytes, "0x%06x\n", class);
		break;
	case NUPA_SHIM_PCI_UEVENT:
		snprintf(text, bytes,
			 "DRIVER=nupa\nPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\n"
			 "PCI_SLOT_NAME=" NUPA_SHIM_PCI "\nMODALIAS=%s\n",
			 class, NUPA_VENDOR_ID, NUPA_PART_ID, NUPA_VENDOR_ID, NUPA_PART_ID,
			 modalias);
		break;
	case NUPA_SHIM_PCI_MODALIAS:
		snprintf(text, bytes, "%s\n", modalias);
		break;
	case NUPA_SHIM_PCI_SPEED:
		snprintf(text, bytes, "%u.%u GT/s PCIe\n", port->speed_mtps / 1000,
			 port->speed_mtps / 100 % 10);
		break;
	case NUPA_SHIM_PCI_WIDTH:
		snprintf(text, bytes, "%u\n", port->width_lanes);
		break;
	case NUPA_SHIM_PCI_CPUS:
		online_mask(text, bytes);
		break;
	case NUPA_SHIM_PCI_CPU_LIST:
		online_list(list, sizeof(list));
		snprintf(text, bytes, "%s\n", list);
		break;
	}
}
