// SPDX-License-Identifier: BSD-3-Clause
/*
 * The shared memory behind an ivshmem device (QEMU's docs/specs/ivshmem-spec): BAR 2 of a PCI
 * device, as a file in sysfs.
 */
#include "guest/init.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PCI "/sys/bus/pci/devices"
#define IVSHMEM_VENDOR "0x1af4"
#define IVSHMEM_DEVICE "0x1110"

static bool is_ivshmem(const char *name)
{
	char vendor[16], device[16];

	return !file_read(vendor, sizeof(vendor), PCI "/%s/vendor", name) &&
	       !file_read(device, sizeof(device), PCI "/%s/device", name) &&
	       !strcmp(vendor, IVSHMEM_VENDOR) && !strcmp(device, IVSHMEM_DEVICE);
}

/* Its memory as a file.  Write-combining, if the kernel has that file: the memory has no side
 * effects. */
static int use(struct guest *guest, const char *name)
{
	static const char *const files[] = { "resource2_wc", "resource2" };
	struct stat stat_of = { 0 };
	int error = file_write("1", PCI "/%s/enable", name);

	if (error) {
		errno = -error;
		return guest_fails(guest, "cannot enable the PCI device %s", name);
	}
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(guest->memory, sizeof(guest->memory), PCI "/%s/%s", name, files[i]);
		if (!stat(guest->memory, &stat_of))
			break;
	}
	if ((uint64_t)stat_of.st_size != guest->bytes) {
		errno = EINVAL;
		return guest_fails(guest, "%s has %lld bytes of %llu", guest->memory,
				   (long long)stat_of.st_size, (unsigned long long)guest->bytes);
	}
	snprintf(guest->pci, sizeof(guest->pci), "%s", name);
	return 0;
}

int init_ivshmem(struct guest *guest)
{
	DIR *stream = opendir(PCI);
	struct dirent *entry;
	int result = -ENODEV;

	if (!stream)
		return guest_fails(guest, "cannot read " PCI);
	while (result == -ENODEV && (entry = readdir(stream)))
		if (is_ivshmem(entry->d_name))
			result = use(guest, entry->d_name);
	closedir(stream);
	if (result == -ENODEV) {
		errno = ENODEV;
		return guest_fails(guest, "no ivshmem device among the PCI devices");
	}
	return result;
}
