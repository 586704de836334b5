/* SPDX-License-Identifier: BSD-3-Clause
 * The user MAD device, as the kernel's drivers/infiniband/core/user_mad.c serves it: a program
 * writes MADs with the header of rdma/ib_user_mad.h and reads answers and MADs of others.
 *
 *   calls.c     ioctl on such descriptors
 *   device.c    open and ioctl: descriptors and their agents
 *   write.c     a MAD on its way: answered here (csrc/mad), or mailed to another host's programs
 *   read.c      a MAD for the program
 *   queue.c     the queue behind a descriptor, and its format
 *   mailbox.c   the sockets through which programs of a fabric mail MADs to each other
 *   service.c   the thread that takes mail, and ends what was not answered in time
 *
 *   V1  The descriptor is one end of a pair of AF_UNIX sockets; the other one is ours.  poll, dup,
 *       fork and close are the kernel's, and its end tells us that the program closed it.
 *   V2  Ports and agents are the process's own, under one lock.
 *   V3  Mail comes from this user's processes only (the folder is closed to others), and is
 *       checked all the same.  A socket that nobody reads belongs to a dead process: void. */
#ifndef NUPA_SHIM_UMAD_UMAD_H
#define NUPA_SHIM_UMAD_UMAD_H

#include "mad/mad.h"
#include "shim/shim.h"
#include "shim/umad.h"

#include <rdma/ib_user_mad.h>

#define NUPA_UMAD_PORTS 32u  /* open descriptors of a process */
#define NUPA_UMAD_AGENTS 32u /* of one, as in the kernel */
/* RMPP messages, as the answer of a subnet manager with all paths of 254 hosts. */
#define NUPA_UMAD_MAX_BYTES (16u << 20)
/* The header that programs write which never asked for P_Keys. */
#define NUPA_UMAD_OLD_HEADER_BYTES sizeof(struct ib_user_mad_hdr_old)

struct nupa_umad_agent {
	bool used, rmpp; /* rmpp: whole messages are written and read */
	uint8_t qpn, class, version;
	uint32_t oui;
	uint64_t methods[2];
	uint32_t tid_high; /* of the requests that it sends */
};

/* A request that has no answer yet. */
struct nupa_umad_pending {
	struct nupa_umad_pending *next;
	uint64_t until_ns;
	struct ib_user_mad_hdr header;
	uint8_t mad[NUPA_MAD_HEADER_BYTES];
};

struct nupa_umad_port {
	bool used, has_pkeys; /* has_pkeys: the header has a P_Key index */
	uint64_t inode;       /* of the program's end */
	int ours, mailbox;
	char mailbox_name[64];
	struct nupa_umad_agent agents[NUPA_UMAD_AGENTS];
	struct nupa_umad_pending *pending;
};

/* device.c; all of it under the lock. */
struct nupa_umad {
	struct nupa_subnet subnet; /* fabric NULL: none is open */
	uint32_t host;
	struct nupa_umad_port ports[NUPA_UMAD_PORTS];
};
extern struct nupa_umad nupa_umad;
void nupa_umad_lock(void);
void nupa_umad_unlock(void);
struct nupa_umad_port *nupa_umad_port_of(int fd);
void nupa_umad_close(struct nupa_umad_port *port);
static inline size_t nupa_umad_header_bytes(const struct nupa_umad_port *port)
{
	return port->has_pkeys ? sizeof(struct ib_user_mad_hdr) : NUPA_UMAD_OLD_HEADER_BYTES;
}

/* --- queue.c ---------------------------------------------------------------------------- */

/* A MAD in a queue or in the mail: the header, and its bytes, or a memfd with them. */
struct nupa_umad_message {
	struct ib_user_mad_hdr header;
	uint32_t bytes; /* of the MAD */
	uint32_t from;  /* mail: the host that sent it */
	uint32_t rmpp;  /* mail: a whole RMPP message */
	uint32_t long_; /* the bytes are in a memfd */
};
#define NUPA_UMAD_INLINE_BYTES 8192u

/* Sends a message; to: NULL, the other end of a pair.  0, or a negative errno. */
int nupa_umad_put(int fd, const struct nupa_umad_message *message, const uint8_t *data,
		  const void *to, size_t to_bytes);
/* Receives one with all its bytes, which the caller frees; flags: of recvmsg(2).  0, or a negative
 * errno; -EPROTO: it is none of ours. */
int nupa_umad_take(int fd, int flags, struct nupa_umad_message *message, uint8_t **data);

/* --- mailbox.c -------------------------------------------------------------------------- */

/* A new mailbox of the host; its name. */
int nupa_mailbox_open(const struct nupa_fabric *fabric, uint32_t host, char *name, size_t bytes);
void nupa_mailbox_close(const struct nupa_fabric *fabric, int fd, const char *name);
/* Mails to all programs of the host that have umad0 open. */
void nupa_mailbox_send(const struct nupa_fabric *fabric, uint32_t host,
		       const struct nupa_umad_message *message, const uint8_t *data);
/* issm0: as long as it is open the host has a subnet manager.  -EBUSY: another one is. */
int nupa_mailbox_open_sm(const struct nupa_fabric *fabric, uint32_t host, int flags);

/* --- service.c -------------------------------------------------------------------------- */

/* Starts the thread, if this process has none: 0 or a negative errno. */
int nupa_umad_serve(void);
/* Something has changed that it waits for. */
void nupa_umad_wake(void);

/* --- write.c ---------------------------------------------------------------------------- */

/* A MAD arrived: into the queue of the agent it is for, if there is one. */
void nupa_umad_deliver(struct nupa_umad_port *port, const struct nupa_umad_message *message,
		       const uint8_t *data);
/* The request was not answered in time. */
void nupa_umad_expire(struct nupa_umad_port *port, const struct nupa_umad_pending *pending);

#endif
