/* SPDX-License-Identifier: BSD-3-Clause
 * UCX as the carrier: tagged messages, in event mode.  A tag says to which connection a message
 * belongs, by a random number that its receiver chose; of one connection messages come in order.
 *
 *   the connector                                        the acceptor
 *   connects                                     ->      its number for the connection:
 *   its number, its machine: ANSWER              <-      CHALLENGE
 *   packets                                      <->     packets */
#include "trunk/ucx/ucx.h"

#include "base/explain.h"
#include "trunk/ucx/api.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define RECEIVES 16u    /* packets of a connection that are awaited at once */
#define PENDING_MAX 80u /* connections that are not known yet */
#define HANDSHAKE_NS UINT64_C(10000000000)
#define ROUNDS 16u
#define END_NS UINT64_C(2000000000)
#define MAGIC UINT64_C(0x58435541505554) /* "TUPAUCX" */

#define TAG_CHALLENGE UINT64_C(1)
#define TAG_OF(number) ((uint64_t)(number) << 32 | 2)
#define TAG_ALL UINT64_C(0xffffffffffffffff)

struct greeting {
	uint64_t magic;
	uint32_t machine;
	uint32_t number; /* what the sender's messages are to be tagged with */
};

struct receive {
	struct link *link;
	void *request; /* NULL: not posted */
	bool done;
	nupa_ucs_status status;
	uint32_t bytes;
	_Alignas(64) uint8_t data[NUPA_PACKET_BYTES];
};

enum link_state { LINK_CONNECTING, LINK_ASKED, LINK_STANDING, LINK_CLOSED };

struct link {
	struct link *next;
	struct ucx *ucx;
	enum link_state state;
	uint32_t machine;
	bool accepted;
	uint32_t ours, theirs;
	void *ep, *closing;
	bool dead;
	nupa_ucs_status status;
	uint32_t on_way; /* sends that have not completed */
	uint32_t next_receive;
	uint64_t since_ns;
	struct greeting greeting;
	struct receive *receives; /* RECEIVES */
};

struct ucx {
	struct nupa_carrier carrier;
	struct nupa_ucx_api api;
	uint32_t machine, machines;
	struct sockaddr_storage *addresses;
	void *context, *worker, *listener;
	int fd;
	uint32_t port;
	char name[320];
	struct link *links;
	uint32_t pending;
	struct nupa_packet *returned, **returned_end;
	uint64_t now_ns;
	/* The next CHALLENGE. */
	struct greeting challenge;
	void *challenge_request;
	bool challenged;
	bool challenge_right;
};

static struct ucx *ucx_of(struct nupa_carrier *carrier)
{
	return (struct ucx *)(void *)carrier; /* its first member */
}

/* --- sending ------------------------------------------------------------------------------- */

static void return_packet(struct ucx *ucx, struct nupa_packet *packet)
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
	return_packet(link->ucx, packet);
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

static void ucx_send(struct nupa_carrier *carrier, void *to, struct nupa_packet *packet)
{
	struct link *link = to;

	packet->link = link;
	packet->next = NULL;
	if (link->dead || link->state != LINK_STANDING) {
		return_packet(ucx_of(carrier), packet);
		return;
	}
	send_bytes(link, packet->data, packet->bytes, TAG_OF(link->theirs), packet_sent, packet);
}

static void greet(struct link *link, uint64_t tag)
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

