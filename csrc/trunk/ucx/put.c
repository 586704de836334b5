/* SPDX-License-Identifier: BSD-3-Clause
 * Bytes into another machine's memory, by UCX.  A packet behind them waits until a flush says that
 * they are there, and so do the packets behind it.
 *
 * Nothing lands behind the end of a connection: UCX closes the sockets by the next progress, and a
 * ring opens again only by packets of the next connection.
 *
 * Over TCP alone: an adapter would go on to write to the pages that an arena had when it was
 * registered, while processes come and go. */
#include "trunk/ucx/internal.h"

#include <stdlib.h>
#include <string.h>

void *ucx_window(struct nupa_carrier *carrier, void *memory, size_t bytes,
		 uint8_t key[NUPA_KEY_BYTES], uint32_t *key_bytes)
{
	struct ucx *ucx = ucx_of(carrier);
	const struct nupa_ucp_mem_map_params params = {
		.field_mask = NUPA_UCP_MEM_MAP_ADDRESS | NUPA_UCP_MEM_MAP_LENGTH,
		.address = memory,
		.length = bytes,
	};
	void *window, *packed;
	size_t packed_bytes;
	bool fits;

	if (!ucx->by_tcp || ucx->api.ucp_mem_map(ucx->context, &params, &window) != NUPA_UCS_OK)
		return NULL;
	if (ucx->api.ucp_rkey_pack(ucx->context, window, &packed, &packed_bytes) != NUPA_UCS_OK) {
		ucx_unwindow(carrier, window);
		return NULL;
	}
	fits = packed_bytes <= NUPA_KEY_BYTES;
	if (fits)
		memcpy(key, packed, packed_bytes);
	*key_bytes = (uint32_t)packed_bytes;
	ucx->api.ucp_rkey_buffer_release(packed);
	if (fits)
		return window;
	ucx_unwindow(carrier, window);
	return NULL;
}

void ucx_unwindow(struct nupa_carrier *carrier, void *window)
{
	struct ucx *ucx = ucx_of(carrier);

	(void)ucx->api.ucp_mem_unmap(ucx->context, window);
}

/* UCX trusts the bytes of a key.  A key over TCP is the same for all memory, so that another
 * machine's is taken if it is what ours are. */
static bool is_a_key(struct nupa_carrier *carrier, const uint8_t *key, uint32_t key_bytes)
{
	static uint8_t memory[64];
	uint8_t ours[NUPA_KEY_BYTES];
	uint32_t bytes = 0;
	void *window = ucx_window(carrier, memory, sizeof(memory), ours, &bytes);

	if (!window)
		return false;
	ucx_unwindow(carrier, window);
	return key_bytes == bytes && memcmp(key, ours, bytes) == 0;
}

void *ucx_unlock(struct nupa_carrier *carrier, void *to, const uint8_t *key, uint32_t key_bytes)
{
	struct ucx *ucx = ucx_of(carrier);
	struct link *link = to;
	struct unlocked *unlocked;

	if (link->state != LINK_STANDING || !is_a_key(carrier, key, key_bytes))
		return NULL;
	unlocked = calloc(1, sizeof(*unlocked));
	if (!unlocked ||
	    ucx->api.ucp_ep_rkey_unpack(link->ep, key, &unlocked->rkey) != NUPA_UCS_OK) {
		free(unlocked);
		return NULL;
	}
	unlocked->link = link;
	unlocked->next = link->windows;
	link->windows = unlocked;
	return unlocked;
}

void ucx_lock(struct nupa_carrier *carrier, void *unlocked)
{
	(void)carrier;
	((struct unlocked *)unlocked)->locked = true;
}

void ucx_free_windows(struct link *link, bool all)
{
	for (struct unlocked **at = &link->windows; *at;) {
		struct unlocked *unlocked = *at;

		if (!all && !unlocked->locked) {
			at = &unlocked->next;
			continue;
		}
		*at = unlocked->next;
		link->ucx->api.ucp_rkey_destroy(unlocked->rkey);
		free(unlocked);
	}
}

void ucx_put(struct nupa_carrier *carrier, void *to, const void *from, uint64_t address,
	     uint32_t bytes)
{
	const struct nupa_ucp_request_param param = { 0 };
	struct ucx *ucx = ucx_of(carrier);
	struct unlocked *unlocked = to;
	struct link *link = unlocked->link;
	void *request;

	if (link->dead || link->state != LINK_STANDING)
		return;
	link->has_put = true;
	request = ucx->api.ucp_put_nbx(link->ep, from, bytes, address, unlocked->rkey, &param);
	if (NUPA_UCS_PTR_IS_ERR(request))
		ucx_link_failed(link, NULL, NUPA_UCS_PTR_STATUS(request));
	else if (request)
		ucx->api.ucp_request_free(request); /* the flush is behind it */
}

static void flushed(void *request, nupa_ucs_status status, void *user_data)
{
	struct nupa_packet *packet = user_data;
	struct link *link = packet->link;

	if (status != NUPA_UCS_OK)
		ucx_link_failed(link, NULL, status);
	link->on_way--;
	packet->waits = false;
	if (request)
		link->ucx->api.ucp_request_free(request);
}

static void flush(struct link *link, struct nupa_packet *packet)
{
	const struct nupa_ucp_request_param param = {
		.op_attr_mask = NUPA_UCP_OP_CALLBACK | NUPA_UCP_OP_USER_DATA,
		.cb.send = flushed,
		.user_data = packet,
	};
	void *request;

	link->on_way++;
	packet->waits = true;
	request = link->ucx->api.ucp_ep_flush_nbx(link->ep, &param);
	if (NUPA_UCS_PTR_IS_ERR(request))
		flushed(NULL, NUPA_UCS_PTR_STATUS(request), packet);
	else if (!request)
		flushed(NULL, NUPA_UCS_OK, packet);
}

bool ucx_waits(struct link *link, struct nupa_packet *packet)
{
	packet->waits = false;
	if (!link->has_put && !link->behind)
		return false;
	*link->behind_end = packet;
	link->behind_end = &packet->next;
	if (link->has_put) {
		link->has_put = false;
		flush(link, packet);
	}
	return true;
}

bool ucx_is_ready(const struct link *link)
{
	return link->behind && !link->behind->waits;
}

bool ucx_send_ready(struct link *link)
{
	bool any = false;

	while (ucx_is_ready(link)) {
		struct nupa_packet *packet = link->behind;

		any = true;
		link->behind = packet->next;
		if (!link->behind)
			link->behind_end = &link->behind;
		packet->next = NULL;
		if (link->dead || link->state != LINK_STANDING) {
			ucx_return_packet(link->ucx, packet);
			continue;
		}
		ucx_send_packet(link, packet);
	}
	if (link->windows && !link->behind && !link->has_put)
		ucx_free_windows(link, false);
	return any;
}
