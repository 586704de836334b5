/* SPDX-License-Identifier: BSD-3-Clause
 * One direction of a channel: a ring of one-line messages (fast channel) and a
 * byte ring for their payloads (DMA channel).  One producer, one consumer.
 *
 *   I1  Only the producer stores lines and DMA bytes, only the consumer the heads.
 *   I2  A line is valid when its tag is the lap the consumer is in, plus one; rings
 *       start zeroed, so no line of an earlier lap or owner looks valid.
 *   I3  Both ends walk the DMA ring by the same arithmetic (nupa_dma_span), so a
 *       message carries its length only.
 *   I4  Counts are 40 bits wide and travel with the producer's epoch: late stores to the head by a
 *       previous consumer carry an old epoch and are ignored.
 *   I5  A ring to a kernel that is not coherent with ours is used by the functions of ring_apart.c,
 *       which flush and fetch around these.
 *   I6  A ring may begin small and grow (grow.c).  A line of NUPA_OP_GROW says so to the consumer.
 *       Behind it both ends go on at the former size: what lies before that is one piece, and free
 *       when the consumer has passed the line.  Positions leave numbers out there, and never go
 *       back.  The lap stays, so tags of former lines are never those that are waited for. */
#ifndef NUPA_RING_H
#define NUPA_RING_H

#include "base/atomics.h"
#include "segment/ring/wire.h"

#include <string.h>

#define NUPA_COUNT_MASK ((UINT64_C(1) << 40) - 1)
#define NUPA_HEAD(epoch, count) ((uint64_t)(epoch) << 40 | ((count)&NUPA_COUNT_MASK))

struct nupa_fabric;

struct nupa_tx {
	struct nupa_msg *lines;
	uint8_t *dma;
	uint64_t tail;          /* messages published */
	uint64_t limit;         /* where the tail stops, or the ring grows, unless the head moves */
	uint64_t dma_tail;      /* bytes given out */
	uint64_t dma_head_seen; /* bytes known to be consumed */
	uint32_t n_lines, dma_bytes; /* in use */
	uint32_t lap_shift;
	uint32_t epoch;
	struct nupa_ring_header *header;
	uint64_t head_seen; /* messages known to be consumed */
	bool apart;         /* I5 */
	/* I6 */
	uint32_t most_lines, most_dma_bytes;
	uint64_t grown_at;          /* the tail, behind the line that said so */
	uint64_t looked_ns;         /* when the tail came to the limit last */
	struct nupa_fabric *fabric; /* whose memory is backed with the growth; NULL: all is there */
	uint64_t offset;            /* of the header there */
	/* Is shown the line that says so, before it is published; NULL: nobody is. */
	void (*grows)(struct nupa_tx *tx, const struct nupa_msg *line);
};

struct nupa_rx {
	struct nupa_ring_header *header;
	const struct nupa_msg *lines;
	const uint8_t *dma;
	uint64_t head;
	uint64_t head_published;
	uint64_t dma_head;
	uint64_t dma_head_published;
	uint64_t dma_pending; /* span of the message taken last */
	uint32_t n_lines, dma_bytes;
	uint32_t lap_shift;
	uint32_t epoch;
	uint32_t most_lines, most_dma_bytes; /* I6 */
	uint64_t head_flushed; /* ring_apart.c: what of head_published the producer can see */
};

/* ring_apart.c, the ends of a ring between kernels (I5).  In place of nupa_rx_ready, and before
 * nupa_rx_take: fetches the next line, and its payload if a message is there.  A message that comes
 * later is not taken before the next fetch.  Behind them: how far we are. */
bool nupa_rx_fetch(const struct nupa_rx *rx);
void nupa_rx_flush_heads(struct nupa_rx *rx);
/* In place of nupa_tx_publish. */
void nupa_tx_publish_apart(struct nupa_tx *tx, struct nupa_msg *line, uint32_t dma_payload_bytes);
void nupa_tx_fetch_heads(const struct nupa_tx *tx);

