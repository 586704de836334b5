// SPDX-License-Identifier: BSD-3-Clause
/*
 * The shared memory behind a CXL device.  A region of all of it is made through sysfs (the kernel's
 * Documentation/ABI/testing/sysfs-bus-cxl).  Offset 0 of the region's device-dax is offset 0 of the
 * file.  cxl-cli cannot make it: version 76 rejects volatile memory.
 */
#include "guest/init.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CXL "/sys/bus/cxl/devices"
#define DAX "/sys/bus/dax"
#define GRANULARITY "256"
#define WAIT_STEP_MS 5

/* Finds the entry of *dir* with that prefix that has a file *with*: 0 or -ENOENT.  Of several it is
 * the first by name, as decoders are used in their order (CXL 3.1 8.2.4.20). */
static int find(const char *dir, const char *prefix, const char *with, char name[NAME_MAX + 1])
{
	int error = -ENOENT;
	DIR *stream = opendir(dir);
	struct dirent *entry;

	if (!stream)
		return -errno;
	while ((entry = readdir(stream))) {
		char path[PATH_MAX];

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    (!error && strcmp(entry->d_name, name) > 0))
			continue;
		snprintf(path, sizeof(path), "%s/%s/%s", dir, entry->d_name, with);
		if (!access(path, F_OK)) {
			snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
			error = 0;
		}
	}
	closedir(stream);
	return error;
}

/* The same, as soon as there is one: drivers are probed in the background. */
static int await(struct guest *guest, const char *dir, const char *prefix, const char *with,
		 char name[NAME_MAX + 1])
{
	const struct timespec step = { .tv_nsec = WAIT_STEP_MS * 1000000L };

	for (int waited_ms = 0; find(dir, prefix, with, name); waited_ms += WAIT_STEP_MS) {
		if (waited_ms >= DEVICE_WAIT_MS) {
			errno = ENODEV;
			return guest_fails(guest, "no %s/%s*/%s after %d s", dir, prefix, with,
					   DEVICE_WAIT_MS / 1000);
		}
		nanosleep(&step, NULL);
	}
	return 0;
}

/* The attributes to write, in order. */
struct setting {
	const char *dir, *name, *file, *value;
};

static int apply(struct guest *guest, const struct setting *settings, size_t n)
{
	for (const struct setting *set = settings; set < settings + n; set++) {
		int error = file_write(set->value, "%s/%s/%s", set->dir, set->name, set->file);

		if (error) {
			errno = -error;
			return guest_fails(guest, "cannot write %s to %s/%s/%s", set->value,
					   set->dir, set->name, set->file);
		}
	}
	return 0;
}

static int make_region(struct guest *guest, const char *root, const char *endpoint)
{
	char region[32], bytes[32];
	int error = file_read(region, sizeof(region), CXL "/%s/create_ram_region", root);

	if (error) {
		errno = -error;
		return guest_fails(guest, "cannot read " CXL "/%s/create_ram_region", root);
	}
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)guest->bytes);
	const struct setting settings[] = {
		{ CXL, endpoint, "mode", "ram" },
		{ CXL, endpoint, "dpa_size", bytes },
		{ CXL, root, "create_ram_region", region },
		{ CXL, region, "interleave_granularity", GRANULARITY },
		{ CXL, region, "interleave_ways", "1" },
		{ CXL, region, "size", bytes },
		{ CXL, region, "target0", endpoint },
		{ CXL, region, "commit", "1" },
		{ "/sys/bus/cxl", "drivers", "cxl_region/bind", region },
	};
	return apply(guest, settings, sizeof(settings) / sizeof(settings[0]));
}

/* Binds it to device_dax, not to dax_kmem, which would make it ordinary memory of this guest. */
static int bind_dax(struct guest *guest)
{
	char dax[NAME_MAX + 1], bytes[32] = "0";
	int error = await(guest, DAX "/devices", "dax", "size", dax);

	if (error)
		return error;
	error = file_read(bytes, sizeof(bytes), DAX "/devices/%s/size", dax);
	if (error || strtoull(bytes, NULL, 10) != guest->bytes) {
		errno = error ? -error : EINVAL;
		return guest_fails(guest, "%s has %s bytes of %llu", dax, bytes,
				   (unsigned long long)guest->bytes);
	}
	const struct setting settings[] = {
		{ DAX, "drivers", "device_dax/new_id", dax },
	};
	error = apply(guest, settings, 1);
	if (error)
		return error;
	snprintf(guest->memory, sizeof(guest->memory), "/dev/%s", dax);
	if (access(guest->memory, R_OK | W_OK))
		return guest_fails(guest, "%s", guest->memory);
	return 0;
}

int init_cxl(struct guest *guest)
{
	char root[NAME_MAX + 1], endpoint[NAME_MAX + 1];
	int error = await(guest, CXL, "decoder", "create_ram_region", root);

	if (!error)
		error = await(guest, CXL, "decoder", "dpa_size", endpoint);
	if (!error)
		error = make_region(guest, root, endpoint);
	return error ? error : bind_dax(guest);
}
