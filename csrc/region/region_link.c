/* SPDX-License-Identifier: BSD-3-Clause
 * Links between hosts and the memory of regions: ports on the way, windows lost when a port goes
 * down, processes that follow port states.  A link that went down resets what is behind it, so that
 * a window never comes back (CXL 3.1 9.9, 12.3): it is mapped again. */
#include "segment/coherence.h"
#include "segment/trunk.h"
#include "segment/control/event.h"
#include "region/region_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS_NS 1000000

void nupa_region_links_changed(struct nupa_fabric *fabric)
{
	struct nupa_regions t;

	if (!nupa_regions(fabric, false, &t))
		nupa_region_announce(&t);
}

static void post_port(struct nupa_fabric *fabric, const struct nupa_port *port, bool down)
{
	char name[NUPA_NAME_BYTES];

	snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, port->name);
	nupa_event_post(fabric, down ? NUPA_SEVERITY_WARNING : NUPA_SEVERITY_OK,
			down ? "port.down" : "port.up", name, "port %s is %s", name,
			down ? "down" : "up");
}

int nupa_fabric_set_port(struct nupa_fabric *fabric, uint32_t port, uint32_t state)
{
	struct nupa_port *entry;

	if (port >= fabric->geometry.n_ports ||
	    (state != NUPA_PORT_DOWN && state != NUPA_PORT_ACTIVE))
		return -EINVAL;
	if ((nupa_fabric_incoherent(fabric) && !fabric->creator) ||
	    (nupa_fabric_has_trunk(fabric) &&
	     nupa_port_machine(fabric, port) != fabric->geometry.trunk.machine))
		return -EREMOTE;
	entry = &fabric->ports[port];
	/* A fault may do the same meanwhile; the epoch below publishes it. */
	if (nupa_exchange_seq(&entry->state, state) == state)
		return 0;
	if (state == NUPA_PORT_DOWN)
		nupa_fetch_add_seq(&entry->link_downed, 1);
	nupa_flush(nupa_fabric_incoherent(fabric), NUPA_POINT_PORTS, entry, sizeof(*entry));
	nupa_fabric_announce(fabric);
	nupa_region_links_changed(fabric);
	post_port(fabric, entry, state == NUPA_PORT_DOWN);
	return 0;
}

/* --- followers --------------------------------------------------------------------------- */

int nupa_region_follow(struct nupa_fabric *fabric, uint32_t *follower)
{
	const struct nupa_region_info none = { .id = NUPA_REGION_FOLLOWER };
	struct nupa_regions t;
	uint64_t claim;
	uint32_t index;
	int rc;

	if (nupa_fabric_machines(fabric))
		return -EOPNOTSUPP;
	rc = nupa_regions(fabric, true, &t);
	if (!rc)
		rc = nupa_region_take_place(fabric, &t, &none, 0, &index, &claim);
	if (!rc)
		*follower = nupa_region_place(claim, index);
	return rc;
}

int nupa_region_heed(struct nupa_fabric *fabric, uint32_t follower, uint32_t epoch)
{
	struct nupa_regions t;
	uint32_t index;
	uint64_t claim;

	if (nupa_regions(fabric, false, &t) ||
	    !nupa_region_own_place(fabric, &t, follower, &index, &claim) ||
	    nupa_load_relaxed(&t.mappings[index].id) != NUPA_REGION_FOLLOWER)
		return -EINVAL;
	nupa_store_release(&t.mappings[index].links, epoch);
	nupa_region_let_go(&t);
	return 0;
}

int nupa_region_await_epoch(struct nupa_fabric *fabric, uint32_t *epoch, uint32_t timeout_ms)
{
	const struct timespec timeout = { timeout_ms / 1000, (long)(timeout_ms % 1000) * MS_NS };
	struct nupa_regions t;
	const int rc = nupa_regions(fabric, true, &t);

	if (rc)
		return rc;
	if (nupa_load_seq(&t.header->epoch) == *epoch)
		syscall(SYS_futex, &t.header->epoch, FUTEX_WAIT, *epoch, &timeout, NULL, 0);
	*epoch = nupa_load_seq(&t.header->epoch);
	return 0;
}

/* --- awaited ------------------------------------------------------------------------------- */

/* Whether the place has still to act on what was announced up to *epoch*. */
static bool is_behind(const struct nupa_fabric *fabric, const struct nupa_region_mapping *mapping,
		      uint64_t epoch)
{
	const uint32_t links = nupa_load_acquire(&mapping->links);
	uint32_t downs;

	if (nupa_load_relaxed(&mapping->id) == NUPA_REGION_FOLLOWER)
		return (int32_t)(links - (uint32_t)epoch) < 0;
	return !nupa_region_linked(fabric, nupa_load_relaxed(&mapping->host),
				   nupa_load_relaxed(&mapping->home), &downs) ||
	       downs != links;
}

static bool have_acted(struct nupa_fabric *fabric, const struct nupa_regions *t, uint64_t epoch)
{
	const uint32_t limit = nupa_load_seq(&t->header->mappings_limit);

	for (uint32_t i = 0; i < limit && i < t->n_mappings; i++)
		if (nupa_region_place_open(fabric, &t->mappings[i], is_behind, epoch))
			return false;
	return true;
}

int nupa_region_await_links(struct nupa_fabric *fabric)
{
	struct nupa_regions t;
	const int rc = nupa_regions(fabric, false, &t);

	if (rc == -ENOENT || rc == -EOPNOTSUPP) /* no windows */
		return 0;
	return rc ? rc : nupa_region_await(fabric, &t, have_acted, nupa_load_seq(&t.header->epoch));
}