/* grow.c, I6.  Behind nupa_tx_init, nupa_rx_init, before anything is sent: the ring is to begin
 * small.  Those were told how large it may be. */
void nupa_tx_begin_small(struct nupa_tx *tx);
void nupa_rx_begin_small(struct nupa_rx *rx);
/* The tail is at the limit: whether it may go on, as the head moved or the ring grew. */
bool nupa_tx_more_lines(struct nupa_tx *tx);
/* The same of dma_payload_bytes that do not fit. */
bool nupa_tx_more_dma(struct nupa_tx *tx, uint32_t dma_payload_bytes);
/* Backs the DMA bytes that are in use: 0 or -errno. */
int nupa_tx_back_dma(struct nupa_tx *tx);
/* Follows a line of NUPA_OP_GROW; false: no producer says that. */
bool nupa_rx_grow(struct nupa_rx *rx, const struct nupa_msg *msg);

enum nupa_rx_result { NUPA_RX_EMPTY = 0, NUPA_RX_MESSAGE = 1, NUPA_RX_CORRUPT = -1 };

/* The largest payload of one message: two fit beside each other wherever the wrap falls. */
static inline uint32_t nupa_dma_payload_max(uint32_t dma_bytes)
{
	return dma_bytes / 4;
}

/* Bytes that a payload takes from position at: whole lines, and the gap to the
 * start of the ring if it would not lie contiguous. */
static inline uint64_t nupa_dma_span(uint64_t at, uint32_t dma_bytes, uint32_t payload_bytes,
				     uint64_t *start)
{
	uint64_t lines_bytes = ((uint64_t)payload_bytes + 63) & ~UINT64_C(63);
	uint64_t offset = at & (dma_bytes - 1);
	uint64_t gap = offset + lines_bytes > dma_bytes ? dma_bytes - offset : 0;

	*start = (at + gap) & (dma_bytes - 1);
	return gap + lines_bytes;
}

static inline void nupa_tx_init(struct nupa_tx *tx, struct nupa_ring_header *header,
				uint32_t n_lines, uint32_t dma_bytes, uint32_t epoch)
{
	memset(tx, 0, sizeof(*tx));
	tx->header = header;
	tx->lines = (struct nupa_msg *)(header + 1);
	tx->dma = (uint8_t *)(tx->lines + n_lines);
	tx->n_lines = n_lines;
	tx->dma_bytes = dma_bytes;
	tx->lap_shift = (uint32_t)__builtin_ctz(n_lines);
	tx->epoch = epoch;
	tx->limit = tx->most_lines = n_lines;
	tx->most_dma_bytes = dma_bytes;
}

static inline void nupa_rx_init(struct nupa_rx *rx, struct nupa_ring_header *header,
				uint32_t n_lines, uint32_t dma_bytes, uint32_t epoch)
{
	memset(rx, 0, sizeof(*rx));
	rx->header = header;
	rx->lines = (const struct nupa_msg *)(header + 1);
	rx->dma = (const uint8_t *)(rx->lines + n_lines);
	rx->n_lines = n_lines;
	rx->dma_bytes = dma_bytes;
	rx->lap_shift = (uint32_t)__builtin_ctz(n_lines);
	rx->epoch = epoch;
	rx->most_lines = n_lines;
	rx->most_dma_bytes = dma_bytes;
}

/* The consumer's head.  One of another epoch, or one that is impossible (hostile), is ignored: the
 * ring at worst stays full. */
static inline uint64_t nupa_head_accept(uint64_t word, uint32_t epoch, uint64_t seen, uint64_t tail)
{
	uint64_t moved = (word - seen) & NUPA_COUNT_MASK;

	if ((word >> 40) != (epoch & 0xffffff) || moved > tail - seen)
		return seen;
	return seen + moved;
}

