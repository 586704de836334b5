/* SPDX-License-Identifier: BSD-3-Clause
 * Recognises the device's paths and maps them to their copies: one prefix is replaced by another.
 */
#define _GNU_SOURCE
#include "shim/shim.h"

#include "base/atomics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const prefixes[] = {
	"/sys/class/infiniband",
	"/sys/class/infiniband_verbs",
	"/sys/class/infiniband_mad",
	"/sys/class/net/nupa_net0",
	"/sys/class/pci_bus/4e55:00",
	NUPA_SHIM_PCI_ON_BUS,
	"/sys/bus/pci/drivers/nupa",
	NUPA_SHIM_PCI_BUS,
	"/dev/infiniband",
};
#define N_PREFIXES (sizeof(prefixes) / sizeof(prefixes[0]))

/* The fabric and host, as `nupa run` set them when the program started: later changes of its
 * environment do not count. */
static struct {
	uint32_t ready;
	bool ours; /* it has a fabric and a host */
	char fabric[NUPA_SHIM_ROOT_MAX_BYTES];
	char host[NUPA_NAME_BYTES];
	char root[NUPA_SHIM_ROOT_MAX_BYTES]; /* of the tree: beside the segment, see registry.py */
} self;

static bool copy_text(char *to, size_t bytes, const char *from)
{
	size_t length = from ? strlen(from) : 0;

	if (length == 0 || length >= bytes)
		return false;
	memcpy(to, from, length + 1);
	return true;
}

/* Two threads may do this at once: both store the same. */
static void learn(void)
{
	const char *base;
	int bytes;

	if (copy_text(self.fabric, sizeof(self.fabric), secure_getenv("NUPA_FABRIC")) &&
	    copy_text(self.host, sizeof(self.host), secure_getenv("NUPA_HOST")) &&
	    !strchr(self.host, '/') && self.host[0] != '.') {
		base = strrchr(self.fabric, '/');
		base = base ? base + 1 : self.fabric;
		bytes = snprintf(self.root, sizeof(self.root), "%.*s.%s.files/%s",
				 (int)(base - self.fabric), self.fabric, base, self.host);
		self.ours = bytes > 0 && (size_t)bytes < sizeof(self.root);
	}
	nupa_store_release(&self.ready, 1);
}

/* Early, but not too early: constructors of other libraries may have called before. */
__attribute__((constructor)) static void learn_at_start(void)
{
	if (!nupa_load_acquire(&self.ready))
		learn();
}

bool nupa_shim_place(const char **fabric, const char **host)
{
	if (!nupa_load_acquire(&self.ready))
		learn();
	*fabric = self.fabric;
	*host = self.host;
	return self.ours;
}

static bool has_prefix(const char *path)
{
	for (size_t i = 0; i < N_PREFIXES; i++) {
		size_t length = strlen(prefixes[i]);

		if (!strncmp(path, prefixes[i], length) && (!path[length] || path[length] == '/'))
			return true;
	}
	return false;
}

const char *nupa_shim_path(const char *path, char buffer[NUPA_SHIM_PATH_MAX_BYTES])
{
	int saved = errno;
	int bytes;

	if (!has_prefix(path))
		return path;
	if (!nupa_load_acquire(&self.ready))
		learn();
	bytes = snprintf(buffer, NUPA_SHIM_PATH_MAX_BYTES, "%s%s", self.root, path);
	if (self.ours && bytes > 0 && (size_t)bytes < NUPA_SHIM_PATH_MAX_BYTES &&
	    !nupa_shim_tree_show(self.root, self.fabric, self.host, path))
		path = buffer;
	errno = saved;
	return path;
}

const char *nupa_shim_path_at(int dir, const char *path, char buffer[NUPA_SHIM_PATH_MAX_BYTES])
{
	char whole[NUPA_SHIM_PATH_MAX_BYTES];
	int saved = errno;
	struct stat st, root;
	bool found;

	found = snprintf(whole, sizeof(whole), "/%s", path) < (int)sizeof(whole) &&
		has_prefix(whole) && !fstat(dir, &st) && !stat("/", &root) &&
		st.st_dev == root.st_dev && st.st_ino == root.st_ino &&
		nupa_shim_path(whole, buffer) == buffer;
	errno = saved;
	return found ? buffer : path;
}

/* Also of those that are the machine's, too: /sys/bus/pci, to which links of the tree lead. */
void nupa_shim_name(char *path)
{
	size_t length = strlen(self.root);

	if (self.ours && !strncmp(path, self.root, length) && path[length] == '/')
		memmove(path, path + length, strlen(path + length) + 1);
}
