/* SPDX-License-Identifier: BSD-3-Clause
 * NETLINK_RDMA: what the kernel's drivers/infiniband/core/nldev.c answers of its devices, answered
 * of the host's one device.
 *
 *   calls.c     the calls of libc on such sockets
 *   socket.c    the socket behind the program's descriptor
 *   request.c   requests checked, and who answers them
 *   device.c    GET, PORT_GET, SYS_GET, STAT_GET
 *   resource.c  RES_GET and the lists of resources
 *   message.c   messages and attributes, written and read
 *
 * Numbers and attributes: include/uapi/rdma/rdma_netlink.h of Linux. */
#ifndef NUPA_SHIM_NETLINK_NETLINK_H
#define NUPA_SHIM_NETLINK_NETLINK_H

#include "shim/netlink.h"
#include "shim/shim.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

/* As much as fits in a page with the kernel's own bookkeeping (NLMSG_GOODSIZE): programs have
 * buffers of a page or more. */
#define NUPA_NETLINK_MESSAGE_BYTES 3776u
#define NUPA_NETLINK_REQUEST_BYTES 4096u
/* The longest message: an error, with the request in it. */
#define NUPA_NETLINK_RECEIVE_BYTES (NUPA_NETLINK_REQUEST_BYTES + 64u)

/* --- message.c ------------------------------------------------------------------------- */

/* A message being written.  One that does not fit is cut where it was whole last. */
struct nupa_netlink_writer {
	_Alignas(uint64_t) uint8_t data[NUPA_NETLINK_MESSAGE_BYTES];
	uint32_t bytes;
	bool full; /* something did not fit */
};

void nupa_netlink_begin(struct nupa_netlink_writer *to, uint16_t type, uint16_t flags,
			uint32_t sequence, uint32_t port_id);
void nupa_netlink_end(struct nupa_netlink_writer *to);
void nupa_netlink_put(struct nupa_netlink_writer *to, uint16_t type, const void *data,
		      uint32_t bytes);
void nupa_netlink_put_u8(struct nupa_netlink_writer *to, uint16_t type, uint8_t value);
void nupa_netlink_put_u32(struct nupa_netlink_writer *to, uint16_t type, uint32_t value);
void nupa_netlink_put_u64(struct nupa_netlink_writer *to, uint16_t type, uint64_t value);
void nupa_netlink_put_text(struct nupa_netlink_writer *to, uint16_t type, const char *text);
/* A nest: its place, for the end. */
uint32_t nupa_netlink_nest(struct nupa_netlink_writer *to, uint16_t type);
void nupa_netlink_nest_end(struct nupa_netlink_writer *to, uint32_t nest);

/* A request and its attributes, checked. */
struct nupa_netlink_request {
	struct nlmsghdr head;
	bool given[RDMA_NLDEV_ATTR_MAX];
	uint32_t values[RDMA_NLDEV_ATTR_MAX]; /* of numbers */
};

/* *head* and nlmsg_len bytes are there.  0, or -EINVAL: a number is too short. */
int nupa_netlink_read(const uint8_t *message, struct nupa_netlink_request *request);

/* --- device.c, resource.c: answer() functions ------------------------------------------------ */

/* The message has been begun; 0 or a negative errno. */
typedef int nupa_netlink_answer(const struct nupa_shim_view *view,
				const struct nupa_netlink_request *request,
				struct nupa_netlink_writer *to);

nupa_netlink_answer nupa_netlink_device, nupa_netlink_port, nupa_netlink_system,
    nupa_netlink_counters, nupa_netlink_counter_status, nupa_netlink_counter_mode,
    nupa_netlink_summary;
/* DEV_INDEX and DEV_NAME. */
void nupa_netlink_put_device(struct nupa_netlink_writer *to);

/* A list of resources that a program is reading: what is asked, and how far it is. */
struct nupa_netlink_dump {
	uint32_t command, sequence, port_id;
	uint32_t port; /* 0: QPs without one as well */
	uint64_t at;
};
/* Whether the command lists resources. */
bool nupa_netlink_lists(uint32_t command);
/* The next message of the list, begun and ended: 1; 0 at its end, or a negative errno. */
int nupa_netlink_list(const struct nupa_shim_view *view, struct nupa_netlink_dump *dump,
		      struct nupa_netlink_writer *to);
/* One resource, by its number. */
nupa_netlink_answer nupa_netlink_resource;

/* --- request.c ------------------------------------------------------------------------------- */

/* Answers all messages of a datagram into the queue of the socket: 0, or -ENOBUFS. */
int nupa_netlink_handle(int fd, uint32_t port_id, const void *data, size_t bytes);
/* Whether a datagram says that a list goes on from there. */
bool nupa_netlink_is_rest(const void *data, size_t bytes);
/* Goes on with the list, as far as the queue has room. */
int nupa_netlink_go_on(int fd, const void *data, size_t bytes);

/* --- socket.c -------------------------------------------------------------------------------- */

/* A descriptor, or -1 with errno; type: SOCK_RAW or SOCK_DGRAM. */
int nupa_netlink_open(int type, int flags);
int nupa_netlink_type(int fd);
/* Gives it this one, or, if 0, one of our choice: 0, or a negative errno. */
int nupa_netlink_bind(int fd, uint32_t port_id);
/* Puts a message into its own queue: 0, or -ENOBUFS. */
int nupa_netlink_push(int fd, const void *data, size_t bytes);
/* Whether the queue takes more messages; there is always room for a rest. */
bool nupa_netlink_has_room(int fd);
/* The next message, as recvmsg(2) with these flags: its length, or -1 with errno. */
ssize_t nupa_netlink_receive(int fd, int flags, uint8_t data[NUPA_NETLINK_RECEIVE_BYTES]);

#endif
