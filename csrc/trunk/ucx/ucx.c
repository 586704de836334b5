/* SPDX-License-Identifier: BSD-3-Clause
 * UCX as the carrier: tagged messages, in event mode.  A tag says to which connection a message
 * belongs, by a random number that its receiver chose; of one connection messages come in order.
 *
 *   the connector                                        the acceptor
 *   connects                                     ->      its number for the connection:
 *   its number, its machine: ANSWER              <-      CHALLENGE
 *   packets                                      <->     packets */
#include "trunk/ucx/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define HANDSHAKE_NS UINT64_C(10000000000)
#define ROUNDS 16u
#define END_NS UINT64_C(2000000000)

/* --- progress ------------------------------------------------------------------------------ */

/* Packets in the order in which they were sent: that of the receives. */
static bool take_packets(struct link *link)
{
	struct ucx *ucx = link->ucx;
	bool any = false;

	while (link->state == LINK_STANDING || link->state == LINK_ASKED) {
		struct receive *receive = &link->receives[link->next_receive % RECEIVES];

		if (!receive->done)
			break;
		any = true;
		if (receive->status != NUPA_UCS_OK) {
			ucx_link_failed(link, NULL, receive->status);
			break;
		}
		if (link->state == LINK_ASKED)
			ucx_hear_answer(link, receive);
		else
			ucx->carrier.events->received(ucx->carrier.arg, link->machine, link,
						      receive->data, receive->bytes);
		link->next_receive++;
		if (link->state != LINK_CLOSED && !ucx_post(receive))
			ucx_link_failed(link, NULL, NUPA_UCS_ERR_CANCELED);
	}
	return any;
}

static bool return_packets(struct ucx *ucx)
{
	bool any = false;

	while (ucx->returned) {
		struct nupa_packet *packet = ucx->returned;
		struct link *link = packet->link;

		ucx->returned = packet->next;
		if (!ucx->returned)
			ucx->returned_end = &ucx->returned;
		any = true;
		ucx->carrier.events->sent(ucx->carrier.arg, link->machine, packet, link);
	}
	return any;
}

static void bury(struct ucx *ucx, struct link *link)
{
	const bool known = link->machine < ucx->machines && link->state != LINK_CLOSED;
	char reason[128];

	snprintf(reason, sizeof(reason), "%s", ucx->api.ucs_status_string(link->status));
	ucx_link_close(link);
	if (known)
		ucx->carrier.events->lost(ucx->carrier.arg, link->machine, link, reason);
}

static bool look_at_links(struct ucx *ucx)
{
	bool any = false;

	for (struct link *link = ucx->links; link; link = link->next) {
		any |= ucx_send_ready(link);
		any |= take_packets(link);
		if (link->state == LINK_ASKED && ucx->now_ns - link->since_ns > HANDSHAKE_NS)
			ucx_link_close(link);
		if (link->dead && link->state != LINK_CLOSED) {
			bury(ucx, link);
			any = true;
		}
	}
	for (struct link **at = &ucx->links; *at;) {
		struct link *link = *at;

		if (!ucx_link_is_over(link)) {
			at = &link->next;
			continue;
		}
		*at = link->next;
		ucx_link_free(link);
	}
	return any;
}

static bool ucx_progress(struct nupa_carrier *carrier, uint64_t now_ns)
{
	struct ucx *ucx = ucx_of(carrier);
	bool any = false;

	ucx->now_ns = now_ns;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		bool some = ucx->api.ucp_worker_progress(ucx->worker) != 0;

		if (ucx->challenged) {
			ucx_answer_challenge(ucx);
			some = true;
		}
		some |= return_packets(ucx);
		some |= look_at_links(ucx);
		any |= some;
		if (!some)
			break;
	}
	return any;
}

static bool ucx_arm(struct nupa_carrier *carrier)
{
	struct ucx *ucx = ucx_of(carrier);

	for (const struct link *link = ucx->links; link; link = link->next)
		if (ucx_is_ready(link))
			return false;
	return !ucx->returned && !ucx->challenged &&
	       ucx->api.ucp_worker_arm(ucx->worker) == NUPA_UCS_OK;
}

static int ucx_fd(const struct nupa_carrier *carrier)
{
	return ((const struct ucx *)(const void *)carrier)->fd;
}

static uint32_t ucx_port(const struct nupa_carrier *carrier)
{
	return ((const struct ucx *)(const void *)carrier)->port;
}

static const char *ucx_name(const struct nupa_carrier *carrier)
{
	return ((const struct ucx *)(const void *)carrier)->name;
}

/* --- begin and end ------------------------------------------------------------------------- */

void ucx_free(struct nupa_carrier *carrier)
{
	struct ucx *ucx = ucx_of(carrier);
	struct timespec now;
	uint64_t until_ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	until_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + END_NS;
	for (struct link *link = ucx->links; link; link = link->next)
		ucx_link_close(link);
	if (ucx->challenge_request)
		ucx->api.ucp_request_cancel(ucx->worker, ucx->challenge_request);
	while (ucx->worker && (ucx->links || ucx->challenge_request || ucx->returned)) {
		(void)ucx->api.ucp_worker_progress(ucx->worker);
		(void)return_packets(ucx);
		(void)look_at_links(ucx);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec > until_ns)
			break;
	}
	if (ucx->listener)
		ucx->api.ucp_listener_destroy(ucx->listener);
	if (ucx->worker)
		ucx->api.ucp_worker_destroy(ucx->worker);
	if (ucx->context)
		ucx->api.ucp_cleanup(ucx->context);
	free(ucx->addresses);
	free(ucx);
}

const struct nupa_carrier_ops ucx_ops = {
	.connect = ucx_connect,
	.send = ucx_send,
	.window = ucx_window,
	.unwindow = ucx_unwindow,
	.unlock = ucx_unlock,
	.lock = ucx_lock,
	.put = ucx_put,
	.close = ucx_close,
	.progress = ucx_progress,
	.arm = ucx_arm,
	.fd = ucx_fd,
	.port = ucx_port,
	.name = ucx_name,
	.free = ucx_free,
};
