// SPDX-License-Identifier: BSD-3-Clause
/* The fabric that is meant and a host of it, as nupa/fabric/meant.py, fabric.py and users.py choose
 * them. */
#include "launcher/launcher.h"

#include "region/slot_life.h"
#include "segment/control/admit.h"
#include "segment/owner.h"
#include "segment/slot/counters.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* One range of bytes a host, far behind the segment's end, where a file may be locked, too. */
#define LEASES_OFF (1ll << 60)
#define LEASES_PER_HOST (1ll << 16)
#define NAMES_MAX 64u

struct names {
	uint32_t n;
	char name[NAMES_MAX][NUPA_NAME_BYTES + 1];
};

/* *to* has room for a valid name; one that is longer is cut. */
static void copy_name(char *to, const char *name)
{
	const size_t length = strnlen(name, NUPA_NAME_BYTES);

	memcpy(to, name, length);
	to[length] = '\0';
}

/* This user's fabrics; false: they are too many for us, or the folder cannot be read. */
static bool list_names(const struct nupa_registry *registry, struct names *names)
{
	const struct dirent *entry;
	bool fits = true;
	char prefix[32];
	size_t length;
	DIR *folder;

	names->n = 0;
	length = (size_t)snprintf(prefix, sizeof(prefix), "nupa-%u-", geteuid());
	folder = opendir(registry->folder);
	if (!folder)
		return false;
	while (fits && (entry = readdir(folder))) {
		const char *name = entry->d_name + length;

		if (strncmp(entry->d_name, prefix, length) != 0 || !nupa_name_is_valid(name))
			continue;
		fits = names->n < NAMES_MAX;
		if (fits)
			copy_name(names->name[names->n++], name);
	}
	closedir(folder);
	return fits;
}

static bool is_ours(const struct nupa_registry *registry, const char *name)
{
	struct stat status;
	char path[PATH_MAX];

	return nupa_registry_path(registry, "", name, "", path) && !lstat(path, &status) &&
	       nupa_owner_is_us(status.st_uid);
}

/* The fabric to use when none is named: NUPA_FABRIC's, else "default", else the only one. */
static bool find_meant(const struct nupa_registry *registry, char *name)
{
	const char *told = getenv("NUPA_FABRIC"), *only = NULL;
	struct names names;
	uint32_t n = 0;

	if (!list_names(registry, &names))
		return false;
	for (uint32_t i = 0; i < names.n; i++)
		nupa_collect(registry, names.name[i]);
	if (told && *told) {
		copy_name(name, told);
		return nupa_name_is_valid(told);
	}
	if (!list_names(registry, &names))
		return false;
	for (uint32_t i = 0; i < names.n; i++) {
		if (!is_ours(registry, names.name[i]))
			continue;
		if (n++ == 0 || !strcmp(names.name[i], NUPA_FABRIC_DEFAULT))
			only = names.name[i];
	}
	if (n > 1 && strcmp(only, NUPA_FABRIC_DEFAULT) != 0)
		return false;
	copy_name(name, only ? only : NUPA_FABRIC_DEFAULT);
	return true;
}

/* A machine of guests may have the fabric: nupa/vm/files/place.py. */
static bool may_have_guests(const char *name)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR"), *temporary = getenv("TMPDIR");
	char path[PATH_MAX];

	if (runtime && *runtime == '/' &&
	    (snprintf(path, sizeof(path), "%s/nupa-vm-%s", runtime, name) >= PATH_MAX ||
	     nupa_exists(path)))
		return true;
	snprintf(path, sizeof(path), "/run/user/%u/nupa-vm-%s", geteuid(), name);
	if (nupa_exists(path))
		return true;
	if (!temporary || !*temporary)
		temporary = "/tmp";
	return snprintf(path, sizeof(path), "%s/nupa-%u/nupa-vm-%s", temporary, geteuid(), name) >=
		   PATH_MAX ||
	       nupa_exists(path);
}

/* All its hosts are of this machine. */
static bool is_of_one_machine(const struct nupa_registry *registry, const struct nupa_lease *lease)
{
	const uint32_t others = NUPA_SEGMENT_MACHINES | NUPA_SEGMENT_SOFTWARE | NUPA_SEGMENT_TRUNK;
	char trunk[PATH_MAX];

	return !(nupa_fabric_flags(lease->fabric) & others) && !may_have_guests(lease->name) &&
	       nupa_registry_path(registry, ".", lease->name, ".trunk", trunk) &&
	       !nupa_exists(trunk);
}

static long long leases_off(uint32_t host)
{
	return LEASES_OFF + host * LEASES_PER_HOST;
}

