/* SPDX-License-Identifier: BSD-3-Clause
 * A fabric's segment: made, opened, checked, its control part mapped. */
#include "base/atomics.h"
#include "base/explain.h"
#include "segment/backing.h"
#include "segment/bell.h"
#include "segment/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Maps the control part, which is backed (MACHINES: all), and points into it. */
static int map_control(struct nupa_fabric *fabric, char *why, size_t why_bytes)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const bool machines = sb->flags & NUPA_SEGMENT_MACHINES;
	const uint64_t bytes = machines ? sb->segment_bytes : sb->arenas_off;
	uint8_t *base = fabric->whole ? fabric->whole : nupa_map_shared(fabric->fd, 0, bytes);

	if (!base)
		return nupa_explain(-errno, why, why_bytes,
				    "cannot map %" PRIu64 " bytes of %s: %s", bytes, fabric->path,
				    strerror(errno));
	if (machines && !fabric->whole) {
		fabric->whole = base;
		fabric->whole_bytes = bytes;
	}
	fabric->sb = (struct nupa_superblock *)base;
	fabric->ports = (struct nupa_port *)(base + sb->ports_off);
	fabric->controls = (struct nupa_host_control *)(base + sb->controls_off);
	fabric->slots = (struct nupa_slot *)(base + sb->slots_off);
	fabric->contacts = (uint32_t *)(base + nupa_contacts_off(sb));
	fabric->contact_words = nupa_contact_words(sb);
	fabric->extents = (uint32_t *)(base + sb->extents_off);
	fabric->rates = (struct nupa_rate_entry *)(void *)(base + nupa_rates_off(sb));
	return 0;
}

static int copy_tables(struct nupa_fabric *fabric, const struct nupa_host *hosts,
		       const struct nupa_route *routes)
{
	const size_t n_hosts = fabric->geometry.n_hosts;

	fabric->hosts = malloc(n_hosts * sizeof(*hosts));
	fabric->routes = malloc(n_hosts * n_hosts * sizeof(*routes));
	if (!fabric->hosts || !fabric->routes)
		return -ENOMEM;
	memcpy(fabric->hosts, hosts, n_hosts * sizeof(*hosts));
	memcpy(fabric->routes, routes, n_hosts * n_hosts * sizeof(*routes));
	return 0;
}

static struct nupa_fabric *fabric_new(const char *path)
{
	/* As a superblock asks for, of which it has a copy. */
	struct nupa_fabric *fabric = aligned_alloc(NUPA_CACHE_LINE_BYTES, sizeof(*fabric));

	if (!fabric)
		return NULL;
	memset(fabric, 0, sizeof(*fabric));
	fabric->fd = -1;
	fabric->refs = 1;
	fabric->opener = getpid();
	snprintf(fabric->path, sizeof(fabric->path), "%s", path);
	return fabric;
}

static int plan(struct nupa_fabric *fabric, const char *name, const struct nupa_config *config,
		uint32_t n_hosts, uint32_t n_ports, const struct nupa_tables *tables, char *why,
		size_t why_bytes)
{
	struct nupa_superblock *sb = &fabric->geometry;
	struct timespec now;
	int rc;

	if (!name || !name[0] || strlen(name) >= sizeof(sb->name))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "a fabric's name has 1 to %zu bytes, this one %zu",
				    sizeof(sb->name) - 1, name ? strlen(name) : 0);
	rc = nupa_geometry_plan(config, n_hosts, n_ports, sb, why, why_bytes);
	if (rc)
		return rc;
	if (nupa_geometry_check_tables(sb, tables, why, why_bytes))
		return -EINVAL;
	sb->generation = config ? config->generation : 0;
	if (!sb->generation &&
	    getrandom(&sb->generation, sizeof(sb->generation), 0) != sizeof(sb->generation))
		return nupa_explain(-errno, why, why_bytes, "no random numbers: getrandom: %s%s",
				    strerror(errno), nupa_remedy(errno));
	clock_gettime(CLOCK_REALTIME, &now);
	sb->created_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	memcpy(sb->name, name, strlen(name));
	sb->checksum = nupa_geometry_checksum(sb, tables);
	return 0;
}

