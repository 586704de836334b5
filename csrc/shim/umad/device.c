/* SPDX-License-Identifier: BSD-3-Clause
 * Descriptors of umad0 and issm0, and the agents that programs register. */
#define _GNU_SOURCE
#include "shim/umad/umad.h"

#include "base/atomics.h"
#include "segment/gid.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UMAD "/dev/infiniband/umad0"
#define ISSM "/dev/infiniband/issm0"
#define QUEUE_BYTES (1 << 20) /* or what the system allows */
#define WHY_BYTES 512u

struct nupa_umad nupa_umad;
/* Held while the engine is asked, which itself reads files. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
/* Whether this program, or the one that it was forked from, ever opened one. */
static uint32_t any;

void nupa_umad_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void nupa_umad_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

struct nupa_umad_port *nupa_umad_port_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISSOCK(st.st_mode))
		return NULL;
	for (uint32_t i = 0; i < NUPA_UMAD_PORTS; i++)
		if (nupa_umad.ports[i].used && nupa_umad.ports[i].inode == st.st_ino)
			return &nupa_umad.ports[i];
	return NULL;
}

bool nupa_umad_is_ours(int fd)
{
	const int saved = errno;
	bool ours;

	if (__builtin_expect(!nupa_load_relaxed(&any), 1))
		return false;
	nupa_umad_lock();
	ours = nupa_umad_port_of(fd);
	nupa_umad_unlock();
	errno = saved;
	return ours;
}

/* The program's fabric and host; false: it has none. */
static bool open_subnet(void)
{
	const char *path, *name;
	char why[WHY_BYTES];
	struct nupa_fabric *fabric;
	int host;

	if (nupa_umad.subnet.fabric)
		return true;
	if (!nupa_shim_place(&path, &name) || nupa_fabric_open(path, &fabric, why, sizeof(why)))
		return false;
	host = nupa_host_of_name(fabric, name);
	if (host < 0) {
		nupa_fabric_put(fabric);
		return false;
	}
	nupa_umad.host = (uint32_t)host;
	nupa_umad.subnet = (struct nupa_subnet){ .fabric = fabric, .is_sm = nupa_mailbox_is_sm };
	return true;
}

static bool has_subnet_management(void)
{
	return nupa_umad.subnet.fabric->hosts[nupa_umad.host].link_layer == NUPA_LINK_INFINIBAND;
}

static int open_port(int flags)
{
	const int type = SOCK_SEQPACKET | (flags & O_NONBLOCK ? SOCK_NONBLOCK : 0) |
			 (flags & O_CLOEXEC ? SOCK_CLOEXEC : 0);
	const int bytes = QUEUE_BYTES;
	struct nupa_umad_port *port = NULL;
	struct stat st;
	int pair[2], rc = 0;

	for (uint32_t i = 0; !port && i < NUPA_UMAD_PORTS; i++)
		if (!nupa_umad.ports[i].used)
			port = &nupa_umad.ports[i];
	if (!port)
		return -EMFILE;
	*port = (struct nupa_umad_port){ 0 };
	port->mailbox = nupa_mailbox_open(nupa_umad.subnet.fabric, nupa_umad.host,
					  port->mailbox_name, sizeof(port->mailbox_name));
	if (port->mailbox < 0)
		return port->mailbox;
	if (socketpair(AF_UNIX, type, 0, pair)) {
		rc = -errno;
	} else {
		(void)fcntl(pair[1], F_SETFD, FD_CLOEXEC);
		(void)syscall(SYS_setsockopt, pair[1], SOL_SOCKET, SO_SNDBUF, &bytes,
			      sizeof(bytes));
		(void)fstat(pair[0], &st);
		port->inode = st.st_ino;
		port->ours = pair[1];
		port->used = true;
		nupa_store_release(&any, 1);
		rc = nupa_umad_serve();
		if (rc) {
			nupa_umad_close(port);
			close(pair[0]);
			return rc;
		}
		nupa_umad_wake();
		return pair[0];
	}
	nupa_mailbox_close(nupa_umad.subnet.fabric, port->mailbox, port->mailbox_name);
	return rc;
}

void nupa_umad_close(struct nupa_umad_port *port)
{
	for (struct nupa_umad_pending *next; port->pending; port->pending = next) {
		next = port->pending->next;
		free(port->pending);
	}
	close(port->ours);
	nupa_mailbox_close(nupa_umad.subnet.fabric, port->mailbox, port->mailbox_name);
	port->used = false;
}

int nupa_umad_open(const char *path, int flags)
{
	const bool umad = !strcmp(path, UMAD), issm = !strcmp(path, ISSM);
	int fd = NUPA_UMAD_OTHER;

	if (!umad && !issm)
		return NUPA_UMAD_OTHER;
	nupa_umad_lock();
	/* Else it is the machine's, if it has one. */
	if (open_subnet() && (umad || has_subnet_management()))
		fd = umad ? open_port(flags)
			  : nupa_mailbox_open_sm(nupa_umad.subnet.fabric, nupa_umad.host, flags);
	nupa_umad_unlock();
	if (fd >= 0 || fd == NUPA_UMAD_OTHER)
		return fd;
	errno = -fd;
	return -1;
}

