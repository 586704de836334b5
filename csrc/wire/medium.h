/* SPDX-License-Identifier: BSD-3-Clause
 * What a kind of wire is made of.  A medium with sockets gives each process one; where there is
 * none, packets go by the keeper in both directions. */
#ifndef NUPA_MEDIUM_H
#define NUPA_MEDIUM_H

#include "packet/icrc.h"

#include <stdbool.h>
#include <stddef.h>

struct nupa_keeper;
struct nupa_kept;
struct nupa_member;

#define NUPA_MEDIUM_SOCKETS_MAX 2 /* for a process */

struct nupa_medium {
	bool relays;     /* processes send by the keeper */
	bool identifies; /* packet sockets receive, not UDP sockets */
	/* Opens what the wire needs: 0, or -errno and *why*. */
	int (*open)(struct nupa_keeper *keeper, struct nupa_kept *wire, const char *guest,
		    char *why, size_t why_bytes);
	void (*close)(struct nupa_keeper *keeper, struct nupa_kept *wire);
	/* Makes sockets for a process, which the caller passes on and closes: how many, -errno. */
	int (*join)(struct nupa_keeper *keeper, struct nupa_member *member,
		    int sockets[NUPA_MEDIUM_SOCKETS_MAX]);
	void (*leave)(struct nupa_keeper *keeper, struct nupa_member *member);
	/* The largest RoCE MTU that it carries; NULL: the kernel's routes say. */
	uint32_t (*mtu_bytes)(struct nupa_kept *wire);
	/* Sends a packet, BTH to ICRC, whose ICRC is that of *path*: 0 or -errno. */
	int (*send)(struct nupa_keeper *keeper, struct nupa_kept *wire,
		    const struct nupa_roce_path *path, const struct iovec *packet, int n);
};

/* udp.c; NULL: this build has no such medium. */
extern const struct nupa_medium nupa_medium_udp;
/* raw.c */
extern const struct nupa_medium nupa_medium_raw;
/* guest.c */
extern const struct nupa_medium nupa_medium_frames;
const struct nupa_medium *nupa_medium_of(uint32_t medium); /* NULL: there is none */

#endif