static int make_file(struct nupa_fabric *fabric, const char *path, char *why, size_t why_bytes)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	struct rlimit limit;

	/* ftruncate past the limit is a signal, not an error (setrlimit(2), RLIMIT_FSIZE). */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sb->segment_bytes)
		return nupa_explain(-EFBIG, why, why_bytes,
				    "%s is a sparse file of %" PRIu64
				    " bytes, ulimit -f allows %" PRIu64
				    ": raise it or choose fewer slots",
				    fabric->path, sb->segment_bytes, (uint64_t)limit.rlim_cur);
	fabric->fd = path ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)
			  : memfd_create("nupa", MFD_CLOEXEC);
	/* A memfd is open to all who find it in /proc. */
	if (fabric->fd < 0 || (!path && fchmod(fabric->fd, 0600)))
		return nupa_explain(-errno, why, why_bytes, "cannot make %s: %s", fabric->path,
				    strerror(errno));
	return 0;
}

static int fill_file(struct nupa_fabric *fabric, const struct nupa_tables *tables, char *why,
		     size_t why_bytes)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	uint64_t bytes;
	uint8_t *base;
	int rc;

	if (ftruncate(fabric->fd, (off_t)sb->segment_bytes))
		return nupa_explain(-errno, why, why_bytes,
				    "cannot make %s %" PRIu64 " bytes long: %s", fabric->path,
				    sb->segment_bytes, strerror(errno));
	bytes = sb->flags & NUPA_SEGMENT_MACHINES ? sb->segment_bytes : sb->arenas_off;
	rc = nupa_back_file(fabric->fd, 0, bytes);
	if (rc)
		return nupa_explain_backing(rc, fabric->path, bytes, why, why_bytes);
	rc = map_control(fabric, why, why_bytes);
	if (rc)
		return rc;
	base = (uint8_t *)fabric->sb;
	memcpy(base, sb, sizeof(*sb));
	memcpy(base + sb->hosts_off, tables->hosts, sb->n_hosts * sizeof(*tables->hosts));
	memcpy(base + sb->ports_off, tables->ports, sb->n_ports * sizeof(*tables->ports));
	memcpy(base + sb->routes_off, tables->routes,
	       (size_t)sb->n_hosts * sb->n_hosts * sizeof(*tables->routes));
	for (uint32_t host = 0; host < sb->n_hosts; host++)
		fabric->controls[host].pkeys[0] = NUPA_PKEY_DEFAULT;
	rc = nupa_fabric_join(fabric);
	if (rc)
		return nupa_explain(rc, why, why_bytes, "cannot read this kernel's boot id");
	/* Published whole: a process that sees the magic sees all that was stored before it. */
	fabric->geometry.magic = NUPA_MAGIC;
	nupa_store_release(&fabric->sb->magic, NUPA_MAGIC);
	return 0;
}

int nupa_fabric_create(const char *path, const char *name, const struct nupa_config *config,
		       const struct nupa_host *hosts, uint32_t n_hosts,
		       const struct nupa_port *ports, uint32_t n_ports,
		       const struct nupa_route *routes, struct nupa_fabric **out, char *why,
		       size_t why_bytes)
{
	const struct nupa_tables tables = { hosts, ports, routes };
	struct nupa_fabric *fabric;
	int rc;

	if (path && strlen(path) >= sizeof(fabric->path))
		return nupa_explain(-ENAMETOOLONG, why, why_bytes,
				    "the path has %zu bytes, at most %zu", strlen(path),
				    sizeof(fabric->path) - 1);
	fabric = fabric_new(path ? path : "(memfd)");
	if (!fabric)
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	rc = plan(fabric, name, config, n_hosts, n_ports, &tables, why, why_bytes);
	if (!rc && copy_tables(fabric, hosts, routes))
		rc = nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	if (!rc)
		rc = make_file(fabric, path, why, why_bytes);
	if (!rc) {
		rc = fill_file(fabric, &tables, why, why_bytes);
		if (rc && path)
			unlink(path);
	}
	if (rc) {
		nupa_fabric_put(fabric);
		return rc;
	}
	*out = fabric;
	return 0;
}

/* A device's memory can only be mapped; all of it is, for good. */
static int read_device(struct nupa_fabric *fabric, uint64_t bytes, char *why, size_t why_bytes)
{
	if (bytes < sizeof(fabric->geometry))
		return nupa_explain(-EMSGSIZE, why, why_bytes,
				    "%s has %" PRIu64 " bytes, a superblock has %zu", fabric->path,
				    bytes, sizeof(fabric->geometry));
	fabric->whole = nupa_map_shared(fabric->fd, 0, bytes);
	if (!fabric->whole)
		return nupa_explain(-errno, why, why_bytes, "cannot map %s: %s", fabric->path,
				    strerror(errno));
	fabric->whole_bytes = bytes;
	fabric->device = true;
	memcpy(&fabric->geometry, fabric->whole, sizeof(fabric->geometry));
	return 0;
}

