/* SPDX-License-Identifier: BSD-3-Clause
 * Requests, as rdma_nl_rcv() of the kernel takes them: each message of a datagram is checked,
 * answered, and acknowledged where it asks for that or has failed.
 *
 * A long list does not fit into the socket's queue.  Behind the messages that do lies a *rest*:
 * what was asked, and how far the list is.  The receiver that finds it has the list go on.  So a
 * list has no state but in the queue, whoever reads it. */
#define _GNU_SOURCE
#include "shim/netlink/netlink.h"

#include "base/hint.h"
#include "segment/gid.h"

#include <errno.h>
#include <string.h>

#define REST_MAGIC UINT64_C(0x7473655264726c4e)
#define DEVICE_INDEX 0u
#define PORT_NUMBER 1u

typedef struct nupa_netlink_request request_t;

/* A message of a control type, which programs ignore. */
struct rest {
	struct nlmsghdr head;
	uint64_t magic;
	struct nupa_netlink_dump dump;
};

struct asker {
	int fd;
	uint32_t port_id;
	struct nupa_shim_view view;
};

static int open_view(struct nupa_shim_view *view)
{
	const char *host, *path;
	char why[512];
	int found;

	if (!nupa_shim_place(&path, &host))
		return -ENODEV;
	if (nupa_fabric_open(path, &view->fabric, why, sizeof(why))) {
		nupa_hint("%s", why);
		return -ENODEV;
	}
	found = nupa_host_of_name(view->fabric, host);
	if (found < 0) {
		nupa_hint("NUPA_HOST=%s: fabric %s has no such host; see `nupa show`", host,
			  nupa_fabric_name(view->fabric));
		nupa_fabric_put(view->fabric);
		return -ENODEV;
	}
	view->host = (uint32_t)found;
	return 0;
}

static int push_done(int fd, const struct nupa_netlink_dump *dump, int error)
{
	struct {
		struct nlmsghdr head;
		int error;
	} done = {
		.head = { .nlmsg_len = sizeof(done),
			  .nlmsg_type = NLMSG_DONE,
			  .nlmsg_flags = NLM_F_MULTI,
			  .nlmsg_seq = dump->sequence,
			  .nlmsg_pid = dump->port_id },
		.error = error,
	};

	return nupa_netlink_push(fd, &done, sizeof(done));
}

/* --- lists ------------------------------------------------------------------------------- */

static int push_list(int fd, const struct nupa_shim_view *view, struct nupa_netlink_dump *dump)
{
	struct rest rest = {
		.head = { .nlmsg_len = sizeof(rest),
			  .nlmsg_type = NLMSG_NOOP,
			  .nlmsg_flags = NLM_F_MULTI,
			  .nlmsg_seq = dump->sequence,
			  .nlmsg_pid = dump->port_id },
		.magic = REST_MAGIC,
	};
	struct nupa_netlink_writer message;

	while (nupa_netlink_has_room(fd)) {
		const int more = nupa_netlink_list(view, dump, &message);
		int error;

		if (more <= 0)
			return push_done(fd, dump, more);
		error = nupa_netlink_push(fd, message.data, message.bytes);
		if (error)
			return error;
	}
	rest.dump = *dump;
	return nupa_netlink_push(fd, &rest, sizeof(rest));
}

bool nupa_netlink_is_rest(const void *data, size_t bytes)
{
	struct rest rest;

	if (bytes != sizeof(rest))
		return false;
	memcpy(&rest, data, sizeof(rest));
	return rest.head.nlmsg_type == NLMSG_NOOP && rest.magic == REST_MAGIC;
}

int nupa_netlink_go_on(int fd, const void *data, size_t bytes)
{
	struct nupa_shim_view view;
	struct rest rest;
	int error;

	if (!nupa_netlink_is_rest(data, bytes))
		return -EINVAL;
	memcpy(&rest, data, sizeof(rest));
	error = open_view(&view);
	if (error)
		return push_done(fd, &rest.dump, error);
	error = push_list(fd, &view, &rest.dump);
	nupa_fabric_put(view.fabric);
	return error;
}

/* --- requests ---------------------------------------------------------------------------- */

/* The attribute that a command takes besides DEV_INDEX. */
enum need { NEEDS_NOTHING, NEEDS_DEVICE, NEEDS_PORT };

