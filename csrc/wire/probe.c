/* SPDX-License-Identifier: BSD-3-Clause
 * What is known of the other end: whether it answers, how long that takes, how large packets may
 * be, and whether somebody changes addresses in between.
 *
 * A probe is a DREQ for a connection that does not exist: a connection manager answers it with a
 * DREP (IBTA 12.9.8.3.1, and the kernel's ib_cm), ours as well.  It leaves by a socket of its own,
 * since the kernel tells ICMP errors to the socket that has the packet's source port. */
#include "base/explain.h"
#include "segment/slot/slot.h"
#include "wire/keeper_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define S (1000 * MS)
#define PROBE_UP_NS (5 * S)
#define PROBE_NS S
#define SILENT_MAX 3u     /* probes without an answer, of one who has answered before */
#define WAITS_NS (3 * S)  /* for which packets may go and nothing come */
#define FAILED_NS (3 * S) /* for which a refusal counts */
#define MTU_NS (5 * S)
#define TICK_MAX_MS 1000
#define UNSURE_NS (2 * S) /* a process that leaves closes its sockets sooner */
#define UNSURE_LOOK_NS (10 * MS)
#define WORD "NUPA"

/* Behind the private data's word, so that the other end finds out about NAT. */
struct probe_data {
	char word[4];
	uint8_t src[16], dst[16];
	uint8_t src_port[2]; /* big endian */
};

/* --- path MTU ------------------------------------------------------------------------ */

/* As the kernel computes it (include/rdma/ib_addr.h, iboe_get_mtu): GRH, UDP, BTH, XRCETH,
 * AtomicETH, ICRC. */
#define OVERHEAD_BYTES (40u + 8u + 12u + 4u + 28u + 4u)

uint32_t nupa_wire_mtu_of_path(uint32_t ip_bytes)
{
	uint32_t mtu = NUPA_MTU_BYTES;

	while (mtu >= NUPA_WIRE_MTU_MIN_BYTES && mtu + OVERHEAD_BYTES > ip_bytes)
		mtu /= 2;
	return mtu >= NUPA_WIRE_MTU_MIN_BYTES ? mtu : 0;
}

static int explain_path(int error, char *why, size_t why_bytes)
{
	if (error == -ENETUNREACH || error == -EHOSTUNREACH)
		return nupa_explain(error, why, why_bytes,
				    "no route leads there: `ip route get` asks the kernel; bring "
				    "the network up first");
	if (error == -EADDRNOTAVAIL)
		return nupa_explain(error, why, why_bytes,
				    "the local address is none of this machine: `ip addr` lists "
				    "them, and --listen takes one");
	if (error == -EINVAL)
		return nupa_explain(error, why, why_bytes,
				    "the kernel does not send there from that address: choose "
				    "another one with --listen");
	return nupa_explain(error, why, why_bytes, "the network refuses the address: %s%s",
			    strerror(-error), nupa_remedy(-error));
}

int nupa_wire_path(const uint8_t remote[16], uint8_t local[16], uint32_t *ip_bytes, char *why,
		   size_t why_bytes)
{
	static const uint8_t none[16];
	union nupa_keeper_address to, from;
	socklen_t bytes = sizeof(from), word = sizeof(int);
	const bool ipv4 = nupa_keeper_is_ipv4(remote);
	int fd, error = 0, mtu = 0;
	uint16_t port;

	nupa_keeper_address(remote, NUPA_WIRE_UDP_PORT, &to);
	fd = socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return explain_path(-errno, why, why_bytes);
	nupa_keeper_address(local, 0, &from);
	if (memcmp(local, none, sizeof(none)) != 0 &&
	    bind(fd, &from.any, nupa_keeper_address_bytes(&from)))
		error = -errno;
	if (!error && (connect(fd, &to.any, nupa_keeper_address_bytes(&to)) ||
		       getsockname(fd, &from.any, &bytes) ||
		       getsockopt(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU : IPV6_MTU,
				  &mtu, &word)))
		error = -errno;
	close(fd);
	if (error)
		return explain_path(error, why, why_bytes);
	(void)nupa_keeper_gid(&from, local, &port);
	*ip_bytes = (uint32_t)mtu;
	return 0;
}

uint32_t nupa_probe_mtu(struct nupa_kept *wire)
{
	struct nupa_keeper *keeper = wire->keeper;
	uint8_t local[16];
	uint32_t ip_bytes = 0, mtu;
	char why[8];

	if (wire->medium->mtu_bytes)
		return wire->medium->mtu_bytes(wire);
	memcpy(local, keeper->local, 16);
	if (nupa_wire_path(wire->remote, local, &ip_bytes, why, sizeof(why)))
		return wire->entry ? nupa_wire_mtu_bytes(wire->entry) : NUPA_WIRE_MTU_MIN_BYTES;
	mtu = nupa_wire_mtu_of_path(ip_bytes);
	if (wire->entry && mtu && mtu != nupa_wire_mtu_bytes(wire->entry)) {
		nupa_store_relaxed(&wire->entry->mtu_bytes, mtu);
		nupa_fabric_announce(keeper->fabric);
	}
	return mtu;
}

