/* SPDX-License-Identifier: BSD-3-Clause
 * Single parts of the engine as a library, for the models in tests/unit: one ring with both its
 * ends, and the table of QP transitions. */
#include "engine/device/device.h"
#include "engine/qp/verbs.h"

#include <stdlib.h>

#define FACE __attribute__((visibility("default")))

struct face_ring {
	struct nupa_ring_header *header;
	struct nupa_tx tx;
	struct nupa_rx rx;
};

FACE struct face_ring *face_ring_new(uint32_t n_lines, uint32_t dma_bytes, uint32_t epoch);
FACE void face_ring_free(struct face_ring *ring);
FACE int face_ring_send(struct face_ring *ring, uint32_t number, const uint8_t *payload,
			uint32_t bytes);
FACE int face_ring_take(struct face_ring *ring, uint32_t *number, uint8_t *payload,
			uint32_t *bytes);
FACE void face_ring_publish(struct face_ring *ring);
FACE int face_ring_drained(struct face_ring *ring);
FACE void face_ring_lie(struct face_ring *ring, uint64_t head, uint64_t dma_head);
FACE void face_ring_tell_again(struct face_ring *ring);
FACE int face_qp_check_transition(int type, int from, int to, int mask);

struct face_ring *face_ring_new(uint32_t n_lines, uint32_t dma_bytes, uint32_t epoch)
{
	size_t bytes =
	    sizeof(struct nupa_ring_header) + n_lines * sizeof(struct nupa_msg) + dma_bytes;
	struct face_ring *ring = malloc(sizeof(*ring));

	if (!ring)
		return NULL;
	ring->header = aligned_alloc(NUPA_CACHE_LINE_BYTES, bytes);
	if (!ring->header) {
		free(ring);
		return NULL;
	}
	memset(ring->header, 0, bytes);
	ring->header->head = NUPA_HEAD(epoch, 0);
	ring->header->dma_head = NUPA_HEAD(epoch, 0);
	nupa_tx_init(&ring->tx, ring->header, n_lines, dma_bytes, epoch);
	nupa_rx_init(&ring->rx, ring->header, n_lines, dma_bytes, epoch);
	return ring;
}

void face_ring_free(struct face_ring *ring)
{
	free(ring->header);
	free(ring);
}

/* 1, or 0 if there is no room. */
int face_ring_send(struct face_ring *ring, uint32_t number, const uint8_t *payload, uint32_t bytes)
{
	uint8_t *at = NULL;
	struct nupa_msg *msg = nupa_tx_reserve(&ring->tx, bytes, &at);

	if (!msg)
		return 0;
	msg->op = NUPA_OP_SEND;
	msg->flags = bytes ? NUPA_F_DMA : 0;
	msg->psn = number;
	msg->length_bytes = bytes;
	if (bytes)
		memcpy(at, payload, bytes);
	nupa_tx_publish(&ring->tx, msg, bytes);
	return 1;
}

/* enum nupa_rx_result; a message is copied out and released. */
int face_ring_take(struct face_ring *ring, uint32_t *number, uint8_t *payload, uint32_t *bytes)
{
	struct nupa_msg msg;
	const uint8_t *at;
	int ready = nupa_rx_ready(&ring->rx);
	enum nupa_rx_result result = nupa_rx_take(&ring->rx, &msg, &at);

	if (ready != (result != NUPA_RX_EMPTY))
		abort(); /* without other users the two must agree */
	if (result != NUPA_RX_MESSAGE)
		return result;
	*number = msg.psn;
	*bytes = msg.length_bytes;
	if (at)
		memcpy(payload, at, msg.length_bytes);
	nupa_rx_release(&ring->rx);
	return result;
}

void face_ring_publish(struct face_ring *ring)
{
	nupa_rx_publish(&ring->rx);
}

int face_ring_drained(struct face_ring *ring)
{
	return nupa_tx_drained(&ring->tx);
}

/* A hostile consumer's heads, as whole words. */
void face_ring_lie(struct face_ring *ring, uint64_t head, uint64_t dma_head)
{
	ring->header->head = head;
	ring->header->dma_head = dma_head;
}

/* The honest consumer's heads again. */
void face_ring_tell_again(struct face_ring *ring)
{
	face_ring_lie(ring, NUPA_HEAD(ring->rx.epoch, ring->rx.head_published),
		      NUPA_HEAD(ring->rx.epoch, ring->rx.dma_head_published));
}

int face_qp_check_transition(int type, int from, int to, int mask)
{
	return nupa_qp_check_transition((enum ibv_qp_type)type, (enum ibv_qp_state)from,
					(enum ibv_qp_state)to, mask);
}
