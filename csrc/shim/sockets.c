/* SPDX-License-Identifier: BSD-3-Clause
 * The calls of libc with addresses of sockets.  Where no nupa_net0 is, they give the kernel the
 * aliases of hosts, and the program the addresses of hosts (hosts.c), so no packet for a host
 * leaves for a real network.  Any other address costs a comparison. */
#define _GNU_SOURCE
/* The symbols themselves are defined here, not what headers make of their names. */
#undef _FORTIFY_SOURCE
#include "shim/shim.h"

#include "base/hint.h"
#include "shim/call.h"
#include "shim/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t __recvfrom_chk(int fd, void *buffer, size_t bytes, size_t room, int flags,
		       struct sockaddr *addr, socklen_t *addr_bytes);

static int option_of(int fd, int name)
{
	int value = -1;
	socklen_t bytes = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &bytes) ? -1 : value;
}

static bool is_internet_socket(int fd)
{
	const int domain = option_of(fd, SO_DOMAIN);

	return domain == AF_INET || domain == AF_INET6;
}

/* Whether the kernel has a network in which the address lies on a link, as of the machine's own
 * Ethernet: its other addresses are no business of the fabric. */
static bool is_on_link(const struct sockaddr *addr, socklen_t bytes)
{
	const int fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage own = { 0 };
	socklen_t own_bytes = sizeof(own);
	bool is;

	if (fd < 0)
		return false;
	is = !syscall(SYS_connect, fd, addr, bytes) &&
	     !syscall(SYS_getsockname, fd, &own, &own_bytes) &&
	     nupa_shim_may_lead_to_a_host((struct sockaddr *)&own, own_bytes);
	close(fd);
	return is;
}