/* A ring that may grow keeps a line for NUPA_OP_GROW. */
static inline uint64_t nupa_tx_limit(const struct nupa_tx *tx)
{
	const uint64_t from =
	    tx->head_seen < tx->grown_at ? tx->grown_at - tx->n_lines / 2 : tx->head_seen;

	return from + tx->n_lines - (tx->n_lines < tx->most_lines);
}

/* C2: acquire, so that our stores to a line come after the consumer's loads of it. */
static inline void nupa_tx_see_head(struct nupa_tx *tx)
{
	if (__builtin_expect(tx->apart, 0))
		nupa_tx_fetch_heads(tx);
	tx->head_seen = nupa_head_accept(nupa_load_acquire(&tx->header->head), tx->epoch,
					 tx->head_seen, tx->tail);
	tx->limit = nupa_tx_limit(tx);
}

/* C2, for DMA bytes. */
static inline void nupa_tx_see_dma_head(struct nupa_tx *tx)
{
	if (__builtin_expect(tx->apart, 0))
		nupa_tx_fetch_heads(tx);
	tx->dma_head_seen = nupa_head_accept(nupa_load_acquire(&tx->header->dma_head), tx->epoch,
					     tx->dma_head_seen, tx->dma_tail);
}

static inline bool nupa_tx_fits_dma(const struct nupa_tx *tx, uint32_t dma_payload_bytes)
{
	uint64_t start;
	uint64_t span = nupa_dma_span(tx->dma_tail, tx->dma_bytes, dma_payload_bytes, &start);

	return dma_payload_bytes <= nupa_dma_payload_max(tx->dma_bytes) &&
	       tx->dma_tail + span - tx->dma_head_seen <= tx->dma_bytes;
}

/* Room for one message with dma_payload_bytes beside it: its line, to be filled but for the tag,
 * and where the payload goes.  NULL: no room until the consumer moves. */
static inline struct nupa_msg *nupa_tx_reserve(struct nupa_tx *tx, uint32_t dma_payload_bytes,
					       uint8_t **payload)
{
	if (__builtin_expect(tx->tail >= tx->limit, 0) && !nupa_tx_more_lines(tx))
		return NULL;
	if (dma_payload_bytes) {
		uint64_t start;

		if (__builtin_expect(!nupa_tx_fits_dma(tx, dma_payload_bytes), 0) &&
		    !nupa_tx_more_dma(tx, dma_payload_bytes))
			return NULL;
		(void)nupa_dma_span(tx->dma_tail, tx->dma_bytes, dma_payload_bytes, &start);
		*payload = tx->dma + start;
	}
	return &tx->lines[tx->tail & (tx->n_lines - 1)];
}

/* The line that the next message will take, if there is room. */
static inline struct nupa_msg *nupa_tx_next(const struct nupa_tx *tx)
{
	return &tx->lines[tx->tail & (tx->n_lines - 1)];
}

/* The one so many lines behind that. */
static inline struct nupa_msg *nupa_tx_ahead(const struct nupa_tx *tx, uint32_t lines)
{
	return &tx->lines[(tx->tail + lines) & (tx->n_lines - 1)];
}

/* Whether nothing was written to that line before. */
static inline bool nupa_tx_is_fresh(const struct nupa_tx *tx)
{
	return tx->tail >> tx->lap_shift == tx->grown_at >> tx->lap_shift;
}

/* Publishes the line that was reserved with the same dma_payload_bytes. */
static inline void nupa_tx_publish(struct nupa_tx *tx, struct nupa_msg *line,
				   uint32_t dma_payload_bytes)
{
	if (dma_payload_bytes) {
		uint64_t start;

		tx->dma_tail +=
		    nupa_dma_span(tx->dma_tail, tx->dma_bytes, dma_payload_bytes, &start);
	}
	/* P1: release, so that a consumer that sees the tag sees line and payload. */
	nupa_store_release(&line->tag, (uint32_t)(tx->tail >> tx->lap_shift) + 1);
	tx->tail++;
}

