/* SPDX-License-Identifier: BSD-3-Clause
 * Messages by UCX: packets, and the greetings that begin a connection. */
#include "trunk/ucx/internal.h"

/* --- sending ------------------------------------------------------------------------------- */

void ucx_return_packet(struct ucx *ucx, struct nupa_packet *packet)
{
	packet->next = NULL;
	*ucx->returned_end = packet;
	ucx->returned_end = &packet->next;
}

static void packet_sent(void *request, nupa_ucs_status status, void *user_data)
{
	struct nupa_packet *packet = user_data;
	struct link *link = packet->link;

	if (status != NUPA_UCS_OK && !link->dead) {
		link->dead = true;
		link->status = status;
	}
	link->on_way--;
	ucx_return_packet(link->ucx, packet);
	if (request)
		link->ucx->api.ucp_request_free(request);
}

static void greeting_sent(void *request, nupa_ucs_status status, void *user_data)
{
	struct link *link = user_data;

	(void)status;
	link->on_way--;
	if (request)
		link->ucx->api.ucp_request_free(request);
}

static void send_bytes(struct link *link, const void *bytes, size_t n, uint64_t tag,
		       void (*done)(void *, nupa_ucs_status, void *), void *arg)
{
	const struct nupa_ucp_request_param param = {
		.op_attr_mask = NUPA_UCP_OP_CALLBACK | NUPA_UCP_OP_USER_DATA,
		.cb.send = done,
		.user_data = arg,
	};
	void *request;

	link->on_way++;
	request = link->ucx->api.ucp_tag_send_nbx(link->ep, bytes, n, tag, &param);
	if (NUPA_UCS_PTR_IS_ERR(request))
		done(NULL, NUPA_UCS_PTR_STATUS(request), arg);
	else if (!request)
		done(NULL, NUPA_UCS_OK, arg);
}

void ucx_send_packet(struct link *link, struct nupa_packet *packet)
{
	const struct nupa_carrier *carrier = &link->ucx->carrier;

	carrier->events->goes(carrier->arg, link->machine, packet);
	send_bytes(link, packet->data, packet->bytes, TAG_OF(link->theirs), packet_sent, packet);
}

void ucx_send(struct nupa_carrier *carrier, void *to, struct nupa_packet *packet)
{
	struct link *link = to;

	packet->link = link;
	packet->next = NULL;
	if (link->dead || link->state != LINK_STANDING) {
		ucx_return_packet(ucx_of(carrier), packet);
		return;
	}
	if (!ucx_waits(link, packet))
		ucx_send_packet(link, packet);
}

void ucx_greet(struct link *link, uint64_t tag)
{
	link->greeting = (struct greeting){ MAGIC, link->ucx->machine, link->ours };
	send_bytes(link, &link->greeting, sizeof(link->greeting), tag, greeting_sent, link);
}

/* --- receiving ----------------------------------------------------------------------------- */

static void packet_received(void *request, nupa_ucs_status status,
			    const struct nupa_ucp_tag_recv_info *info, void *user_data)
{
	struct receive *receive = user_data;

	receive->done = true;
	receive->status = status;
	receive->bytes = status == NUPA_UCS_OK ? (uint32_t)info->length : 0;
	receive->request = NULL;
	receive->link->ucx->api.ucp_request_free(request);
}

/* Its request, which *done* frees, also before this returns; or an error. */
static void *receive_bytes(struct ucx *ucx, void *bytes, size_t n, uint64_t tag,
			   void (*done)(void *, nupa_ucs_status,
					const struct nupa_ucp_tag_recv_info *, void *),
			   void *arg)
{
	const struct nupa_ucp_request_param param = {
		.op_attr_mask =
		    NUPA_UCP_OP_CALLBACK | NUPA_UCP_OP_USER_DATA | NUPA_UCP_OP_NO_IMM_CMPL,
		.cb.recv = done,
		.user_data = arg,
	};

	return ucx->api.ucp_tag_recv_nbx(ucx->worker, bytes, n, tag, TAG_ALL, &param);
}

bool ucx_post(struct receive *receive)
{
	struct link *link = receive->link;
	void *request;

	receive->done = false;
	request = receive_bytes(link->ucx, receive->data, sizeof(receive->data), TAG_OF(link->ours),
				packet_received, receive);
	if (NUPA_UCS_PTR_IS_ERR(request))
		return false;
	if (!receive->done) /* else it has been freed */
		receive->request = request;
	return true;
}

static void challenge_received(void *request, nupa_ucs_status status,
			       const struct nupa_ucp_tag_recv_info *info, void *user_data)
{
	struct ucx *ucx = user_data;

	ucx->challenged = true;
	ucx->challenge_right = status == NUPA_UCS_OK && info->length == sizeof(ucx->challenge);
	ucx->challenge_request = NULL;
	ucx->api.ucp_request_free(request);
}

bool ucx_await_challenge(struct ucx *ucx)
{
	void *request;

	if (ucx->challenge_request || ucx->challenged)
		return true;
	request = receive_bytes(ucx, &ucx->challenge, sizeof(ucx->challenge), TAG_CHALLENGE,
				challenge_received, ucx);
	if (NUPA_UCS_PTR_IS_ERR(request))
		return false;
	if (!ucx->challenged)
		ucx->challenge_request = request;
	return true;
}