static const char *say(const struct sockaddr *addr, char text[INET6_ADDRSTRLEN])
{
	const void *at =
	    addr->sa_family == AF_INET6
		? (const void *)&((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr
		: &((const struct sockaddr_in *)(const void *)addr)->sin_addr;

	return inet_ntop(addr->sa_family, at, text, INET6_ADDRSTRLEN) ? text : "?";
}

enum way {
	AS_IT_IS, /* the kernel gets the address */
	ALIASED,  /* the kernel gets the alias */
	FAR,      /* the kernel gets the address of the machine at the other end of a wire */
	REFUSED,  /* errno says why */
};

/* The way of a destination to which a socket sends or connects. */
static enum way way_to(int fd, const struct sockaddr *addr, socklen_t bytes,
		       struct nupa_shim_target *to)
{
	char text[INET6_ADDRSTRLEN];

	if (!nupa_shim_target(addr, bytes, to) || !is_internet_socket(fd))
		return AS_IT_IS;
	if (to->host >= 0)
		return to->wired ? FAR : ALIASED;
	if (is_on_link(addr, bytes))
		return AS_IT_IS;
	nupa_hint(
	    "%s is no host of the fabric, whose addresses `nupa show` lists; no packet was sent",
	    say(addr, text));
	errno = EHOSTUNREACH;
	return REFUSED;
}

/* Binds a socket without an address to the alias of the program's host, which its peer then sees.
 * Returns false for a datagram socket that has a port and no address: the kernel would choose
 * 127.0.0.1 for it, where the peer's datagrams do not arrive. */
static bool bind_own(int fd, const struct nupa_shim_target *to)
{
	struct sockaddr_storage own = { 0 }, wildcard = { 0 };
	socklen_t bytes = sizeof(own);
	const int on = 1;
	in_port_t port;

	if (syscall(SYS_getsockname, fd, &own, &bytes))
		return true;
	/* sin_port and sin6_port have the same place. */
	port = ((struct sockaddr_in *)(void *)&own)->sin_port;
	wildcard.ss_family = own.ss_family;
	((struct sockaddr_in *)(void *)&wildcard)->sin_port = port;
	if (memcmp(&own, &wildcard, sizeof(own)) != 0)
		return true;
	if (port)
		return option_of(fd, SO_TYPE) != SOCK_DGRAM;
	nupa_shim_own_alias(to, &own);
	(void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	/* After a failure connect(2) chooses 127.0.0.1, which reaches the peer, too. */
	(void)syscall(SYS_bind, fd, &own, to->bytes);
	return true;
}

static bool is_connected(int fd)
{
	struct sockaddr_storage peer;
	socklen_t bytes = sizeof(peer);

	return !syscall(SYS_getpeername, fd, &peer, &bytes);
}

static bool is_heard(int fd, const struct nupa_shim_target *to)
{
	const struct nupa_shim_net *net = nupa_shim_net();
	const char *name = net->hosts[to->host].name;
	char who[128];

	if (option_of(fd, SO_TYPE) != SOCK_STREAM || is_connected(fd) ||
	    nupa_shim_listens(to, who, sizeof(who)))
		return true;
	if (net->machines && (uint32_t)to->host != net->self)
		nupa_hint("%s is a guest or another machine: TCP reaches it from `nupa run --net`, "
			  "once `nupa net up` has run there",
			  name);
	else
		nupa_hint("no program of `nupa run` on %s listens at TCP port %u%s%s%s; those of "
			  "`nupa run --net` and `nupa shell` are reached from there",
			  name, to->port, *who ? " (but " : "", who, *who ? " does)" : "");
	errno = ECONNREFUSED;
	return false;
}

NUPA_SHIM_WRAPPER int connect(int fd, const struct sockaddr *addr, socklen_t bytes)
{
	struct nupa_shim_target to;
	enum way way;
	CALL(connect);

	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_connect(fd, addr, bytes);
	if (__builtin_expect(!nupa_shim_may_lead_to_a_host(addr, bytes), 1))
		return next(fd, addr, bytes);
	way = way_to(fd, addr, bytes, &to);
	if (way == AS_IT_IS)
		return next(fd, addr, bytes);
	if (way == FAR)
		return next(fd, (struct sockaddr *)&to.alias, to.bytes);
	if (way == REFUSED || !is_heard(fd, &to))
		return -1;
	if (!bind_own(fd, &to)) {
		nupa_hint("a datagram socket that is bound to a port alone is connected to %s in "
			  "`nupa run --net` and `nupa shell` only",
			  nupa_shim_net()->hosts[to.host].name);
		errno = ENETUNREACH;
		return -1;
	}
	return next(fd, (struct sockaddr *)&to.alias, to.bytes);
}

NUPA_SHIM_WRAPPER int bind(int fd, const struct sockaddr *addr, socklen_t bytes)
{
	struct nupa_shim_target to;
	CALL(bind);

	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_bind_to(fd, addr, bytes);
	if (__builtin_expect(nupa_shim_may_lead_to_a_host(addr, bytes), 0) &&
	    nupa_shim_target(addr, bytes, &to) && is_internet_socket(fd) && to.host >= 0 &&
	    (uint32_t)to.host == nupa_shim_net()->self)
		return next(fd, (struct sockaddr *)&to.alias, to.bytes);
	return next(fd, addr, bytes);
}

/* --- datagrams ----------------------------------------------------------------------- */

union control {
	struct cmsghdr header;
	char text[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

/* The source of a datagram: the alias of the program's host (IP_PKTINFO of ip(7), IPV6_PKTINFO of
 * ipv6(7)). */
static void set_source(struct msghdr *message, union control *control,
		       const struct nupa_shim_target *to)
{
	struct cmsghdr *header = &control->header;
	struct sockaddr_storage own;

	memset(control, 0, sizeof(*control));
	nupa_shim_own_alias(to, &own);
	if (own.ss_family == AF_INET) {
		struct in_pktinfo *info = (struct in_pktinfo *)(void *)CMSG_DATA(header);

		info->ipi_spec_dst = ((struct sockaddr_in *)(void *)&own)->sin_addr;
		*header = (struct cmsghdr){ CMSG_LEN(sizeof(*info)), IPPROTO_IP, IP_PKTINFO };
		message->msg_controllen = CMSG_SPACE(sizeof(*info));
	} else {
		struct in6_pktinfo *info = (struct in6_pktinfo *)(void *)CMSG_DATA(header);

		info->ipi6_addr = ((struct sockaddr_in6 *)(void *)&own)->sin6_addr;
		*header = (struct cmsghdr){ CMSG_LEN(sizeof(*info)), IPPROTO_IPV6, IPV6_PKTINFO };
		message->msg_controllen = CMSG_SPACE(sizeof(*info));
	}
	message->msg_control = control;
}

NUPA_SHIM_WRAPPER ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	struct nupa_shim_target to;
	struct msghdr aliased;
	union control control;
	enum way way;
	CALL(sendmsg);

	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_send(fd, message->msg_iov, message->msg_iovlen,
					 message->msg_name, message->msg_namelen);
	if (__builtin_expect(!nupa_shim_may_lead_to_a_host(message->msg_name, message->msg_namelen),
			     1))
		return next(fd, message, flags);
	way = way_to(fd, message->msg_name, message->msg_namelen, &to);
	if (way == REFUSED || way == AS_IT_IS)
		return way == REFUSED ? -1 : next(fd, message, flags);
	aliased = *message;
	aliased.msg_name = &to.alias;
	aliased.msg_namelen = to.bytes;
	if (way == ALIASED && !aliased.msg_controllen && option_of(fd, SO_TYPE) == SOCK_DGRAM)
		set_source(&aliased, &control, &to);
	return next(fd, &aliased, flags);
}

NUPA_SHIM_WRAPPER ssize_t sendto(int fd, const void *data, size_t bytes, int flags,
				 const struct sockaddr *addr, socklen_t addr_bytes)
{
	CALL(sendto);

	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_send(fd, &(struct iovec){ (void *)(uintptr_t)data, bytes }, 1,
					 addr, addr_bytes);
	if (__builtin_expect(!nupa_shim_may_lead_to_a_host(addr, addr_bytes), 1))
		return next(fd, data, bytes, flags, addr, addr_bytes);
	return sendmsg(fd,
		       &(struct msghdr){
			   .msg_name = (void *)(uintptr_t)addr,
			   .msg_namelen = addr_bytes,
			   .msg_iov = &(struct iovec){ (void *)(uintptr_t)data, bytes },
			   .msg_iovlen = 1,
		       },
		       flags);
}

NUPA_SHIM_WRAPPER int sendmmsg(int fd, struct mmsghdr *messages, unsigned int n, int flags)
{
	bool may = nupa_netlink_is_ours(fd);
	unsigned int sent;
	CALL(sendmmsg);

	for (unsigned int i = 0; i < n; i++)
		may |= nupa_shim_may_lead_to_a_host(messages[i].msg_hdr.msg_name,
						    messages[i].msg_hdr.msg_namelen);
	if (!may)
		return next(fd, messages, n, flags);
	for (sent = 0; sent < n; sent++) {
		const ssize_t length = sendmsg(fd, &messages[sent].msg_hdr, flags);

		if (length < 0)
			break;
		messages[sent].msg_len = (unsigned int)length;
	}
	return sent > 0 || n == 0 ? (int)sent : -1;
}

/* --- calls that return an address ---------------------------------------------------- */

/* The kernel writes as much as there is room for, and says how much it would write. *netlink*: what
 * the call returns for a socket of NETLINK_RDMA. */
#define WRAP_NAMED(type, name, netlink, parameters, ...)                                           \
	NUPA_SHIM_WRAPPER type name parameters                                                     \
	{                                                                                          \
		const socklen_t room = addr && addr_bytes ? *addr_bytes : 0;                       \
		type result;                                                                       \
		CALL(name);                                                                        \
                                                                                                   \
		if (nupa_netlink_is_ours(fd))                                                      \
			return netlink;                                                            \
		result = next(__VA_ARGS__);                                                        \
		if (room && result >= 0)                                                           \
			nupa_shim_unalias(addr, *addr_bytes < room ? *addr_bytes : room);          \
		return result;                                                                     \
	}

WRAP_NAMED(int, getsockname, (nupa_netlink_name(nupa_netlink_port_id(fd), addr, addr_bytes), 0),
	   (int fd, struct sockaddr *addr, socklen_t *addr_bytes), fd, addr, addr_bytes)
WRAP_NAMED(int, getpeername, (nupa_netlink_name(0, addr, addr_bytes), 0),
	   (int fd, struct sockaddr *addr, socklen_t *addr_bytes), fd, addr, addr_bytes)
WRAP_NAMED(int, accept, next(fd, addr, addr_bytes),
	   (int fd, struct sockaddr *addr, socklen_t *addr_bytes), fd, addr, addr_bytes)
WRAP_NAMED(int, accept4, next(fd, addr, addr_bytes, flags),
	   (int fd, struct sockaddr *addr, socklen_t *addr_bytes, int flags), fd, addr, addr_bytes,
	   flags)
WRAP_NAMED(ssize_t, recvfrom, nupa_netlink_receive_from(fd, data, bytes, flags, addr, addr_bytes),
	   (int fd, void *data, size_t bytes, int flags, struct sockaddr *addr,
	    socklen_t *addr_bytes),
	   fd, data, bytes, flags, addr, addr_bytes)
WRAP_NAMED(ssize_t, __recvfrom_chk,
	   bytes > data_room ? next(fd, data, bytes, data_room, flags, addr, addr_bytes)
			     : nupa_netlink_receive_from(fd, data, bytes, flags, addr, addr_bytes),
	   (int fd, void *data, size_t bytes, size_t data_room, int flags, struct sockaddr *addr,
	    socklen_t *addr_bytes),
	   fd, data, bytes, data_room, flags, addr, addr_bytes)

NUPA_SHIM_WRAPPER ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t length;
	CALL(recvmsg);

	if (nupa_netlink_is_ours(fd))
		return nupa_netlink_receive_message(fd, message, flags);
	length = next(fd, message, flags);
	if (length >= 0 && message->msg_name)
		nupa_shim_unalias(message->msg_name, message->msg_namelen);
	return length;
}

NUPA_SHIM_WRAPPER int recvmmsg(int fd, struct mmsghdr *messages, unsigned int n, int flags,
			       struct timespec *timeout)
{
	ssize_t length;
	int got;
	CALL(recvmmsg);

	if (n && nupa_netlink_is_ours(fd)) { /* one at a time */
		length = nupa_netlink_receive_message(fd, &messages[0].msg_hdr, flags);
		messages[0].msg_len = length < 0 ? 0 : (unsigned int)length;
		return length < 0 ? -1 : 1;
	}
	got = next(fd, messages, n, flags, timeout);
	for (int i = 0; i < got; i++)
		if (messages[i].msg_hdr.msg_name)
			nupa_shim_unalias(messages[i].msg_hdr.msg_name,
					  messages[i].msg_hdr.msg_namelen);
	return got;
}
