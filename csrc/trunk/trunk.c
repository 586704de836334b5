/* SPDX-License-Identifier: BSD-3-Clause
 * The trunk's life: opened, run, stopped.  It turns while there is something to do and a little
 * longer, then sleeps until a process of this machine rings or the carrier has something. */
#define _GNU_SOURCE
#include "trunk/internal.h"

#include "base/explain.h"
#include "region/slot_life.h"
#include "segment/slot/machine.h"
#include "segment/slot/slot.h"
#include "trunk/ucx/ucx.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 20000u
#define REAP_NS UINT64_C(1000000000) /* processes whose end was not announced */
#define DEAF_NS 1000000u             /* a process cannot ring */

/* --- one turn ------------------------------------------------------------------------------ */

static void reap(struct nupa_trunk *trunk)
{
	for (uint32_t i = 0; i < trunk->machines; i++)
		(void)nupa_pairs_send(trunk, &trunk->peers[i]); /* its last messages count */
	trunk->deaths = false;
	trunk->reap_ns = trunk->now_ns + REAP_NS;
	(void)nupa_fabric_reap(trunk->fabric);
}

bool nupa_trunk_turn(struct nupa_trunk *trunk, uint64_t *due_ns)
{
	uint64_t due, at_ns;
	uint32_t wanted;
	bool busy;

	trunk->now_ns = nupa_clock_ns();
	busy = trunk->carrier->ops->progress(trunk->carrier, trunk->now_ns);
	/* Before the news that it is about. */
	wanted = nupa_load_acquire(&trunk->area->wanted);
	if (trunk->deaths || trunk->now_ns >= trunk->reap_ns)
		reap(trunk);
	due = trunk->reap_ns;
	busy |= nupa_tell_news(trunk);
	busy |= nupa_tell_ports(trunk);
	for (uint32_t i = 0; i < trunk->machines; i++) {
		struct nupa_peer *peer = &trunk->peers[i];

		if (!peer->known)
			continue;
		busy |= nupa_tell_more(trunk, peer);
		busy |= nupa_pairs_send(trunk, peer);
	}
	nupa_peers_settle(trunk, wanted);
	at_ns = nupa_peers_tick(trunk);
	due = at_ns < due ? at_ns : due;
	for (uint32_t i = 0; i < trunk->machines; i++) {
		struct nupa_peer *peer = &trunk->peers[i];

		if (peer->known) {
			at_ns = nupa_pairs_tell_heads(trunk, peer);
			due = at_ns < due ? at_ns : due;
		}
		nupa_out_flush(trunk, peer);
		nupa_pairs_sweep_out(peer);
		nupa_pairs_sweep_in(trunk, peer);
	}
	*due_ns = due;
	return busy;
}

/* --- sleep --------------------------------------------------------------------------------- */

/* C3: after `sleeping` was stored. */
static bool must_run(const struct nupa_trunk *trunk)
{
	if (nupa_load_acquire(&trunk->stop) ||
	    (nupa_load_acquire(&trunk->area->news_tail) != trunk->news_head &&
	     !trunk->news_stuck_ns) ||
	    nupa_load_acquire(trunk->fabric->port_epoch) != trunk->port_epoch)
		return true;
	for (uint32_t i = 0; i < trunk->machines; i++)
		if (trunk->peers[i].known && nupa_pairs_ready(trunk, &trunk->peers[i]))
			return true;
	return nupa_load_acquire(&trunk->area->wanted) != trunk->wanted_seen;
}

static void wake_up(struct nupa_trunk *trunk, const struct epoll_event *event)
{
	char bytes[64];

	if (event->data.fd == trunk->bell[0])
		while (read(trunk->bell[0], bytes, sizeof(bytes)) == sizeof(bytes))
			continue;
	else if (event->data.fd != trunk->carrier->ops->fd(trunk->carrier))
		trunk->deaths = true; /* a process of ours has ended */
}

