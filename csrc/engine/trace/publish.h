/* SPDX-License-Identifier: BSD-3-Clause
 * Messages published in a channel, and recorded while a capture runs. */
#ifndef NUPA_TRACE_PUBLISH_H
#define NUPA_TRACE_PUBLISH_H

#include "engine/channel/channel.h"
#include "engine/trace/trace.h"

static inline void nupa_channel_publish(struct nupa_channel *channel, struct nupa_msg *msg,
					uint32_t dma_bytes)
{
	if (unlikely(channel->engine->trace & NUPA_TRACE_MOVES))
		nupa_trace_send(channel->engine, channel, msg);
	nupa_channel_put(channel, msg, dma_bytes);
}

#endif