/* Counts other `nupa run` on the host; -1: the system refuses. */
static int count_leases(int fd, long long at, long long end)
{
	struct flock asked = { .l_type = F_WRLCK, .l_start = at, .l_len = end - at };
	int before, behind;

	if (at >= end)
		return 0;
	if (fcntl(fd, F_OFD_GETLK, &asked))
		return -1;
	if (asked.l_type == F_UNLCK)
		return 0;
	/* The report may be any lock of the range: look on both sides.  Length 0: to the end. */
	before = count_leases(fd, at, asked.l_start);
	behind = count_leases(fd, asked.l_len ? asked.l_start + asked.l_len : end, end);
	return before < 0 || behind < 0 ? -1 : before + 1 + behind;
}

static bool take_host(int fd, uint32_t host)
{
	for (long long number = 0; number < LEASES_PER_HOST; number++) {
		struct flock lock = { .l_type = F_WRLCK,
				      .l_start = leases_off(host) + number,
				      .l_len = 1 };

		if (!fcntl(fd, F_OFD_SETLK, &lock))
			return true;
		if (errno != EAGAIN && errno != EACCES)
			return false;
	}
	return false;
}

static bool admits(const struct nupa_fabric *fabric, uint32_t host)
{
	char why[512];

	return nupa_host_admits(fabric, host, why, sizeof(why)) == 0;
}

/* The first host that is ready and has the fewest programs, attached or leased for. */
static bool find_quietest(struct nupa_fabric *fabric, uint32_t *found)
{
	uint32_t attached[NUPA_HOSTS_MAX] = { 0 };
	struct nupa_slot_info info;
	int least = INT_MAX;

	if (nupa_fabric_reap(fabric) < 0)
		return false;
	for (uint32_t slot = 1; slot < nupa_fabric_n_slots(fabric); slot++) {
		const int rc = nupa_fabric_slot(fabric, slot, &info);

		if (rc && rc != -ENOENT)
			return false;
		if (!rc && info.host < NUPA_HOSTS_MAX)
			attached[info.host] += !info.net_queue;
	}
	for (uint32_t host = 0; host < nupa_fabric_n_hosts(fabric); host++) {
		int programs =
		    count_leases(nupa_fabric_fd(fabric), leases_off(host), leases_off(host + 1));

		if (programs < 0)
			return false;
		if (programs < (int)attached[host])
			programs = (int)attached[host];
		if (programs < least && admits(fabric, host)) {
			least = programs;
			*found = host;
		}
	}
	return least < INT_MAX;
}

/* By name, or by number as Python writes it. */
static bool find_named(const struct nupa_fabric *fabric, const char *asked, uint32_t *found)
{
	char number[16];

	for (uint32_t host = 0; host < nupa_fabric_n_hosts(fabric); host++) {
		snprintf(number, sizeof(number), "%u", host);
		if (!strcmp(asked, nupa_fabric_host(fabric, host)->name) ||
		    !strcmp(asked, number)) {
			*found = host;
			return admits(fabric, host);
		}
	}
	return false;
}

static bool open_or_create(const struct nupa_registry *registry, struct nupa_lease *lease)
{
	char why[512];

	if (!strcmp(lease->name, NUPA_FABRIC_DEFAULT) && !nupa_exists(lease->path)) {
		nupa_collect_beside(registry, lease->name);
		lease->fabric = nupa_pair_create(lease->path, lease->name);
		return lease->fabric != NULL;
	}
	return !nupa_fabric_open(lease->path, &lease->fabric, why, sizeof(why));
}

bool nupa_lease_take(const struct nupa_registry *registry, const struct nupa_line *line,
		     struct nupa_lease *lease)
{
	uint32_t host = 0;
	int fd;

	if (line->fabric)
		copy_name(lease->name, line->fabric);
	else if (!find_meant(registry, lease->name))
		return false;
	if (!nupa_registry_path(registry, "", lease->name, "", lease->path) ||
	    !open_or_create(registry, lease))
		return false;
	fd = nupa_fabric_fd(lease->fabric);
	if (!flock(fd, LOCK_SH | LOCK_NB) && is_of_one_machine(registry, lease) &&
	    (line->host ? find_named(lease->fabric, line->host, &host)
			: find_quietest(lease->fabric, &host)) &&
	    take_host(fd, host)) {
		lease->host = nupa_fabric_host(lease->fabric, host)->name;
		return true;
	}
	nupa_fabric_put(lease->fabric);
	nupa_collect(registry, lease->name);
	return false;
}