static const struct command {
	nupa_netlink_answer *answer; /* NULL: there is none but the list */
	enum need need;              /* of answer() */
	bool dumps;                  /* it has a list */
	enum need list_need;
	int error; /* instead of all */
} commands[RDMA_NLDEV_NUM_OPS] = {
	[RDMA_NLDEV_CMD_GET] = { nupa_netlink_device, NEEDS_DEVICE, true, NEEDS_NOTHING, 0 },
	[RDMA_NLDEV_CMD_SET] = { .error = -EOPNOTSUPP },
	[RDMA_NLDEV_CMD_NEWLINK] = { .error = -EOPNOTSUPP },
	[RDMA_NLDEV_CMD_DELLINK] = { .error = -EOPNOTSUPP },
	[RDMA_NLDEV_CMD_PORT_GET] = { nupa_netlink_port, NEEDS_PORT, true, NEEDS_DEVICE, 0 },
	[RDMA_NLDEV_CMD_SYS_GET] = { nupa_netlink_system, NEEDS_NOTHING, false, 0, 0 },
	[RDMA_NLDEV_CMD_SYS_SET] = { .error = -EOPNOTSUPP },
	[RDMA_NLDEV_CMD_RES_GET] = { nupa_netlink_summary, NEEDS_DEVICE, true, NEEDS_NOTHING, 0 },
	[RDMA_NLDEV_CMD_RES_QP_GET] = { nupa_netlink_resource, NEEDS_DEVICE, true, NEEDS_DEVICE,
					0 },
	[RDMA_NLDEV_CMD_RES_CM_ID_GET] = { nupa_netlink_resource, NEEDS_DEVICE, true, NEEDS_DEVICE,
					   0 },
	[RDMA_NLDEV_CMD_RES_CQ_GET] = { nupa_netlink_resource, NEEDS_DEVICE, true, NEEDS_DEVICE,
					0 },
	[RDMA_NLDEV_CMD_RES_MR_GET] = { nupa_netlink_resource, NEEDS_DEVICE, true, NEEDS_DEVICE,
					0 },
	[RDMA_NLDEV_CMD_RES_PD_GET] = { nupa_netlink_resource, NEEDS_DEVICE, true, NEEDS_DEVICE,
					0 },
	/* No character device takes the kernel's commands: uverbs0 of sysfs is /dev/full. */
	[RDMA_NLDEV_CMD_GET_CHARDEV] = { .error = -ENOENT },
	[RDMA_NLDEV_CMD_STAT_SET] = { .error = -EOPNOTSUPP },
	[RDMA_NLDEV_CMD_STAT_GET] = { nupa_netlink_counters, NEEDS_PORT, true, NEEDS_DEVICE, 0 },
	[RDMA_NLDEV_CMD_STAT_DEL] = { .error = -EOPNOTSUPP },
	[RDMA_NLDEV_CMD_RES_CTX_GET] = { nupa_netlink_resource, NEEDS_DEVICE, true, NEEDS_DEVICE,
					 0 },
	[RDMA_NLDEV_CMD_RES_SRQ_GET] = { nupa_netlink_resource, NEEDS_DEVICE, true, NEEDS_DEVICE,
					 0 },
	[RDMA_NLDEV_CMD_STAT_GET_STATUS] = { nupa_netlink_counter_status, NEEDS_PORT, false, 0, 0 },
};

static int check(const request_t *request, enum need need)
{
	const bool *given = request->given;

	if (need != NEEDS_NOTHING && (!given[RDMA_NLDEV_ATTR_DEV_INDEX] ||
				      request->values[RDMA_NLDEV_ATTR_DEV_INDEX] != DEVICE_INDEX))
		return -EINVAL;
	if (need == NEEDS_PORT && !given[RDMA_NLDEV_ATTR_PORT_INDEX])
		return -EINVAL;
	return need != NEEDS_NOTHING && given[RDMA_NLDEV_ATTR_PORT_INDEX] &&
		       request->values[RDMA_NLDEV_ATTR_PORT_INDEX] != PORT_NUMBER
		   ? -EINVAL
		   : 0;
}

static int push_answer(const struct asker *asker, const request_t *request,
		       nupa_netlink_answer *answer, uint16_t flags)
{
	struct nupa_netlink_writer message;
	int error;

	nupa_netlink_begin(&message, request->head.nlmsg_type, flags, request->head.nlmsg_seq,
			   asker->port_id);
	error = answer(&asker->view, request, &message);
	if (error || message.full)
		return error ? error : -EMSGSIZE;
	nupa_netlink_end(&message);
	return nupa_netlink_push(asker->fd, message.data, message.bytes);
}