static bool post(struct receive *receive)
{
	const struct nupa_ucp_request_param param = {
		.op_attr_mask =
		    NUPA_UCP_OP_CALLBACK | NUPA_UCP_OP_USER_DATA | NUPA_UCP_OP_NO_IMM_CMPL,
		.cb.recv = packet_received,
		.user_data = receive,
	};
	struct link *link = receive->link;
	void *request;

	receive->done = false;
	request =
	    link->ucx->api.ucp_tag_recv_nbx(link->ucx->worker, receive->data, sizeof(receive->data),
					    TAG_OF(link->ours), TAG_ALL, &param);
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

static bool await_challenge(struct ucx *ucx)
{
	const struct nupa_ucp_request_param param = {
		.op_attr_mask =
		    NUPA_UCP_OP_CALLBACK | NUPA_UCP_OP_USER_DATA | NUPA_UCP_OP_NO_IMM_CMPL,
		.cb.recv = challenge_received,
		.user_data = ucx,
	};
	void *request;

	if (ucx->challenge_request || ucx->challenged)
		return true;
	request = ucx->api.ucp_tag_recv_nbx(ucx->worker, &ucx->challenge, sizeof(ucx->challenge),
					    TAG_CHALLENGE, TAG_ALL, &param);
	if (NUPA_UCS_PTR_IS_ERR(request))
		return false;
	if (!ucx->challenged)
		ucx->challenge_request = request;
	return true;
}

/* --- connections --------------------------------------------------------------------------- */

static void link_failed(void *arg, void *ep, nupa_ucs_status status)
{
	struct link *link = arg;

	(void)ep;
	if (link->dead)
		return;
	link->dead = true;
	link->status = status;
}

static void link_free(struct link *link)
{
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
	link->receives = aligned_alloc(_Alignof(struct receive), RECEIVES * sizeof(struct receive));
	if (!link->receives ||
	    getrandom(&link->ours, sizeof(link->ours), 0) != sizeof(link->ours)) {
		link_free(link);
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
	params->err_handler.cb = link_failed;
	params->err_handler.arg = link;
	for (uint32_t i = 0; i < RECEIVES; i++)
		if (!post(&link->receives[i]))
			return false;
	if (ucx->api.ucp_ep_create(ucx->worker, params, &link->ep) != NUPA_UCS_OK) {
		link->ep = NULL;
		return false;
	}
	return true;
}

static void link_close(struct link *link)
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
	cancel_receives(link);
	if (!link->ep)
		return;
	link->closing = ucx->api.ucp_ep_close_nbx(link->ep, &param);
	link->ep = NULL;
	if (NUPA_UCS_PTR_IS_ERR(link->closing))
		link->closing = NULL;
}

/* Whether nothing of a closed connection is known to UCX any more. */
static bool link_is_over(struct link *link)
{
	struct ucx *ucx = link->ucx;

	if (link->state != LINK_CLOSED || link->on_way)
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

static void *ucx_connect(struct nupa_carrier *carrier, uint32_t machine)
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
	struct link *link = await_challenge(ucx) ? link_new(ucx) : NULL;

	if (!link)
		return NULL;
	link->machine = machine;
	link->state = LINK_CONNECTING;
	link_add(link);
	if (!link_begin(link, &params)) {
		link_close(link);
		return NULL;
	}
	return link;
}

static void connected(void *request, void *arg)
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
		link_close(link);
		return;
	}
	greet(link, TAG_CHALLENGE);
}

static void ucx_close(struct nupa_carrier *carrier, void *link)
{
	(void)carrier;
	link_close(link);
}

static void answer_challenge(struct ucx *ucx)
{
	const struct greeting challenge = ucx->challenge;
	const bool right = ucx->challenge_right && challenge.magic == MAGIC;

	ucx->challenged = false;
	(void)await_challenge(ucx);
	for (struct link *link = ucx->links; right && link; link = link->next) {
		if (link->state != LINK_CONNECTING || link->machine != challenge.machine)
			continue;
		link->theirs = challenge.number;
		link->state = LINK_STANDING;
		greet(link, TAG_OF(link->theirs));
		ucx->carrier.events->met(ucx->carrier.arg, link->machine, link);
		return;
	}
}

/* The first message of a connection that was accepted. */
static void hear_answer(struct link *link, const struct receive *receive)
{
	struct ucx *ucx = link->ucx;
	struct greeting answer;

	memcpy(&answer, receive->data, sizeof(answer));
	if (receive->bytes != sizeof(answer) || answer.magic != MAGIC ||
	    answer.machine >= ucx->machines) {
		link_close(link);
		return;
	}
	ucx->pending--;
	link->machine = answer.machine;
	link->theirs = answer.number;
	link->state = LINK_STANDING;
	ucx->carrier.events->met(ucx->carrier.arg, link->machine, link);
}

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
			link_failed(link, NULL, receive->status);
			break;
		}
		if (link->state == LINK_ASKED)
			hear_answer(link, receive);
		else
			ucx->carrier.events->received(ucx->carrier.arg, link->machine, link,
						      receive->data, receive->bytes);
		link->next_receive++;
		if (link->state != LINK_CLOSED && !post(receive))
			link_failed(link, NULL, NUPA_UCS_ERR_CANCELED);
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
	link_close(link);
	if (known)
		ucx->carrier.events->lost(ucx->carrier.arg, link->machine, link, reason);
}