/* --- state --------------------------------------------------------------------------- */

static void set_state(struct nupa_kept *wire, uint32_t state)
{
	if (nupa_load_relaxed(&wire->entry->state) == state)
		return;
	nupa_store_relaxed(&wire->entry->state, state);
	if (state == NUPA_WIRE_UP)
		nupa_store_relaxed(&wire->entry->error, 0);
	nupa_fabric_announce(wire->keeper->fabric);
}

/* Processes say when they heard something, too. */
static uint64_t heard_ns(const struct nupa_kept *wire, uint64_t now_ns)
{
	const uint64_t theirs = nupa_load_relaxed(&wire->entry->heard_ns);

	return theirs <= now_ns && theirs > wire->probe.heard_ns ? theirs : wire->probe.heard_ns;
}

static void judge(struct nupa_kept *wire, uint64_t now_ns)
{
	struct nupa_keeper_probe *probe = &wire->probe;
	const uint64_t heard = heard_ns(wire, now_ns);
	const uint64_t sent = nupa_load_relaxed(&wire->entry->sent_packets);
	const bool grew = sent != probe->counted;

	probe->counted = sent;
	if (heard > probe->heard_ns)
		probe->unanswered = 0;
	probe->heard_ns = heard;
	if (!grew && now_ns - heard < WAITS_NS)
		probe->waits_ns = 0;
	if (grew && !probe->waits_ns)
		probe->waits_ns = now_ns;
	if (heard && probe->waits_ns && heard >= probe->waits_ns)
		probe->waits_ns = 0;
	if (probe->failed_ns > heard && now_ns - probe->failed_ns < FAILED_NS + PROBE_NS) {
		set_state(wire, NUPA_WIRE_DOWN);
		return;
	}
	if (heard && now_ns - heard < WAITS_NS) {
		set_state(wire, NUPA_WIRE_UP);
		return;
	}
	if ((probe->answers && probe->unanswered >= SILENT_MAX) ||
	    (heard && probe->waits_ns && now_ns - probe->waits_ns > WAITS_NS)) {
		if (!nupa_load_relaxed(&wire->entry->error))
			nupa_store_relaxed(&wire->entry->error, ETIMEDOUT);
		set_state(wire, NUPA_WIRE_DOWN);
	}
}

void nupa_probe_refused(struct nupa_kept *wire, int error, uint64_t now_ns)
{
	if (error == EMSGSIZE) {
		(void)nupa_probe_mtu(wire);
		return;
	}
	__atomic_fetch_add(&wire->entry->refused, 1, __ATOMIC_RELAXED);
	nupa_store_relaxed(&wire->entry->error, error);
	wire->probe.failed_ns = now_ns;
}

/* --- probes -------------------------------------------------------------------------- */

static uint32_t random_id(void)
{
	uint32_t id = 0;

	(void)!getrandom(&id, sizeof(id), 0);
	/* Slot 0 is nobody's, so the datagrams of processes are others. */
	return (id | 0x100) & ~UINT32_C(0xff);
}

static void send_probe(struct nupa_kept *wire, uint64_t now_ns)
{
	struct nupa_keeper *keeper = wire->keeper;
	struct nupa_cm_mad mad = { .attribute = NUPA_CM_DREQ };
	struct probe_data data = { 0 };
	uint8_t bytes[NUPA_CM_MAD_BYTES];
	const uint16_t port = keeper->errors_port ? keeper->errors_port : NUPA_WIRE_UDP_PORT;

	memcpy(data.word, WORD, sizeof(data.word));
	memcpy(data.src, keeper->local, 16);
	memcpy(data.dst, wire->remote, 16);
	data.src_port[0] = (uint8_t)(port >> 8);
	data.src_port[1] = (uint8_t)port;
	memcpy(mad.data, &data, sizeof(data));
	if (wire->probe.id && wire->probe.unanswered < UINT32_MAX)
		wire->probe.unanswered++;
	mad.local_id = wire->probe.id = random_id();
	mad.remote_id = random_id();
	mad.transaction = (uint64_t)mad.local_id << 32 | mad.remote_id;
	nupa_cm_mad_write(&mad, bytes);
	wire->probe.sent_ns = now_ns;
	nupa_keeper_send_mad(wire, NUPA_PKEY_DEFAULT, bytes, true);
}

