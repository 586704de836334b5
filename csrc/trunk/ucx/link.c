/* SPDX-License-Identifier: BSD-3-Clause
 * Connections by UCX, from the request to the last answer. */
#include "trunk/ucx/internal.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define PENDING_MAX 80u /* connections that are not known yet */

void ucx_link_failed(void *arg, void *ep, nupa_ucs_status status)
{
	struct link *link = arg;

	(void)ep;
	if (link->dead)
		return;
	link->dead = true;
	link->status = status;
}

void ucx_link_free(struct link *link)
{
	ucx_free_windows(link, true);
	free(link->receives);
	free(link);
}

static struct link *link_new(struct ucx *ucx)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->ucx = ucx;
	link->since_ns = ucx->now_ns;
	link->behind_end = &link->behind;
	link->receives = aligned_alloc(_Alignof(struct receive), RECEIVES * sizeof(struct receive));
	if (!link->receives ||
	    getrandom(&link->ours, sizeof(link->ours), 0) != sizeof(link->ours)) {
		ucx_link_free(link);
		return NULL;
	}
	for (uint32_t i = 0; i < RECEIVES; i++) {
		link->receives[i].link = link;
		link->receives[i].request = NULL;
		link->receives[i].done = false;
	}
	return link;
}

static void cancel_receives(struct link *link)
{
	struct ucx *ucx = link->ucx;

	for (uint32_t i = 0; i < RECEIVES; i++)
		if (link->receives[i].request)
			ucx->api.ucp_request_cancel(ucx->worker, link->receives[i].request);
}

static bool link_begin(struct link *link, struct nupa_ucp_ep_params *params)
{
	struct ucx *ucx = link->ucx;

	params->field_mask |= NUPA_UCP_EP_ERR_HANDLING_MODE | NUPA_UCP_EP_ERR_HANDLER;
	params->err_mode = NUPA_UCP_ERR_HANDLING_PEER;
	params->err_handler.cb = ucx_link_failed;
	params->err_handler.arg = link;
	for (uint32_t i = 0; i < RECEIVES; i++)
		if (!ucx_post(&link->receives[i]))
			return false;
	if (ucx->api.ucp_ep_create(ucx->worker, params, &link->ep) != NUPA_UCS_OK) {
		link->ep = NULL;
		return false;
	}
	return true;
}

void ucx_link_close(struct link *link)
{
	const struct nupa_ucp_request_param param = {
		.op_attr_mask = NUPA_UCP_OP_FLAGS,
		.flags = NUPA_UCP_EP_CLOSE_FORCE,
	};
	struct ucx *ucx = link->ucx;

	if (link->state == LINK_CLOSED)
		return;
	if (link->state == LINK_ASKED)
		ucx->pending--;
	link->state = LINK_CLOSED;
	(void)ucx_send_ready(link);
	cancel_receives(link);
	if (!link->ep)
		return;
	link->closing = ucx->api.ucp_ep_close_nbx(link->ep, &param);
	link->ep = NULL;
	if (NUPA_UCS_PTR_IS_ERR(link->closing))
		link->closing = NULL;
}

bool ucx_link_is_over(struct link *link)
{
	struct ucx *ucx = link->ucx;

	if (link->state != LINK_CLOSED || link->on_way || link->behind)
		return false;
	for (uint32_t i = 0; i < RECEIVES; i++)
		if (link->receives[i].request)
			return false;
	if (link->closing) {
		if (ucx->api.ucp_request_check_status(link->closing) > 0) /* UCS_INPROGRESS */
			return false;
		ucx->api.ucp_request_free(link->closing);
		link->closing = NULL;
	}
	for (const struct nupa_packet *packet = ucx->returned; packet; packet = packet->next)
		if (packet->link == link)
			return false;
	return true;
}

static void link_add(struct link *link)
{
	link->next = link->ucx->links;
	link->ucx->links = link;
}

void *ucx_connect(struct nupa_carrier *carrier, uint32_t machine)
{
	struct ucx *ucx = ucx_of(carrier);
	struct sockaddr_storage *address = &ucx->addresses[machine];
	struct nupa_ucp_ep_params params = {
		.field_mask = NUPA_UCP_EP_FLAGS | NUPA_UCP_EP_SOCK_ADDR,
		.flags = NUPA_UCP_EP_CLIENT_SERVER,
		.sockaddr = { (struct sockaddr *)address, address->ss_family == AF_INET6
							      ? sizeof(struct sockaddr_in6)
							      : sizeof(struct sockaddr_in) },
	};
	struct link *link = ucx_await_challenge(ucx) ? link_new(ucx) : NULL;

	if (!link)
		return NULL;
	link->machine = machine;
	link->state = LINK_CONNECTING;
	link_add(link);
	if (!link_begin(link, &params)) {
		ucx_link_close(link);
		return NULL;
	}
	return link;
}

void ucx_link_requested(void *request, void *arg)
{
	struct ucx *ucx = arg;
	struct nupa_ucp_ep_params params = {
		.field_mask = NUPA_UCP_EP_CONN_REQUEST,
		.conn_request = request,
	};
	struct link *link = ucx->pending < PENDING_MAX ? link_new(ucx) : NULL;

	if (!link) {
		(void)ucx->api.ucp_listener_reject(ucx->listener, request);
		return;
	}
	link->state = LINK_ASKED;
	link->accepted = true;
	link->machine = UINT32_MAX;
	ucx->pending++;
	link_add(link);
	if (!link_begin(link, &params)) {
		ucx_link_close(link);
		return;
	}
	ucx_greet(link, TAG_CHALLENGE);
}

void ucx_close(struct nupa_carrier *carrier, void *link)
{
	(void)carrier;
	ucx_link_close(link);
}

void ucx_answer_challenge(struct ucx *ucx)
{
	const struct greeting challenge = ucx->challenge;
	const bool right = ucx->challenge_right && challenge.magic == MAGIC;

	ucx->challenged = false;
	(void)ucx_await_challenge(ucx);
	for (struct link *link = ucx->links; right && link; link = link->next) {
		if (link->state != LINK_CONNECTING || link->machine != challenge.machine)
			continue;
		link->theirs = challenge.number;
		link->state = LINK_STANDING;
		ucx_greet(link, TAG_OF(link->theirs));
		ucx->carrier.events->met(ucx->carrier.arg, link->machine, link);
		return;
	}
}

void ucx_hear_answer(struct link *link, const struct receive *receive)
{
	struct ucx *ucx = link->ucx;
	struct greeting answer;

	memcpy(&answer, receive->data, sizeof(answer));
	if (receive->bytes != sizeof(answer) || answer.magic != MAGIC ||
	    answer.machine >= ucx->machines) {
		ucx_link_close(link);
		return;
	}
	ucx->pending--;
	link->machine = answer.machine;
	link->theirs = answer.number;
	link->state = LINK_STANDING;
	ucx->carrier.events->met(ucx->carrier.arg, link->machine, link);
}
