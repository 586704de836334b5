/* SPDX-License-Identifier: BSD-3-Clause
 * The two ends of a ring between kernels whose memory is not coherent.  Each step of ring.h has a
 * flush or a fetch before or behind it. */
#include "segment/coherence.h"
#include "segment/ring/ring.h"

void nupa_tx_fetch_heads(const struct nupa_tx *tx)
{
	nupa_coherence->fetch(NUPA_POINT_HEAD, &tx->header->head, 2 * NUPA_CACHE_LINE_BYTES);
}

void nupa_tx_publish_apart(struct nupa_tx *tx, struct nupa_msg *line, uint32_t dma_payload_bytes)
{
	if (dma_payload_bytes) { /* before the tag, which may leave the cache by itself */
		uint64_t start;

		(void)nupa_dma_span(tx->dma_tail, tx->dma_bytes, dma_payload_bytes, &start);
		nupa_coherence->flush(NUPA_POINT_PAYLOAD, tx->dma + start, dma_payload_bytes);
	}
	nupa_tx_publish(tx, line, dma_payload_bytes);
	nupa_coherence->flush(NUPA_POINT_LINE, line, sizeof(*line));
}

bool nupa_rx_fetch(const struct nupa_rx *rx)
{
	const struct nupa_msg *line = nupa_rx_line(rx);
	uint32_t bytes;
	uint64_t start;

	nupa_coherence->fetch(NUPA_POINT_LINE, line, sizeof(*line));
	if (!nupa_rx_ready(rx))
		return false;
	bytes = nupa_load_relaxed(&line->flags) & NUPA_F_DMA
		    ? nupa_load_relaxed(&line->length_bytes)
		    : 0;
	if (!bytes || bytes > nupa_dma_payload_max(rx->dma_bytes))
		return true; /* without a payload, or nupa_rx_take says that it is corrupt */
	(void)nupa_dma_span(rx->dma_head, rx->dma_bytes, bytes, &start);
	nupa_coherence->fetch(NUPA_POINT_PAYLOAD, rx->dma + start, bytes);
	return true;
}

void nupa_rx_flush_heads(struct nupa_rx *rx)
{
	if (rx->head_flushed == rx->head_published)
		return;
	rx->head_flushed = rx->head_published;
	nupa_coherence->flush(NUPA_POINT_HEAD, &rx->header->head, 2 * NUPA_CACHE_LINE_BYTES);
}
