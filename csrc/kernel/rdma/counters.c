// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Counters of this attachment (`rdma statistic`, hw_counters), by the names of the layout.
 */
#include "kernel/rdma/rdma.h"

#define COUNTER(name)                                                                              \
	{                                                                                          \
#name, 0, (void *)offsetof(struct nupa_hw_counters, name)                          \
	}

static const struct rdma_stat_desc counters[] = {
	COUNTER(rx_no_receive),  COUNTER(rx_out_of_sequence), COUNTER(duplicate_request),
	COUNTER(rx_invalid),     COUNTER(qkey_violations),    COUNTER(pkey_violations),
	COUNTER(packet_seq_err), COUNTER(tx_no_room),         COUNTER(send_rnr_err),
	COUNTER(rcvd_rnr_err),   COUNTER(retry_exceeded_err), COUNTER(retry_rnr_exceeded_err),
};

struct rdma_hw_stats *rdma_alloc_stats_op(struct ib_device *ib, u32 port)
{
	return rdma_alloc_hw_stats_struct(counters, ARRAY_SIZE(counters),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int rdma_get_stats_op(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index)
{
	const uint8_t *hw = (const void *)nupa_engine_of(device_of(ib)->context)->hw;

	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		stats->value[i] =
		    nupa_load_relaxed((const uint64_t *)(hw + (uintptr_t)counters[i].priv));
	return ARRAY_SIZE(counters);
}