/* True when the consumer has taken everything. */
static inline bool nupa_tx_drained(struct nupa_tx *tx)
{
	nupa_tx_see_head(tx);
	return tx->head_seen == tx->tail;
}

static inline const struct nupa_msg *nupa_rx_line(const struct nupa_rx *rx)
{
	return &rx->lines[rx->head & (rx->n_lines - 1)];
}

static inline void nupa_rx_prefetch(const struct nupa_rx *rx, uint32_t lines)
{
	__builtin_prefetch(&rx->lines[(rx->head + lines) & (rx->n_lines - 1)]);
}

/* C1: acquire, so that later reads of the line see the stores before its tag. */
static inline bool nupa_rx_ready(const struct nupa_rx *rx)
{
	uint32_t tag = (uint32_t)(rx->head >> rx->lap_shift) + 1;

	return nupa_load_acquire(&nupa_rx_line(rx)->tag) == tag;
}

/* C7: whether the line that was ready is still that one, after it was read in place.  The fence
 * keeps those reads before this one; an acquire would only keep later reads behind it. */
static inline bool nupa_rx_intact(const struct nupa_rx *rx)
{
	uint32_t tag = (uint32_t)(rx->head >> rx->lap_shift) + 1;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return nupa_load_relaxed(&nupa_rx_line(rx)->tag) == tag;
}

/* Copies the next message out (the producer may be hostile and still write to it) and finds its
 * payload.  The payload stays the producer's until nupa_rx_release. */
static inline enum nupa_rx_result nupa_rx_take(struct nupa_rx *rx, struct nupa_msg *out,
					       const uint8_t **payload)
{
	for (;;) {
		/* C1: acquire, so that the copy below sees what was stored before the tag. */
		if (!nupa_rx_ready(rx))
			return NUPA_RX_EMPTY;
		*out = *nupa_rx_line(rx);
		/* A dead producer's ring may be cleared at any time: then the copy is not a
		 * message. */
		if (!nupa_rx_intact(rx))
			return NUPA_RX_EMPTY;
		if (__builtin_expect(out->op != NUPA_OP_GROW, 1))
			break;
		if (!nupa_rx_grow(rx, out))
			return NUPA_RX_CORRUPT;
	}
	rx->dma_pending = 0;
	*payload = NULL;
	if (out->flags & NUPA_F_DMA) {
		uint64_t start;

		if (out->length_bytes == 0 ||
		    out->length_bytes > nupa_dma_payload_max(rx->dma_bytes))
			return NUPA_RX_CORRUPT;
		rx->dma_pending =
		    nupa_dma_span(rx->dma_head, rx->dma_bytes, out->length_bytes, &start);
		*payload = rx->dma + start;
	}
	return NUPA_RX_MESSAGE;
}

/* Tells the producer how far we are. */
static inline void nupa_rx_publish(struct nupa_rx *rx)
{
	if (rx->head_published == rx->head)
		return;
	rx->head_published = rx->head;
	rx->dma_head_published = rx->dma_head;
	/* P2: release, so that our loads of the lines come before the producer's stores. */
	nupa_store_release(&rx->header->dma_head, NUPA_HEAD(rx->epoch, rx->dma_head));
	nupa_store_release(&rx->header->head, NUPA_HEAD(rx->epoch, rx->head));
}

/* Gives the last message back to the producer.  The producer sees that an eighth of a ring later at
 * most, or when the consumer finds the ring empty and publishes. */
static inline void nupa_rx_release(struct nupa_rx *rx)
{
	rx->head++;
	rx->dma_head += rx->dma_pending;
	if (rx->head - rx->head_published >= rx->n_lines / 8 ||
	    rx->dma_head - rx->dma_head_published >= rx->dma_bytes / 8)
		nupa_rx_publish(rx);
}

#endif