static void sleep_until(struct nupa_trunk *trunk, uint64_t due_ns)
{
	const uint64_t now_ns = nupa_clock_ns();
	uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
	struct pollfd fd = { trunk->epoll, POLLIN, 0 };
	struct epoll_event events[8];
	struct timespec timeout;
	int n;

	if (nupa_load_relaxed(&trunk->area->deaf) && left_ns > DEAF_NS)
		left_ns = DEAF_NS;
	timeout = (struct timespec){ (time_t)(left_ns / 1000000000), (long)(left_ns % 1000000000) };
	/* epoll_wait(2) itself counts in milliseconds. */
	n = ppoll(&fd, 1, &timeout, NULL) > 0 ? epoll_wait(trunk->epoll, events, 8, 0) : 0;
	for (int i = 0; i < n; i++)
		wake_up(trunk, &events[i]);
	if (n <= 0)
		for (uint32_t i = 0; i < trunk->machines; i++)
			nupa_pairs_slept(&trunk->peers[i]);
}

int nupa_trunk_run(struct nupa_trunk *trunk, char *why, size_t why_bytes)
{
	uint64_t busy_ns = 0, due_ns;

	(void)why;
	(void)why_bytes;
	while (!nupa_load_acquire(&trunk->stop)) {
		trunk->wanted_seen = nupa_load_acquire(&trunk->area->wanted);
		if (nupa_trunk_turn(trunk, &due_ns)) {
			busy_ns = trunk->now_ns;
			continue;
		}
		if (trunk->now_ns - busy_ns < SPIN_NS) {
			sched_yield();
			continue;
		}
		(void)nupa_exchange_seq(&trunk->area->sleeping, 1);
		if (!must_run(trunk) && trunk->carrier->ops->arm(trunk->carrier))
			sleep_until(trunk, due_ns);
		nupa_store_release(&trunk->area->sleeping, 0);
	}
	return 0;
}

void nupa_trunk_stop(struct nupa_trunk *trunk)
{
	const int error = errno;

	nupa_store_release(&trunk->stop, true);
	(void)!write(trunk->bell[1], "", 1);
	errno = error;
}

/* --- begin and end ------------------------------------------------------------------------- */

/* The same on all machines of a fabric, and nowhere else: what rings and slots mean. */
static uint64_t shape_of(const struct nupa_fabric *fabric)
{
	const struct nupa_tables tables = { fabric->hosts, fabric->ports, fabric->routes };
	struct nupa_superblock sb = fabric->geometry;
	uint64_t shape = UINT64_C(0xcbf29ce484222325);
	const uint8_t *bytes = (const uint8_t *)sb.trunk.first_slot;

	/* What may differ: the pool, when it was made, and whose it is. */
	sb.created_ns = sb.pool_bytes = sb.pool_off = sb.segment_bytes = 0;
	sb.extent_bytes = sb.n_extents = 0;
	sb.arenas_off = sb.extents_off = 0;
	sb.flags = NUPA_SEGMENT_TRUNK;
	for (size_t i = 0; i < sizeof(sb.trunk.first_slot) + sizeof(sb.trunk.host_machine); i++)
		shape = (shape ^ bytes[i]) * UINT64_C(0x100000001b3);
	return shape << 32 ^ nupa_geometry_checksum(&sb, &tables);
}

/* Takes the place of this machine's trunk; false: another lives. */
static bool take_place(struct nupa_trunk *trunk)
{
	uint32_t pid = nupa_load_acquire(&trunk->area->pid);

	if (pid && pid != (uint32_t)getpid() && nupa_trunk_alive(trunk->fabric))
		return false;
	if (!nupa_cas_seq(&trunk->area->pid, &pid, 0))
		return false;
	nupa_store_relaxed(&trunk->area->pid_ns, nupa_pid_namespace());
	nupa_store_relaxed(&trunk->area->start_time, nupa_process_start_time((uint32_t)getpid()));
	nupa_store_relaxed(&trunk->area->bell_fd, (uint32_t)trunk->bell[1] + 1);
	nupa_store_relaxed(&trunk->area->deaf, 0);
	nupa_store_relaxed(&trunk->area->sleeping, 0);
	nupa_store_release(&trunk->area->pid, (uint32_t)getpid());
	return true;
}

