/* SPDX-License-Identifier: BSD-3-Clause
 * Unreliable service for tests: see unreliable.h. */
#include "tests/transport/unreliable.h"
#include "segment/slot/counters.h"

struct nupa_qp *qp_of(const struct end *end)
{
	return container_of(end->qp, struct nupa_qp, ibv);
}

struct nupa_hw_counters hw_of(struct nupa_fabric *fabric, uint32_t host)
{
	struct nupa_hw_counters found;

	CHECK_EQ(nupa_fabric_hw_counters(fabric, host, &found), 0);
	return found;
}

uint64_t lost_of(struct nupa_fabric *fabric)
{
	return hw_of(fabric, 0).tx_no_room + hw_of(fabric, 1).rx_no_receive;
}

struct end_options unreliable_options(enum ibv_qp_type type)
{
	struct end_options options = end_options_of(NUPA_MOVER_RELAY);

	options.type = type;
	return options;
}

void pace_begin(struct pace *pace)
{
	pace->last_ns = test_now_ns();
	pace->longest_ns = 0;
	if (!pace->deadline_ns)
		pace->deadline_ns = pace->last_ns + 2 * WAIT_NS;
}

void pace_step(struct pace *pace)
{
	uint64_t now_ns = test_now_ns();

	if (now_ns - pace->last_ns > pace->longest_ns)
		pace->longest_ns = now_ns - pace->last_ns;
	pace->last_ns = now_ns;
}

bool pace_holds(struct pace *pace, uint64_t n_lost)
{
	pace_step(pace);
	if (!n_lost)
		return true;
	CHECK(pace->longest_ns > CORE_LOST_NS && pace->last_ns < pace->deadline_ns);
	return false;
}

struct scene scene_of(enum ibv_qp_type type)
{
	struct scene scene = { .fabric = test_fabric() };
	struct end_options options = unreliable_options(type);

	pair_open(scene.fabric, &options, &scene.from, &scene.to);
	scene.header = type == IBV_QPT_UD ? NUPA_GRH_BYTES : 0;
	return scene;
}

void scene_close(struct scene *scene)
{
	struct nupa_engine *engine = qp_of(scene->to)->engine;

	nupa_engine_lock(engine);
	CHECK(!qp_of(scene->to)->backlog.n && nupa_list_empty(&engine->backlogs));
	CHECK(!engine->backlog_bytes && !engine->slot->backlogs);
	nupa_engine_unlock(engine);
	fabric_close(scene->fabric, scene->from, scene->to);
}

void send_filled(struct scene *scene, uint64_t i, uint32_t bytes)
{
	pattern_fill(scene->from->memory, bytes, (uint32_t)i);
	end_start(scene->from, IBV_WR_SEND, i, 0, bytes);
	cq_expect(scene->from->send_cq, i, IBV_WC_SUCCESS);
}

uint32_t waiting(const struct scene *scene)
{
	struct nupa_qp *qp = qp_of(scene->to);
	uint32_t n;

	nupa_engine_lock(qp->engine);
	n = qp->backlog.n;
	nupa_engine_unlock(qp->engine);
	return n;
}

void starve(struct scene *scene, uint32_t bytes)
{
	end_post_recv(scene->to, 0, 0, bytes + scene->header);
	send_filled(scene, 0, bytes);
	send_filled(scene, 1, bytes);
}