static bool look_at_links(struct ucx *ucx)
{
	bool any = false;

	for (struct link *link = ucx->links; link; link = link->next) {
		any |= take_packets(link);
		if (link->state == LINK_ASKED && ucx->now_ns - link->since_ns > HANDSHAKE_NS)
			link_close(link);
		if (link->dead && link->state != LINK_CLOSED) {
			bury(ucx, link);
			any = true;
		}
	}
	for (struct link **at = &ucx->links; *at;) {
		struct link *link = *at;

		if (!link_is_over(link)) {
			at = &link->next;
			continue;
		}
		*at = link->next;
		link_free(link);
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
			answer_challenge(ucx);
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

static void ucx_free(struct nupa_carrier *carrier)
{
	struct ucx *ucx = ucx_of(carrier);
	struct timespec now;
	uint64_t until_ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	until_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + END_NS;
	for (struct link *link = ucx->links; link; link = link->next)
		link_close(link);
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

static const struct nupa_carrier_ops ops = {
	.connect = ucx_connect,
	.send = ucx_send,
	.close = ucx_close,
	.progress = ucx_progress,
	.arm = ucx_arm,
	.fd = ucx_fd,
	.port = ucx_port,
	.name = ucx_name,
	.free = ucx_free,
};

static int parse_address(const struct nupa_trunk_address *from, struct sockaddr_storage *to,
			 char *why, size_t why_bytes)
{
	struct sockaddr_in *four = (struct sockaddr_in *)(void *)to;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)to;

	memset(to, 0, sizeof(*to));
	if (!memchr(from->address, 0, sizeof(from->address)) || from->port > 65535)
		return nupa_explain(-EINVAL, why, why_bytes, "port %u: choose 0 to 65535",
				    from->port);
	if (inet_pton(AF_INET, from->address, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons((uint16_t)from->port);
		return 0;
	}
	if (inet_pton(AF_INET6, from->address, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons((uint16_t)from->port);
		return 0;
	}
	return nupa_explain(-EINVAL, why, why_bytes, "'%s' is no address of IPv4 or IPv6",
			    from->address);
}

static int say(struct ucx *ucx, nupa_ucs_status status, const char *what, char *why,
	       size_t why_bytes)
{
	return nupa_explain(-EIO, why, why_bytes, "UCX %s: %s: %s", ucx->name, what,
			    ucx->api.ucs_status_string(status));
}

/* Variables are the user's. */
static void prefer(const struct ucx *ucx, void *config, const char *name, const char *value)
{
	char variable[64];

	snprintf(variable, sizeof(variable), "UCX_%s", name);
	if (!getenv(variable))
		(void)ucx->api.ucp_config_modify(config, name, value);
}

/* Two machines do not meet if UCX numbers their devices differently.  Before 1.16 it follows
 * readdir(3), which differs among machines, and later their names.  Hence a connection by TCP has
 * several devices only where they are named, else that of its address. */
static void choose_devices(const struct ucx *ucx, void *config)
{
	const char *names = getenv("UCX_NET_DEVICES"), *transports = getenv("UCX_TLS");
	unsigned int major, minor, release, devices = 1;
	char rails[16];

	for (; names && *names; names++)
		devices += *names == ',';
	ucx->api.ucp_get_version(&major, &minor, &release);
	if (major == 1 && minor < 16)
		devices = 1;
	if (!transports || strcmp(transports, "tcp") == 0)
		prefer(ucx, config, "CM_USE_ALL_DEVICES", devices > 1 ? "y" : "n");
	if (devices == 1)
		return;
	snprintf(rails, sizeof(rails), "%u", devices);
	prefer(ucx, config, "MAX_EAGER_RAILS", rails);
	prefer(ucx, config, "MAX_RNDV_RAILS", rails);
}

static int make_context(struct ucx *ucx, char *why, size_t why_bytes)
{
	const struct nupa_ucp_params params = {
		.field_mask = NUPA_UCP_PARAM_FEATURES | NUPA_UCP_PARAM_ESTIMATED_EPS,
		.features = NUPA_UCP_FEATURE_TAG | NUPA_UCP_FEATURE_WAKEUP,
		.estimated_num_eps = ucx->machines,
	};
	nupa_ucs_status status;
	void *config;

	status = ucx->api.ucp_config_read(NULL, NULL, &config);
	if (status != NUPA_UCS_OK)
		return say(ucx, status, "its configuration cannot be read", why, why_bytes);
	prefer(ucx, config, "TLS", "tcp");
	choose_devices(ucx, config);
	status = ucx->api.ucp_init_version(NUPA_UCP_API_MAJOR, NUPA_UCP_API_MINOR, &params, config,
					   &ucx->context);
	ucx->api.ucp_config_release(config);
	if (status != NUPA_UCS_OK)
		return say(ucx, status, "no transport can be used (see UCX_TLS, UCX_NET_DEVICES)",
			   why, why_bytes);
	return 0;
}

/* The trunk's own traffic must not go through the fabric that it serves. */
static int check_libraries(char *why, size_t why_bytes)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOLOAD | RTLD_LAZY);
	Dl_info info = { 0 };
	void *ours;

	if (!verbs)
		return 0;
	ours = dlsym(verbs, "nupa_cm_create_id");
	dlclose(verbs);
	if (!ours)
		return 0;
	(void)dladdr(ours, &info);
	return nupa_explain(-ELIBBAD, why, why_bytes,
			    "UCX has loaded %s, a library of NUPA: start the trunk without "
			    "LD_LIBRARY_PATH and LD_PRELOAD",
			    info.dli_fname ? info.dli_fname : "libibverbs.so.1");
}

static int make_worker(struct ucx *ucx, char *why, size_t why_bytes)
{
	const struct nupa_ucp_worker_params params = { 0 };
	nupa_ucs_status status = ucx->api.ucp_worker_create(ucx->context, &params, &ucx->worker);

	if (status == NUPA_UCS_OK)
		status = ucx->api.ucp_worker_get_efd(ucx->worker, &ucx->fd);
	return status == NUPA_UCS_OK ? 0 : say(ucx, status, "no worker", why, why_bytes);
}

static int listen_at(struct ucx *ucx, const struct nupa_trunk_address *where, char *why,
		     size_t why_bytes)
{
	struct nupa_ucp_listener_attr attr = { .field_mask = NUPA_UCP_LISTENER_ATTR_SOCKADDR };
	struct nupa_ucp_listener_params params = {
		.field_mask = NUPA_UCP_LISTENER_SOCK_ADDR | NUPA_UCP_LISTENER_CONN_HANDLER,
		.conn_handler = { connected, ucx },
	};
	struct sockaddr_storage address;
	nupa_ucs_status status;
	int rc = parse_address(where, &address, why, why_bytes);

	if (rc)
		return rc;
	params.sockaddr.addr = (struct sockaddr *)&address;
	params.sockaddr.addrlen = address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
								: sizeof(struct sockaddr_in);
	status = ucx->api.ucp_listener_create(ucx->worker, &params, &ucx->listener);
	if (status != NUPA_UCS_OK) {
		ucx->listener = NULL;
		return nupa_explain(-EADDRINUSE, why, why_bytes,
				    "cannot listen at %s port %u: %s: choose another port, or an "
				    "address of this machine",
				    where->address, where->port,
				    ucx->api.ucs_status_string(status));
	}
	if (ucx->api.ucp_listener_query(ucx->listener, &attr) == NUPA_UCS_OK)
		ucx->port = ntohs(attr.sockaddr.ss_family == AF_INET6
				      ? ((struct sockaddr_in6 *)(void *)&attr.sockaddr)->sin6_port
				      : ((struct sockaddr_in *)(void *)&attr.sockaddr)->sin_port);
	return 0;
}

static int take_addresses(struct ucx *ucx, const struct nupa_trunk_config *config, char *why,
			  size_t why_bytes)
{
	int rc = 0;

	ucx->addresses = calloc(ucx->machines, sizeof(ucx->addresses[0]));
	if (!ucx->addresses)
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	for (uint32_t i = 0; i < ucx->machines && !rc; i++)
		if (i != ucx->machine)
			rc =
			    parse_address(&config->machines[i], &ucx->addresses[i], why, why_bytes);
	return rc;
}

static void name_it(struct ucx *ucx)
{
	unsigned int major, minor, release;
	Dl_info info = { 0 };
	void *symbol;

	memcpy(&symbol, &ucx->api.ucp_get_version, sizeof(symbol));
	ucx->api.ucp_get_version(&major, &minor, &release);
	(void)dladdr(symbol, &info);
	snprintf(ucx->name, sizeof(ucx->name), "%u.%u.%u %s", major, minor, release,
		 info.dli_fname ? info.dli_fname : "");
}

int nupa_ucx_open(uint32_t machine, const struct nupa_trunk_config *config,
		  struct nupa_carrier **out, char *why, size_t why_bytes)
{
	struct ucx *ucx = calloc(1, sizeof(*ucx));
	int rc;

	if (!ucx)
		return nupa_explain(-ENOMEM, why, why_bytes, "out of memory");
	ucx->carrier.ops = &ops;
	ucx->machine = machine;
	ucx->machines = config->n_machines;
	ucx->returned_end = &ucx->returned;
	rc = nupa_ucx_load(&ucx->api, config->library, why, why_bytes);
	if (!rc) {
		name_it(ucx);
		rc = take_addresses(ucx, config, why, why_bytes);
	}
	if (!rc)
		rc = make_context(ucx, why, why_bytes);
	if (!rc)
		rc = check_libraries(why, why_bytes);
	if (!rc)
		rc = make_worker(ucx, why, why_bytes);
	if (!rc)
		rc = listen_at(ucx, &config->listen, why, why_bytes);
	if (rc) {
		ucx_free(&ucx->carrier);
		return rc;
	}
	*out = &ucx->carrier;
	return 0;
}