static int watch(struct nupa_trunk *trunk, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	event.data.fd = fd;
	return epoll_ctl(trunk->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int begin(struct nupa_trunk *trunk, char *why, size_t why_bytes)
{
	int rc = 0;

	trunk->ports_told = calloc(trunk->fabric->geometry.n_ports, sizeof(trunk->ports_told[0]));
	trunk->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!trunk->ports_told || trunk->epoll < 0 || pipe2(trunk->bell, O_CLOEXEC | O_NONBLOCK))
		rc = -ENOMEM;
	if (!rc)
		rc = watch(trunk, trunk->bell[0]);
	if (!rc)
		rc = watch(trunk, trunk->carrier->ops->fd(trunk->carrier));
	if (rc)
		return nupa_explain(rc, why, why_bytes, "cannot begin the trunk: %s",
				    strerror(-rc));
	if (!take_place(trunk))
		return nupa_explain(
		    -EBUSY, why, why_bytes, "process %u is the trunk of fabric %s already",
		    nupa_fabric_trunk_pid(trunk->fabric), nupa_fabric_name(trunk->fabric));
	trunk->placed = true;
	trunk->news_head = nupa_load_acquire(&trunk->area->news_tail);
	trunk->port_epoch = nupa_load_acquire(trunk->fabric->port_epoch) - 1;
	(void)nupa_fabric_reap(trunk->fabric);
	nupa_peers_begin(trunk);
	nupa_tell_start(trunk);
	return 0;
}

int nupa_trunk_new(struct nupa_fabric *fabric, struct nupa_carrier *carrier,
		   struct nupa_trunk **out, char *why, size_t why_bytes)
{
	struct nupa_trunk *trunk = calloc(1, sizeof(*trunk));
	int rc;

	if (!trunk) {
		carrier->ops->free(carrier);
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	}
	trunk->fabric = nupa_fabric_get(fabric);
	trunk->area = &fabric->sb->trunk;
	trunk->map = nupa_arena_map(&fabric->geometry);
	trunk->carrier = carrier;
	carrier->events = &nupa_peer_events;
	carrier->arg = trunk;
	trunk->machine = fabric->geometry.trunk.machine;
	trunk->machines = fabric->geometry.trunk.machines;
	nupa_machine_slots(fabric, trunk->machine, &trunk->first, &trunk->end);
	trunk->shape = shape_of(fabric);
	trunk->now_ns = nupa_clock_ns();
	trunk->epoll = trunk->bell[0] = trunk->bell[1] = -1;
	for (uint32_t i = 0; i < NUPA_SLOTS_MAX; i++)
		trunk->own[i].pidfd = -1;
	rc = begin(trunk, why, why_bytes);
	if (rc) {
		nupa_trunk_close(trunk);
		return rc;
	}
	*out = trunk;
	return 0;
}

int nupa_trunk_open(struct nupa_fabric *fabric, const struct nupa_trunk_config *config,
		    struct nupa_trunk **out, char *why, size_t why_bytes)
{
	struct nupa_carrier *carrier;
	int rc;

	if (!nupa_fabric_has_trunk(fabric))
		return nupa_explain(-EINVAL, why, why_bytes, "fabric %s is of one machine",
				    nupa_fabric_name(fabric));
	if (config->n_machines != nupa_fabric_n_machines(fabric))
		return nupa_explain(
		    -EINVAL, why, why_bytes, "%u addresses for the %u machines of fabric %s",
		    config->n_machines, nupa_fabric_n_machines(fabric), nupa_fabric_name(fabric));
	rc = nupa_ucx_open(fabric->geometry.trunk.machine, config, &carrier, why, why_bytes);
	return rc ? rc : nupa_trunk_new(fabric, carrier, out, why, why_bytes);
}

uint32_t nupa_trunk_port(const struct nupa_trunk *trunk)
{
	return trunk->carrier->ops->port(trunk->carrier);
}

const char *nupa_trunk_engine(const struct nupa_trunk *trunk)
{
	return trunk->carrier->ops->name(trunk->carrier);
}

void nupa_trunk_close(struct nupa_trunk *trunk)
{
	if (!trunk)
		return;
	if (trunk->placed) {
		nupa_peers_end(trunk);
		nupa_tell_end(trunk);
	}
	trunk->carrier->ops->free(trunk->carrier);
	if (trunk->placed)
		nupa_store_release(&trunk->area->pid, 0);
	nupa_out_free(trunk);
	if (trunk->epoll >= 0)
		close(trunk->epoll);
	if (trunk->bell[0] >= 0) {
		close(trunk->bell[0]);
		close(trunk->bell[1]);
	}
	free(trunk->ports_told);
	nupa_fabric_put(trunk->fabric);
	free(trunk);
}
