/* SPDX-License-Identifier: BSD-3-Clause
 * Messages and attributes, as linux/netlink.h lays them out: each begins at a multiple of 4 bytes.
 */
#define _GNU_SOURCE
#include "shim/netlink/netlink.h"

#include <errno.h>
#include <string.h>

/* As NLA_HDRLEN, NLA_TYPE_MASK and NLA_ALIGN, which are signed. */
#define HEAD_BYTES ((uint32_t)sizeof(struct nlattr))
#define TYPE_MASK 0x3fffu

static uint32_t aligned(uint32_t bytes)
{
	return (bytes + 3) & ~UINT32_C(3);
}

void nupa_netlink_begin(struct nupa_netlink_writer *to, uint16_t type, uint16_t flags,
			uint32_t sequence, uint32_t port_id)
{
	const struct nlmsghdr head = {
		.nlmsg_type = type,
		.nlmsg_flags = flags,
		.nlmsg_seq = sequence,
		.nlmsg_pid = port_id,
	};

	memcpy(to->data, &head, sizeof(head));
	to->bytes = NLMSG_HDRLEN;
	to->full = false;
}

void nupa_netlink_end(struct nupa_netlink_writer *to)
{
	memcpy(to->data, &to->bytes, sizeof(to->bytes)); /* nlmsg_len comes first */
}

void nupa_netlink_put(struct nupa_netlink_writer *to, uint16_t type, const void *data,
		      uint32_t bytes)
{
	const uint32_t room = (uint32_t)sizeof(to->data) - to->bytes;
	const struct nlattr head = { (uint16_t)(HEAD_BYTES + bytes), type };

	if (to->full || bytes > room || HEAD_BYTES + aligned(bytes) > room) {
		to->full = true;
		return;
	}
	memset(to->data + to->bytes, 0, HEAD_BYTES + aligned(bytes));
	memcpy(to->data + to->bytes, &head, sizeof(head));
	if (bytes)
		memcpy(to->data + to->bytes + HEAD_BYTES, data, bytes);
	to->bytes += HEAD_BYTES + aligned(bytes);
}

void nupa_netlink_put_u8(struct nupa_netlink_writer *to, uint16_t type, uint8_t value)
{
	nupa_netlink_put(to, type, &value, sizeof(value));
}

void nupa_netlink_put_u32(struct nupa_netlink_writer *to, uint16_t type, uint32_t value)
{
	nupa_netlink_put(to, type, &value, sizeof(value));
}

void nupa_netlink_put_u64(struct nupa_netlink_writer *to, uint16_t type, uint64_t value)
{
	nupa_netlink_put(to, type, &value, sizeof(value));
}

void nupa_netlink_put_text(struct nupa_netlink_writer *to, uint16_t type, const char *text)
{
	nupa_netlink_put(to, type, text, (uint32_t)strlen(text) + 1);
}

uint32_t nupa_netlink_nest(struct nupa_netlink_writer *to, uint16_t type)
{
	const uint32_t nest = to->bytes;

	nupa_netlink_put(to, type, NULL, 0); /* without NLA_F_NESTED, as nldev.c has it */
	return nest;
}

void nupa_netlink_nest_end(struct nupa_netlink_writer *to, uint32_t nest)
{
	const uint16_t bytes = (uint16_t)(to->bytes - nest);

	if (!to->full)
		memcpy(to->data + nest, &bytes, sizeof(bytes)); /* nla_len comes first */
}

/* --- reading ----------------------------------------------------------------------------- */

/* Those that requests name. */
static bool is_number(uint32_t type)
{
	switch (type) {
	case RDMA_NLDEV_ATTR_DEV_INDEX:
	case RDMA_NLDEV_ATTR_PORT_INDEX:
	case RDMA_NLDEV_ATTR_RES_LQPN:
	case RDMA_NLDEV_ATTR_RES_PDN:
	case RDMA_NLDEV_ATTR_RES_CQN:
	case RDMA_NLDEV_ATTR_RES_MRN:
	case RDMA_NLDEV_ATTR_RES_CM_IDN:
	case RDMA_NLDEV_ATTR_RES_CTXN:
	case RDMA_NLDEV_ATTR_RES_SRQN:
	case RDMA_NLDEV_ATTR_STAT_RES:
	case RDMA_NLDEV_ATTR_STAT_COUNTER_ID:
		return true;
	default:
		return false;
	}
}

int nupa_netlink_read(const uint8_t *message, struct nupa_netlink_request *request)
{
	uint32_t at = NLMSG_HDRLEN, end;
	struct nlattr head;

	memset(request, 0, sizeof(*request));
	memcpy(&request->head, message, sizeof(request->head));
	end = request->head.nlmsg_len;
	/* The rest at the end is ignored, as nla_parse of the kernel does. */
	for (; at < end && end - at >= HEAD_BYTES; at += aligned(head.nla_len)) {
		uint32_t type, bytes;

		memcpy(&head, message + at, sizeof(head));
		if (head.nla_len < HEAD_BYTES || head.nla_len > end - at)
			return 0;
		type = head.nla_type & TYPE_MASK;
		bytes = head.nla_len - HEAD_BYTES;
		if (type >= RDMA_NLDEV_ATTR_MAX)
			continue;
		if (is_number(type) && bytes < sizeof(request->values[type]))
			return -EINVAL;
		if (is_number(type))
			memcpy(&request->values[type], message + at + HEAD_BYTES,
			       sizeof(request->values[type]));
		request->given[type] = true;
	}
	return 0;
}
