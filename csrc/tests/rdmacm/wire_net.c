/* SPDX-License-Identifier: BSD-3-Clause
 * Two fabrics with a wire between them: see wire_net.h. */
#include "tests/rdmacm/wire_net.h"
#include "engine/cm/hooks.h"
#include "engine/cm/internal.h"
#include "engine/device/device.h"
#include "segment/slot/wire.h"
#include "tests/support/end.h"

#include <arpa/inet.h>
#include <string.h>

static struct net *the_net; /* operations of an engine have no other way to it */

/* --- the network --------------------------------------------------------------------- */

static void push(struct net *net, int to, const uint8_t *mad)
{
	CHECK(net->n_waiting < NET_KEPT);
	memcpy(net->waiting[net->n_waiting].bytes, mad, NUPA_CM_MAD_BYTES);
	net->waiting[net->n_waiting++].to = to;
	pthread_cond_broadcast(&net->change);
}

uint32_t net_lose_all(struct net *net, int from, const struct nupa_cm_mad *mad)
{
	(void)net, (void)from, (void)mad;
	return 0;
}

static void send_mad(struct nupa_engine *engine, uint32_t wire, uint16_t pkey, const uint8_t *bytes)
{
	struct net *net = the_net;
	const int from = engine == net->engine[1];
	struct nupa_cm_mad mad;
	uint32_t copies;

	CHECK_EQ(wire, 0);
	CHECK_EQ(pkey, 0xffff);
	CHECK(nupa_cm_mad_read(bytes, NUPA_CM_MAD_BYTES, &mad));
	pthread_mutex_lock(&net->mutex);
	net->sent[from][mad.attribute]++;
	memcpy(net->last[from][mad.attribute], bytes, NUPA_CM_MAD_BYTES);
	copies = net->copies ? net->copies(net, from, &mad) : 1;
	while (copies--)
		push(net, 1 - from, bytes);
	pthread_mutex_unlock(&net->mutex);
}

static void address(const struct net *net, int side, uint8_t gid[16])
{
	union ibv_gid local;

	nupa_host_gid(net->fabric[side], 0, NUPA_GID_WIRE, &local);
	memcpy(gid, local.raw, 16);
}

static void arrive(struct net *net, const struct net_mad *mad)
{
	struct nupa_engine *engine = net->engine[mad->to];
	struct nupa_cm_target target;
	uint8_t answer[NUPA_CM_MAD_BYTES], source[16];
	int slot = -ENOENT;

	switch (nupa_cm_steer(mad->bytes, NUPA_CM_MAD_BYTES, &target)) {
	case NUPA_CM_DROP:
		return;
	case NUPA_CM_TO_SLOT:
		slot = (int)target.slot;
		break;
	case NUPA_CM_TO_SERVICE:
		slot = nupa_cm_listener(net->fabric[mad->to], 1, &target);
		break;
	default:
		break;
	}
	if (slot == (int)engine->slot_index) {
		address(net, 1 - mad->to, source);
		nupa_engine_lock(engine);
		nupa_cm_receive_mad(engine, 0, mad->bytes, NUPA_CM_MAD_BYTES, source);
		nupa_engine_unlock(engine);
	} else if (nupa_cm_refuse(mad->bytes, NUPA_CM_MAD_BYTES, answer)) {
		pthread_mutex_lock(&net->mutex);
		push(net, 1 - mad->to, answer);
		pthread_mutex_unlock(&net->mutex);
	}
}

static void *run(void *arg)
{
	struct net *net = arg;

	pthread_mutex_lock(&net->mutex);
	for (;;) {
		struct net_mad mad;

		while (net->n_taken == net->n_waiting && !net->stop)
			pthread_cond_wait(&net->change, &net->mutex);
		if (net->n_taken == net->n_waiting)
			break;
		mad = net->waiting[net->n_taken++];
		if (net->n_taken == net->n_waiting)
			net->n_taken = net->n_waiting = 0;
		net->busy = true;
		pthread_mutex_unlock(&net->mutex);
		arrive(net, &mad);
		pthread_mutex_lock(&net->mutex);
		net->busy = false;
		pthread_cond_broadcast(&net->change);
	}
	pthread_mutex_unlock(&net->mutex);
	return NULL;
}

void net_settle(struct net *net)
{
	pthread_mutex_lock(&net->mutex);
	while (net->n_waiting || net->busy)
		pthread_cond_wait(&net->change, &net->mutex);
	pthread_mutex_unlock(&net->mutex);
}