/* Two agents of a process never take the same requests. */
static bool is_taken(const struct nupa_umad_agent *wanted)
{
	for (uint32_t p = 0; p < NUPA_UMAD_PORTS; p++)
		for (uint32_t i = 0; i < NUPA_UMAD_AGENTS; i++) {
			const struct nupa_umad_agent *agent = &nupa_umad.ports[p].agents[i];

			if (nupa_umad.ports[p].used && agent->used && wanted->class &&
			    agent->class == wanted->class && agent->version == wanted->version &&
			    agent->oui == wanted->oui &&
			    ((agent->methods[0] & wanted->methods[0]) ||
			     (agent->methods[1] & wanted->methods[1])))
				return true;
		}
	return false;
}

/* Its number, or a negative errno. */
static int add_agent(struct nupa_umad_port *port, struct nupa_umad_agent *agent)
{
	if (agent->qpn > 1 || is_taken(agent))
		return -EINVAL;
	if (!agent->qpn && !has_subnet_management())
		return -EPROTONOSUPPORT;
	for (uint32_t i = 0; i < NUPA_UMAD_AGENTS; i++)
		if (!port->agents[i].used) {
			agent->used = true;
			/* Unlike any other of the host's processes. */
			agent->tid_high =
			    (uint32_t)getpid() << 10 | (uint32_t)(port - nupa_umad.ports) << 5 | i;
			port->agents[i] = *agent;
			return (int)i;
		}
	return -ENOMEM;
}

static int add_first(struct nupa_umad_port *port, struct ib_user_mad_reg_req *wanted)
{
	struct nupa_umad_agent agent = {
		.qpn = wanted->qpn,
		.class = wanted->mgmt_class,
		.version = wanted->mgmt_class_version,
		.oui =
		    (uint32_t)wanted->oui[0] << 16 | (uint32_t)wanted->oui[1] << 8 | wanted->oui[2],
		.rmpp = wanted->rmpp_version,
	};
	int id;

	memcpy(agent.methods, wanted->method_mask, sizeof(agent.methods));
	id = add_agent(port, &agent);
	wanted->id = (uint32_t)id;
	return id < 0 ? id : 0;
}

static int add_second(struct nupa_umad_port *port, struct ib_user_mad_reg_req2 *wanted)
{
	struct nupa_umad_agent agent = {
		.qpn = (uint8_t)wanted->qpn,
		.class = wanted->mgmt_class,
		.version = wanted->mgmt_class_version,
		.oui = wanted->oui,
		.rmpp = wanted->rmpp_version && !(wanted->flags & IB_USER_MAD_USER_RMPP),
	};
	int id;

	if (wanted->qpn > 1 || wanted->oui & 0xff000000)
		return -EINVAL;
	if (wanted->flags & ~(uint32_t)IB_USER_MAD_REG_FLAGS_CAP) {
		wanted->flags = IB_USER_MAD_REG_FLAGS_CAP;
		return -EINVAL;
	}
	agent.methods[0] = wanted->method_mask[0];
	agent.methods[1] = wanted->method_mask[1];
	id = add_agent(port, &agent);
	wanted->id = (uint32_t)id;
	return id < 0 ? id : 0;
}

static int remove_agent(struct nupa_umad_port *port, const uint32_t *id)
{
	struct nupa_umad_pending **at = &port->pending;

	if (*id >= NUPA_UMAD_AGENTS || !port->agents[*id].used)
		return -EINVAL;
	port->agents[*id].used = false;
	while (*at) {
		struct nupa_umad_pending *pending = *at;

		if (pending->header.id != *id) {
			at = &pending->next;
			continue;
		}
		*at = pending->next;
		free(pending);
	}
	return 0;
}

int nupa_umad_ioctl(int fd, unsigned long request, void *argument)
{
	struct nupa_umad_port *port;
	int rc = -ENOTTY;

	nupa_umad_lock();
	port = nupa_umad_port_of(fd);
	if (!port)
		rc = -EBADF;
	else if (request == IB_USER_MAD_ENABLE_PKEY) {
		port->has_pkeys = true;
		rc = 0;
	} else if (!argument)
		rc = -EFAULT;
	else if (request == IB_USER_MAD_REGISTER_AGENT)
		rc = add_first(port, argument);
	else if (request == IB_USER_MAD_REGISTER_AGENT2)
		rc = add_second(port, argument);
	else if (request == IB_USER_MAD_UNREGISTER_AGENT)
		rc = remove_agent(port, argument);
	nupa_umad_unlock();
	if (!rc)
		return 0;
	errno = -rc;
	return -1;
}
