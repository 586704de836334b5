/* SPDX-License-Identifier: BSD-3-Clause
 * Rings that grow (ring.h I6).  Most pairs of processes exchange little, so memory is backed as it
 * is used: a ring doubles when it is full, or when it goes round in a hurry. */
#include "base/clock.h"
#include "segment/ring/ring.h"
#include "segment/segment_internal.h"

#define LINES_FIRST 32u /* with the header, they fit into a page */
#define DMA_BYTES_FIRST (32u << 10)
/* A lap takes less: the head of a larger ring is to be looked at less often. */
#define HURRY_NS_A_LINE 1000u
/* Positions that a growth leaves out are as many as came before.  Heads have 40 bits. */
#define GROWS_BEFORE (UINT64_C(1) << 38)

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* The first position of the ring's new size, when the size has become that. */
static uint64_t lines_go_on(uint64_t position, uint32_t lap_shift, uint32_t n_lines)
{
	return (position >> lap_shift) * n_lines + n_lines / 2;
}

static uint64_t dma_goes_on(uint64_t position, uint32_t former_bytes, uint32_t dma_bytes)
{
	return ((position + dma_bytes - 1) & ~((uint64_t)dma_bytes - 1)) + former_bytes;
}

/* --- the producer -------------------------------------------------------------------- */

void nupa_tx_begin_small(struct nupa_tx *tx)
{
	tx->n_lines = least(tx->most_lines, LINES_FIRST);
	tx->dma_bytes = least(tx->most_dma_bytes, DMA_BYTES_FIRST);
	tx->lap_shift = (uint32_t)__builtin_ctz(tx->n_lines);
	tx->limit = nupa_tx_limit(tx);
}

static int back(const struct nupa_tx *tx, const void *from, uint64_t bytes)
{
	const uint64_t at = (uint64_t)((const uint8_t *)from - (const uint8_t *)tx->header);

	return tx->fabric && bytes ? nupa_fabric_back(tx->fabric, tx->offset + at, bytes) : 0;
}

int nupa_tx_back_dma(struct nupa_tx *tx)
{
	return back(tx, tx->dma, tx->dma_bytes);
}

static void more_lines(struct nupa_tx *tx)
{
	struct nupa_ring_header *header = tx->header;
	const uint64_t written = nupa_load_relaxed(&header->grown_after) + tx->tail - tx->grown_at;

	tx->n_lines *= 2;
	tx->tail = tx->grown_at = lines_go_on(tx->tail - 1, tx->lap_shift, tx->n_lines);
	tx->lap_shift++;
	nupa_store_relaxed(&header->grown_lap, (uint32_t)(tx->tail >> tx->lap_shift));
	nupa_store_relaxed(&header->grown_after, written);
	nupa_store_release(&header->lines, tx->n_lines);
}

/* To twice as many lines, or more bytes, or both.  One line is free.  Without memory for it the
 * ring stays as it is. */
static bool grow(struct nupa_tx *tx, uint32_t n_lines, uint32_t dma_bytes)
{
	const uint32_t former_bytes = tx->dma_bytes;
	const uint64_t lines_bytes = (uint64_t)(n_lines - tx->n_lines) * sizeof(struct nupa_msg);
	struct nupa_msg *more = tx->lines + tx->n_lines, *line = nupa_tx_next(tx);

	if (back(tx, more, lines_bytes) ||
	    back(tx, tx->dma + former_bytes, dma_bytes - former_bytes)) {
		tx->most_lines = tx->n_lines;
		tx->most_dma_bytes = former_bytes;
		tx->limit = nupa_tx_limit(tx);
		return false;
	}
	memset(more, 0, lines_bytes); /* I2: the ring may have had another consumer */
	memset(&line->tag + 1, 0, sizeof(*line) - sizeof(line->tag));
	line->op = NUPA_OP_GROW;
	line->imm = n_lines;
	line->length_bytes = dma_bytes;
	if (tx->grows)
		tx->grows(tx, line);
	nupa_tx_publish(tx, line, 0);
	if (n_lines != tx->n_lines)
		more_lines(tx);
	if (dma_bytes != former_bytes) {
		tx->dma_tail = dma_goes_on(tx->dma_tail, former_bytes, dma_bytes);
		tx->dma_head_seen = tx->dma_tail - former_bytes;
		tx->dma_bytes = dma_bytes;
	}
	tx->limit = nupa_tx_limit(tx);
	return true;
}

bool nupa_tx_more_lines(struct nupa_tx *tx)
{
	nupa_tx_see_head(tx);
	if (tx->n_lines < tx->most_lines && tx->tail < GROWS_BEFORE) {
		const uint64_t now_ns = nupa_clock_ns();
		const bool hurries =
		    now_ns - tx->looked_ns < (uint64_t)tx->n_lines * HURRY_NS_A_LINE;

		tx->looked_ns = now_ns;
		if (tx->tail >= tx->limit || hurries)
			(void)grow(tx, 2 * tx->n_lines, tx->dma_bytes);
	}
	return tx->tail < tx->limit;
}

bool nupa_tx_more_dma(struct nupa_tx *tx, uint32_t dma_payload_bytes)
{
	uint32_t n_lines = tx->n_lines, dma_bytes = tx->dma_bytes;

	nupa_tx_see_dma_head(tx);
	if (nupa_tx_fits_dma(tx, dma_payload_bytes))
		return true;
	if (dma_bytes >= tx->most_dma_bytes ||
	    dma_payload_bytes > nupa_dma_payload_max(tx->most_dma_bytes))
		return false;
	do
		dma_bytes *= 2;
	while (dma_payload_bytes > nupa_dma_payload_max(dma_bytes));
	/* The message comes behind the line that says so. */
	if (tx->limit - tx->tail < 2) {
		nupa_tx_see_head(tx);
		if (tx->limit - tx->tail < 2) {
			if (n_lines == tx->most_lines || tx->tail >= GROWS_BEFORE)
				return false;
			n_lines *= 2;
		}
	}
	return grow(tx, n_lines, dma_bytes);
}

/* --- the consumer -------------------------------------------------------------------- */

void nupa_rx_begin_small(struct nupa_rx *rx)
{
	rx->n_lines = least(rx->most_lines, LINES_FIRST);
	rx->dma_bytes = least(rx->most_dma_bytes, DMA_BYTES_FIRST);
	rx->lap_shift = (uint32_t)__builtin_ctz(rx->n_lines);
}

bool nupa_rx_grow(struct nupa_rx *rx, const struct nupa_msg *msg)
{
	const uint32_t n_lines = msg->imm, dma_bytes = msg->length_bytes;

	if ((n_lines != rx->n_lines && n_lines != 2 * rx->n_lines) || n_lines > rx->most_lines ||
	    dma_bytes < rx->dma_bytes || dma_bytes > rx->most_dma_bytes ||
	    dma_bytes & (dma_bytes - 1) || (n_lines == rx->n_lines && dma_bytes == rx->dma_bytes))
		return false;
	if (n_lines == rx->n_lines) {
		rx->head++;
	} else {
		rx->head = lines_go_on(rx->head, rx->lap_shift, n_lines);
		rx->lap_shift++;
		rx->n_lines = n_lines;
	}
	if (dma_bytes != rx->dma_bytes) {
		rx->dma_head = dma_goes_on(rx->dma_head, rx->dma_bytes, dma_bytes);
		rx->dma_bytes = dma_bytes;
	}
	return true;
}
