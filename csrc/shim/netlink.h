/* SPDX-License-Identifier: BSD-3-Clause
 * Sockets of NETLINK_RDMA, for the calls that csrc/shim/sockets.c wraps for other sockets, too:
 * each returns as the call does, with errno. */
#ifndef NUPA_SHIM_NETLINK_H
#define NUPA_SHIM_NETLINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Keeps errno.  Where this program never opened one it only looks at a word. */
bool nupa_netlink_is_ours(int fd);
int nupa_netlink_bind_to(int fd, const struct sockaddr *to, socklen_t bytes);
int nupa_netlink_connect(int fd, const struct sockaddr *to, socklen_t bytes);
/* Its port id; 0: it has none yet. */
uint32_t nupa_netlink_port_id(int fd);
/* Writes the address of a port id, 0 the kernel's, as getsockname(2) does. */
void nupa_netlink_name(uint32_t port_id, struct sockaddr *to, socklen_t *bytes);
ssize_t nupa_netlink_send(int fd, const struct iovec *from, size_t n, const struct sockaddr *to,
			  socklen_t to_bytes);
ssize_t nupa_netlink_receive_from(int fd, void *to, size_t bytes, int flags, struct sockaddr *from,
				  socklen_t *from_bytes);
ssize_t nupa_netlink_receive_message(int fd, struct msghdr *message, int flags);

#endif