void net_inject(struct net *net, int to, const uint8_t mad[NUPA_CM_MAD_BYTES])
{
	pthread_mutex_lock(&net->mutex);
	push(net, to, mad);
	pthread_mutex_unlock(&net->mutex);
	net_settle(net);
}

uint32_t net_sent(struct net *net, int from, enum nupa_cm_attribute attribute)
{
	uint32_t n;

	pthread_mutex_lock(&net->mutex);
	n = net->sent[from][attribute];
	pthread_mutex_unlock(&net->mutex);
	return n;
}

void net_last(struct net *net, int from, enum nupa_cm_attribute attribute, struct nupa_cm_mad *mad)
{
	pthread_mutex_lock(&net->mutex);
	CHECK(nupa_cm_mad_read(net->last[from][attribute], NUPA_CM_MAD_BYTES, mad));
	pthread_mutex_unlock(&net->mutex);
}

static uint64_t clock_ns = 1000000000;

static uint64_t clock_of_test(void)
{
	return __atomic_load_n(&clock_ns, __ATOMIC_RELAXED);
}

void net_pass(struct net *net, uint64_t ns)
{
	__atomic_fetch_add(&clock_ns, ns, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		cm_pass(&net->side[i], 0);
	net_settle(net);
}

/* --- both sides ---------------------------------------------------------------------- */

static void to_gid(bool ipv6, int n, uint8_t gid[16])
{
	const char *text = ipv6 ? n ? "2001:db8::2" : "2001:db8::1"
			   : n  ? "::ffff:192.0.2.2"
				: "::ffff:192.0.2.1";

	CHECK_EQ(inet_pton(AF_INET6, text, gid), 1);
}

static void open_side(struct net *net, int i, bool ipv6, uint32_t mtu_bytes)
{
	struct nupa_wire_info wire = { .host = 1, .state = NUPA_WIRE_UP, .mtu_bytes = mtu_bytes };
	struct nupa_engine *keeper;
	char why[256] = "";

	net->fabric[i] = test_fabric();
	net->keeper[i] = nupa_open_host(net->fabric[i], 1, NUPA_MOVER_NONE, why, sizeof(why));
	CHECK(net->keeper[i]);
	keeper = nupa_engine_of(net->keeper[i]);
	wire.slot = keeper->slot_index;
	wire.epoch = keeper->epoch;
	to_gid(ipv6, i, wire.local);
	to_gid(ipv6, 1 - i, wire.remote);
	memcpy(wire.socket, "/nonexistent", sizeof("/nonexistent"));
	CHECK_EQ(nupa_wire_add(net->fabric[i], &wire, why, sizeof(why)), 0);
	net->side[i] = cm_side_open(net->fabric[i], 0);
	net->engine[i] = nupa_engine_of(net->side[i].context);
	nupa_engine_lock(net->engine[i]);
	net->ops[i] = *net->engine[i]->ops;
	net->ops[i].send_mad = send_mad;
	net->engine[i]->ops = &net->ops[i];
	net->engine[i]->now_ns = clock_of_test;
	nupa_engine_unlock(net->engine[i]);
}

struct net *net_open(bool ipv6, uint32_t mtu0_bytes, uint32_t mtu1_bytes)
{
	struct net *net = calloc(1, sizeof(*net));

	CHECK(net);
	the_net = net;
	pthread_mutex_init(&net->mutex, NULL);
	pthread_cond_init(&net->change, NULL);
	open_side(net, 0, ipv6, mtu0_bytes);
	open_side(net, 1, ipv6, mtu1_bytes);
	CHECK_EQ(pthread_create(&net->thread, NULL, run, net), 0);
	return net;
}

void net_close(struct net *net)
{
	pthread_mutex_lock(&net->mutex);
	net->stop = true;
	pthread_cond_broadcast(&net->change);
	pthread_mutex_unlock(&net->mutex);
	CHECK_EQ(pthread_join(net->thread, NULL), 0);
	for (int i = 0; i < 2; i++) {
		cm_side_close(&net->side[i]);
		CHECK_EQ(nupa_close_device(net->keeper[i]), 0);
		nupa_fabric_put(net->fabric[i]);
	}
	pthread_mutex_destroy(&net->mutex);
	pthread_cond_destroy(&net->change);
	free(net);
}
