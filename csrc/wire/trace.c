/* SPDX-License-Identifier: BSD-3-Clause
 * Packets that the keeper sends, those that it takes, and those for QP 1, for captures
 * (engine/trace).  Others that it passes on are recorded by the processes that take them. */
#include "engine/core/engine.h"
#include "engine/trace/trace.h"
#include "wire/keeper_internal.h"

static void record(struct nupa_kept *wire, const struct nupa_trace_packet *packet, uint8_t flags,
		   const struct iovec *pieces, uint32_t n)
{
	struct nupa_engine *engine = wire->engine;

	nupa_engine_lock(engine);
	if (engine->trace & NUPA_TRACE_TRANSPORT)
		nupa_trace_packet(engine, packet, (struct nupa_trace_posted){ .flags = flags },
				  engine->now_ns(), pieces, n);
	nupa_engine_unlock(engine);
}

void nupa_keeper_trace_sent(struct nupa_kept *wire, const struct nupa_roce_path *path,
			    const struct iovec *pieces, uint32_t n)
{
	const struct nupa_trace_packet packet = { .path = *path, .host = (uint16_t)wire->host };

	record(wire, &packet, 0, pieces, n);
}

void nupa_keeper_trace_came(struct nupa_kept *wire, const struct nupa_keeper_packet *packet,
			    bool taken)
{
	const struct iovec piece = { (void *)(uintptr_t)packet->bytes, packet->n };
	struct nupa_trace_packet body = { .path = packet->path,
					  .host = (uint16_t)wire->host,
					  .came = true };
	struct nupa_icrc_base base;

	if (!packet->identified) {
		nupa_icrc_prepare(&base, packet->path.src, packet->path.dst);
		(void)nupa_icrc_find(&base, packet->path.src_port, packet->bytes, packet->n,
				     &body.path.identification);
	}
	record(wire, &body, taken ? 0 : NUPA_TRACE_DROPPED, &piece, 1);
}