bool nupa_probe_take(struct nupa_kept *wire, const struct nupa_keeper_packet *packet, uint16_t pkey,
		     const uint8_t *mad, uint32_t bytes)
{
	const uint64_t now_ns = nupa_clock_ns();
	struct nupa_cm_mad read, reply = { .attribute = NUPA_CM_DREP };
	uint8_t answer[NUPA_CM_MAD_BYTES];
	uint64_t took_ns, rtt_ns;

	wire->probe.heard_ns = now_ns; /* its ICRC is right: it came from there */
	if (!nupa_cm_mad_read(mad, bytes, &read))
		return false;
	if (read.attribute == NUPA_CM_DREQ && !memcmp(read.data, WORD, 4)) {
		reply.transaction = read.transaction;
		reply.local_id = read.remote_id;
		reply.remote_id = read.local_id;
		nupa_cm_mad_write(&reply, answer);
		nupa_keeper_trace_came(wire, packet, true);
		nupa_keeper_send_mad(wire, pkey, answer, false);
		return true;
	}
	if (read.attribute != NUPA_CM_DREP || !wire->probe.id || read.remote_id != wire->probe.id)
		return false;
	nupa_keeper_trace_came(wire, packet, true);
	took_ns = now_ns - wire->probe.sent_ns;
	rtt_ns = nupa_load_relaxed(&wire->entry->rtt_ns);
	nupa_store_relaxed(&wire->entry->rtt_ns,
			   rtt_ns ? rtt_ns - rtt_ns / 8 + took_ns / 8 : took_ns);
	wire->probe.id = 0;
	wire->probe.unanswered = 0;
	wire->probe.answers = true;
	return true;
}

int nupa_keeper_tick(struct nupa_keeper *keeper, uint64_t now_ns)
{
	uint64_t next_ns = now_ns + TICK_MAX_MS * MS;

	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		struct nupa_kept *wire = keeper->wires[i];
		uint64_t notes_ns;

		if (!wire)
			continue;
		notes_ns = nupa_notes_tick(wire, now_ns);
		if (notes_ns < next_ns)
			next_ns = notes_ns;
		if (now_ns >= wire->probe.mtu_due_ns) {
			if (wire->probe.mtu_due_ns)
				(void)nupa_probe_mtu(wire);
			wire->probe.mtu_due_ns = now_ns + MTU_NS;
		}
		if (now_ns >= keeper->tick_ns)
			judge(wire, now_ns);
		if (now_ns >= wire->probe.due_ns) {
			const bool well = nupa_load_relaxed(&wire->entry->state) == NUPA_WIRE_UP &&
					  !wire->probe.unanswered;

			send_probe(wire, now_ns);
			wire->probe.due_ns = now_ns + (well ? PROBE_UP_NS : PROBE_NS);
		}
		if (wire->probe.due_ns < next_ns)
			next_ns = wire->probe.due_ns;
	}
	if (now_ns >= keeper->tick_ns) {
		keeper->tick_ns = now_ns + TICK_MAX_MS * MS;
		nupa_members_expire(keeper, now_ns);
	}
	if (keeper->tick_ns < next_ns)
		next_ns = keeper->tick_ns;
	if (nupa_group_tick(keeper) && now_ns - keeper->unsure_ns < UNSURE_NS &&
	    next_ns > now_ns + UNSURE_LOOK_NS)
		next_ns = now_ns + UNSURE_LOOK_NS;
	return (int)((next_ns - now_ns + MS - 1) / MS);
}

/* --- NAT ----------------------------------------------------------------------------- */

/* The probe in a packet that was made for other addresses than it came with: its data, and they are
 * true, as its ICRC fits them. */
static bool read_made_for(const struct nupa_keeper_packet *packet, struct probe_data *data)
{
	struct nupa_roce_packet read;
	struct nupa_cm_mad mad;
	struct nupa_roce_path path = packet->path;
	const uint8_t *payload;

	if (packet->n > NUPA_WIRE_PACKET_MAX_BYTES ||
	    !nupa_roce_read(packet->bytes, packet->n, &read, &payload) ||
	    read.dqpn != NUPA_CM_GSI_QPN || read.payload_bytes != NUPA_CM_MAD_BYTES ||
	    !nupa_cm_mad_read(payload, read.payload_bytes, &mad) || mad.attribute != NUPA_CM_DREQ ||
	    memcmp(mad.data, WORD, 4) != 0)
		return false;
	memcpy(data, mad.data, sizeof(*data));
	memcpy(path.src, data->src, 16);
	memcpy(path.dst, data->dst, 16);
	path.src_port = (uint16_t)(data->src_port[0] << 8 | data->src_port[1]);
	path.identification = 0;
	return nupa_keeper_is_ipv4(path.src) == nupa_keeper_is_ipv4(path.dst) &&
	       nupa_icrc_right(&path, packet->bytes, packet->n);
}

void nupa_probe_foreign(struct nupa_keeper *keeper, const struct nupa_keeper_packet *packet)
{
	struct nupa_kept *wire = nupa_keeper_wire_to(keeper, packet->path.src);
	struct probe_data data;
	const uint8_t *other;
	uint64_t words[2];

	for (uint32_t i = 0; !wire && i < NUPA_WIRES_MAX; i++)
		if (keeper->wires[i])
			__atomic_fetch_add(&keeper->wires[i]->entry->foreign, 1, __ATOMIC_RELAXED);
	if (!read_made_for(packet, &data))
		return;
	other = wire ? data.src : packet->path.src;
	if (!wire)
		wire = nupa_keeper_wire_to(keeper, data.src);
	if (!wire || !memcmp(other, wire->remote, 16))
		return;
	memcpy(words, other, sizeof(words));
	nupa_store_relaxed(&wire->entry->other[0], words[0]);
	nupa_store_relaxed(&wire->entry->other[1], words[1]);
}