static int read_file(struct nupa_fabric *fabric, char *why, size_t why_bytes)
{
	struct nupa_superblock *sb = &fabric->geometry;
	const ssize_t bytes = pread(fabric->fd, sb, sizeof(*sb), 0);

	if (bytes < 0)
		return nupa_explain(-errno, why, why_bytes, "cannot read %s: %s", fabric->path,
				    strerror(errno));
	if ((size_t)bytes < sizeof(*sb))
		return nupa_explain(-EMSGSIZE, why, why_bytes,
				    "%s is truncated: %zd bytes, a superblock has %zu",
				    fabric->path, bytes, sizeof(*sb));
	return 0;
}

/* Reads and checks the superblock, without mapping anything of a file. */
static int read_superblock(struct nupa_fabric *fabric, char *why, size_t why_bytes)
{
	struct nupa_superblock *sb = &fabric->geometry;
	uint64_t device_bytes;
	char reason[256];
	struct stat st;
	int rc;

	if (fstat(fabric->fd, &st))
		return nupa_explain(-errno, why, why_bytes, "cannot stat %s: %s", fabric->path,
				    strerror(errno));
	device_bytes = nupa_device_bytes(fabric->fd);
	if (!S_ISREG(st.st_mode) && !device_bytes)
		return nupa_explain(-EINVAL, why, why_bytes,
				    "%s of user %u is not a regular file, so it is not a fabric",
				    fabric->path, st.st_uid);
	rc = nupa_owner_check(&st, device_bytes != 0, fabric->path, why, why_bytes);
	if (rc)
		return rc;
	rc = device_bytes ? read_device(fabric, device_bytes, why, why_bytes)
			  : read_file(fabric, why, why_bytes);
	if (rc)
		return rc;
	rc = nupa_geometry_check(sb, device_bytes ? device_bytes : (uint64_t)st.st_size, reason,
				 sizeof(reason));
	if (rc)
		return nupa_explain(rc, why, why_bytes, "%s: %s", fabric->path, reason);
	if (fabric->device && !(sb->flags & NUPA_SEGMENT_MACHINES))
		return nupa_explain(-EINVAL, why, why_bytes,
				    "%s is a device, the fabric in it is one for a file: make it "
				    "with `nupa vm up`",
				    fabric->path);
	return 0;
}

/* Takes private copies of what never changes, then checks the copies (I5). */
static int check_contents(struct nupa_fabric *fabric, char *why, size_t why_bytes)
{
	const struct nupa_superblock *sb = &fabric->geometry;
	const uint8_t *base = (const uint8_t *)fabric->sb;
	const size_t ports_bytes = sb->n_ports * sizeof(struct nupa_port);
	struct nupa_port *ports = malloc(ports_bytes);
	struct nupa_tables tables;
	char reason[256];
	int rc;

	if (!ports || copy_tables(fabric, (const struct nupa_host *)(base + sb->hosts_off),
				  (const struct nupa_route *)(base + sb->routes_off))) {
		free(ports);
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	}
	memcpy(ports, fabric->ports, ports_bytes);
	tables = (struct nupa_tables){ fabric->hosts, ports, fabric->routes };
	rc = nupa_geometry_checksum(sb, &tables) == sb->checksum ? 0 : -EBADMSG;
	if (rc)
		nupa_explain(rc, why, why_bytes, "%s is corrupt: its checksum does not match",
			     fabric->path);
	if (!rc) {
		rc = nupa_geometry_check_tables(sb, &tables, reason, sizeof(reason));
		if (rc)
			nupa_explain(rc, why, why_bytes, "%s is corrupt: %s", fabric->path, reason);
	}
	free(ports);
	return rc;
}

static int join(struct nupa_fabric *fabric, char *why, size_t why_bytes)
{
	int rc = nupa_fabric_join(fabric);

	if (rc == -EOPNOTSUPP)
		return nupa_explain(rc, why, why_bytes,
				    "%s is in memory that is not coherent, and nupa knows no "
				    "instructions of this processor to write it back",
				    fabric->path);
	return rc ? nupa_explain(
			rc, why, why_bytes,
			"%s has been opened by %u kernels, which is the most: make it anew",
			fabric->path, NUPA_KERNELS_MAX - 1)
		  : 0;
}