/* A list ends with NLMSG_DONE, which says how it ended. */
static int dump(const struct asker *asker, const request_t *request, uint32_t op)
{
	const struct command *command = &commands[op];
	struct nupa_netlink_dump dump = {
		.command = op,
		.sequence = request->head.nlmsg_seq,
		.port_id = asker->port_id,
		.port = request->values[RDMA_NLDEV_ATTR_PORT_INDEX],
	};
	const uint32_t resource = request->values[RDMA_NLDEV_ATTR_STAT_RES];
	int error = check(request, command->list_need);

	if (!error && op == RDMA_NLDEV_CMD_STAT_GET && resource != RDMA_NLDEV_ATTR_RES_QP &&
	    resource != RDMA_NLDEV_ATTR_RES_MR)
		error = -EINVAL;
	if (error)
		return push_done(asker->fd, &dump, error);
	if (op == RDMA_NLDEV_CMD_STAT_GET && resource == RDMA_NLDEV_ATTR_RES_QP)
		return push_done(asker->fd, &dump, 0); /* no QP has counters */
	if (nupa_netlink_lists(op))
		return push_list(asker->fd, &asker->view, &dump);
	error = push_answer(asker, request, command->answer, NLM_F_MULTI);
	return error == -ENOBUFS ? error : push_done(asker->fd, &dump, error);
}

/* 0: answered; -EINTR: a list was begun, which is its own acknowledgement. */
static int answer(const struct asker *asker, const request_t *request)
{
	const uint32_t op = RDMA_NL_GET_OP(request->head.nlmsg_type);
	const struct command *command;
	int error;

	if (RDMA_NL_GET_CLIENT(request->head.nlmsg_type) != RDMA_NL_NLDEV ||
	    op >= RDMA_NLDEV_NUM_OPS)
		return -EINVAL;
	command = &commands[op];
	if (command->error)
		return command->error;
	if (request->head.nlmsg_flags & NLM_F_DUMP) {
		if (!command->dumps)
			return -EINVAL;
		error = dump(asker, request, op);
		return error ? error : -EINTR;
	}
	if (!command->answer)
		return -EINVAL;
	error = check(request, command->need);
	if (error)
		return error;
	if (op == RDMA_NLDEV_CMD_STAT_GET && request->given[RDMA_NLDEV_ATTR_STAT_RES]) {
		if (request->values[RDMA_NLDEV_ATTR_STAT_RES] != RDMA_NLDEV_ATTR_RES_QP)
			return -EINVAL;
		return push_answer(asker, request, nupa_netlink_counter_mode, 0);
	}
	return push_answer(asker, request, command->answer, 0);
}

/* NLMSG_ERROR: 0 is the acknowledgement.  An error has the request with it. */
static int push_error(const struct asker *asker, const uint8_t *message,
		      const struct nlmsghdr *head, int error)
{
	const uint32_t bytes = error ? head->nlmsg_len : NLMSG_HDRLEN;
	uint8_t data[NUPA_NETLINK_RECEIVE_BYTES];
	const struct nlmsghdr reply = {
		.nlmsg_len = NLMSG_HDRLEN + (uint32_t)sizeof(error) + bytes,
		.nlmsg_type = NLMSG_ERROR,
		.nlmsg_flags = error ? 0 : NLM_F_CAPPED,
		.nlmsg_seq = head->nlmsg_seq,
		.nlmsg_pid = asker->port_id,
	};

	memcpy(data, &reply, sizeof(reply));
	memcpy(data + NLMSG_HDRLEN, &error, sizeof(error));
	memcpy(data + NLMSG_HDRLEN + sizeof(error), message, bytes);
	return nupa_netlink_push(asker->fd, data, reply.nlmsg_len);
}

static int handle_message(const struct asker *asker, const uint8_t *message, int opened)
{
	request_t request;
	int error = nupa_netlink_read(message, &request);

	if (request.head.nlmsg_flags & NLM_F_REQUEST && request.head.nlmsg_type >= NLMSG_MIN_TYPE) {
		if (!error)
			error = opened ? opened : answer(asker, &request);
	} else {
		error = 0;
	}
	if (error == -EINTR || (!error && !(request.head.nlmsg_flags & NLM_F_ACK)))
		return 0;
	return error == -ENOBUFS ? error : push_error(asker, message, &request.head, error);
}

int nupa_netlink_handle(int fd, uint32_t port_id, const void *data, size_t bytes)
{
	struct asker asker = { .fd = fd, .port_id = port_id };
	const int opened = open_view(&asker.view);
	const uint8_t *at = data;
	int error = 0;

	while (!error && bytes >= NLMSG_HDRLEN) {
		uint32_t length;

		memcpy(&length, at, sizeof(length)); /* nlmsg_len comes first */
		if (length < NLMSG_HDRLEN || length > bytes)
			break; /* as the kernel: the rest is ignored */
		error = handle_message(&asker, at, opened);
		length = NLMSG_ALIGN(length);
		if (length >= bytes)
			break;
		at += length;
		bytes -= length;
	}
	if (!opened)
		nupa_fabric_put(asker.view.fabric);
	return error;
}