int nupa_fabric_open(const char *path, struct nupa_fabric **out, char *why, size_t why_bytes)
{
	struct nupa_fabric *fabric;
	int rc;

	if (strlen(path) >= sizeof(fabric->path))
		return nupa_explain(-ENAMETOOLONG, why, why_bytes,
				    "the path has %zu bytes, at most %zu", strlen(path),
				    sizeof(fabric->path) - 1);
	fabric = fabric_new(path);
	if (!fabric)
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	fabric->fd = nupa_owner_open(path, why, why_bytes);
	rc = fabric->fd < 0 ? fabric->fd : read_superblock(fabric, why, why_bytes);
	if (!rc && !fabric->device) {
		/* Backed already, unless holes were punched: a hole is an error here, not a SIGBUS.
		 */
		rc = nupa_back_file(fabric->fd, 0, fabric->geometry.arenas_off);
		if (rc)
			nupa_explain_backing(rc, path, fabric->geometry.arenas_off, why, why_bytes);
	}
	if (!rc)
		rc = map_control(fabric, why, why_bytes);
	if (!rc)
		rc = check_contents(fabric, why, why_bytes);
	if (!rc)
		rc = join(fabric, why, why_bytes);
	if (rc) {
		nupa_fabric_put(fabric);
		return rc;
	}
	*out = fabric;
	return 0;
}

struct nupa_fabric *nupa_fabric_get(struct nupa_fabric *fabric)
{
	/* The caller holds a reference already, so nothing is published here. */
	nupa_fetch_add_seq(&fabric->refs, 1);
	return fabric;
}

void nupa_fabric_put(struct nupa_fabric *fabric)
{
	/* Each user's last access comes before the unmapping by the last of them. */
	if (__atomic_fetch_sub(&fabric->refs, 1, __ATOMIC_ACQ_REL) != 1)
		return;
	nupa_bell_close(fabric->bell);
	nupa_fabric_unmap(fabric);
	if (fabric->fd >= 0) {
		/* A child of another thread has fd, too, until it calls exec: close(2) alone would
		 * leave it our lock. */
		if (fabric->opener == getpid())
			flock(fabric->fd, LOCK_UN);
		close(fabric->fd);
	}
	free(fabric->hosts);
	free(fabric->routes);
	free(fabric);
}

struct nupa_flow *nupa_past_flow(const struct nupa_fabric *fabric, uint32_t from, uint32_t to)
{
	uint8_t *flows = (uint8_t *)fabric->sb + nupa_past_flows_off(&fabric->geometry);

	return (struct nupa_flow *)flows + (size_t)from * fabric->geometry.n_hosts + to;
}

struct nupa_hw_counters *nupa_past_hw(const struct nupa_fabric *fabric, uint32_t host)
{
	uint8_t *hw = (uint8_t *)fabric->sb + nupa_past_hw_off(&fabric->geometry);

	return (struct nupa_hw_counters *)hw + host;
}

const char *nupa_fabric_name(const struct nupa_fabric *fabric)
{
	return fabric->geometry.name;
}

uint32_t nupa_fabric_n_hosts(const struct nupa_fabric *fabric)
{
	return fabric->geometry.n_hosts;
}

uint32_t nupa_fabric_n_ports(const struct nupa_fabric *fabric)
{
	return fabric->geometry.n_ports;
}

uint32_t nupa_fabric_n_slots(const struct nupa_fabric *fabric)
{
	return fabric->geometry.n_slots;
}

uint32_t nupa_fabric_flags(const struct nupa_fabric *fabric)
{
	return fabric->geometry.flags;
}

uint64_t nupa_fabric_generation(const struct nupa_fabric *fabric)
{
	return fabric->geometry.generation;
}

uint64_t nupa_fabric_created_ns(const struct nupa_fabric *fabric)
{
	return fabric->geometry.created_ns;
}

int nupa_fabric_fd(const struct nupa_fabric *fabric)
{
	return fabric->fd;
}

const struct nupa_host *nupa_fabric_host(const struct nupa_fabric *fabric, uint32_t host)
{
	return host < fabric->geometry.n_hosts ? &fabric->hosts[host] : NULL;
}

const struct nupa_port *nupa_fabric_port(const struct nupa_fabric *fabric, uint32_t port)
{
	return port < fabric->geometry.n_ports ? &fabric->ports[port] : NULL;
}

const struct nupa_route *nupa_fabric_route(const struct nupa_fabric *fabric, uint32_t from,
					   uint32_t to)
{
	const uint32_t n_hosts = fabric->geometry.n_hosts;

	return from < n_hosts && to < n_hosts ? &fabric->routes[(size_t)from * n_hosts + to] : NULL;
}
