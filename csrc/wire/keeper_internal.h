/* SPDX-License-Identifier: BSD-3-Clause
 * A keeper, its wires and processes, for the files behind keeper.h. */
#ifndef NUPA_KEEPER_INTERNAL_H
#define NUPA_KEEPER_INTERNAL_H

#include "base/list.h"
#include "engine/attachment/attachment.h"
#include "engine/cm/wire/mad.h"
#include "packet/roce.h"
#include "segment/port_protocol.h"
#include "segment/wire.h"
#include "wire/keeper.h"
#include "wire/medium.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define NUPA_KEEPER_MEMBERS_MAX 1024u /* processes, of all wires */
#define NUPA_KEEPER_REQUEST_BYTES 1024u

/* An address and port for the system. */
union nupa_keeper_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* A file of the loop. */
struct nupa_keeper_source {
	int fd; /* -1: none */
	void (*ready)(struct nupa_keeper *keeper, struct nupa_keeper_source *source,
		      uint32_t events);
};

struct nupa_keeper_probe {
	uint32_t id;         /* the communication id of the one on its way; 0: none */
	uint64_t sent_ns;    /* that one */
	uint64_t due_ns;     /* the next */
	uint32_t unanswered; /* in a row */
	bool answers;        /* there has been one */
	uint64_t heard_ns;   /* when anything came from there, for all we know */
	uint64_t failed_ns;  /* when the network refused last */
	uint64_t counted;    /* sent_packets at the last look */
	uint64_t waits_ns;   /* since when packets are sent and nothing comes; 0: not */
	uint64_t mtu_due_ns;
};

/* Notes of connections (notes.c), the oldest first. */
struct nupa_note_shelf {
	struct nupa_list notes;
	uint32_t n, most;
};
#define NUPA_NOTE_BUCKETS 256u

/* A wire that we keep. */
struct nupa_kept {
	struct nupa_keeper *keeper;
	struct nupa_engine *engine; /* our attachment to its host */
	struct nupa_wire_entry *entry;
	uint32_t index, host;
	uint8_t remote[16];
	union nupa_keeper_address to;
	struct nupa_keeper_source listener;
	char path[NUPA_WIRE_SOCKET_BYTES];
	const struct nupa_medium *medium;
	void *frames;                     /* the medium's own, */
	struct nupa_keeper_source source; /* and its file */
	uint32_t psn;                     /* of QP 1 */
	struct nupa_keeper_probe probe;
	struct nupa_list notes[NUPA_NOTE_BUCKETS]; /* all, by the other end's communication id */
	struct nupa_note_shelf orphans;            /* of processes that have died */
};

/* A process that uses a wire. */
struct nupa_member {
	struct nupa_keeper_source source; /* its connection */
	struct nupa_kept *wire;
	uint32_t slot, epoch; /* slot 0: it has not said hello */
	uint64_t since_ns;
	int udp; /* a duplicate of its socket; -1: none */
	uint32_t pid;
	struct nupa_note_shelf started, whole; /* without, and with, our communication id */
};

/* A socket of the group for our address, in the kernel's order. */
struct nupa_group_socket {
	struct nupa_member *member; /* NULL: the keeper's, or one that nobody is to use any more */
	uint64_t inode;
};

struct nupa_keeper {
	struct nupa_fabric *fabric;
	uint8_t local[16];
	union nupa_keeper_address from; /* port 4791 */
	bool ipv4;
	int epoll;
	struct nupa_kept *wires[NUPA_WIRES_MAX];
	struct nupa_member *members[NUPA_KEEPER_MEMBERS_MAX];
	uint32_t n_members;
	/* udp.c */
	int claim; /* the name that says that the address is ours */
	struct nupa_keeper_source udp, errors;
	uint16_t errors_port; /* that of `errors`, which sends probes */
	/* group.c */
	struct nupa_group_socket group[NUPA_KEEPER_MEMBERS_MAX + 1];
	uint32_t n_group;
	uint64_t unsure_ns; /* when a process left last */
	bool group_unsure;  /* sockets are there that nobody is to use: they may go at any time */
	/* The request that nupa_keeper_run returns. */
	int request_fd; /* -1: none */
	char request[NUPA_KEEPER_REQUEST_BYTES];
	uint64_t tick_ns;
};

/* --- keeper.c ------------------------------------------------------------------------ */

int nupa_keeper_watch(struct nupa_keeper *keeper, struct nupa_keeper_source *source);
void nupa_keeper_unwatch(struct nupa_keeper *keeper, struct nupa_keeper_source *source);
void nupa_keeper_address(const uint8_t gid[16], uint16_t port, union nupa_keeper_address *address);
socklen_t nupa_keeper_address_bytes(const union nupa_keeper_address *address);
/* The GID, and port, of an address; false: it is of another family. */
bool nupa_keeper_gid(const union nupa_keeper_address *address, uint8_t gid[16], uint16_t *port);
bool nupa_keeper_is_ipv4(const uint8_t gid[16]);
/* The wire that leads to an address; NULL: none of ours. */
struct nupa_kept *nupa_keeper_wire_to(struct nupa_keeper *keeper, const uint8_t remote[16]);

/* --- member.c ------------------------------------------------------------------------ */

/* Listens at wire->path: 0 or -errno. */
int nupa_member_listen(struct nupa_kept *wire);
void nupa_member_end(struct nupa_keeper *keeper, struct nupa_member *member);
/* Those of a wire, or of all that have said nothing for too long (NULL). */
void nupa_members_end(struct nupa_keeper *keeper, const struct nupa_kept *wire);
void nupa_members_expire(struct nupa_keeper *keeper, uint64_t now_ns);
struct nupa_member *nupa_member_of_slot(struct nupa_keeper *keeper, const struct nupa_kept *wire,
					uint32_t slot);

/* --- group.c ------------------------------------------------------------------------- */

/* A socket has been bound: a process's, or (NULL) the keeper's. */
void nupa_group_add(struct nupa_keeper *keeper, struct nupa_member *member, int fd);
/* No packet is to go to a process any more; and its socket has been closed. */
void nupa_group_leave(struct nupa_keeper *keeper, const struct nupa_member *member);
void nupa_group_left(struct nupa_keeper *keeper);
/* Looks whether sockets have gone that others held; true: some are still there. */
bool nupa_group_tick(struct nupa_keeper *keeper);

/* --- steer.c ------------------------------------------------------------------------- */

/* Gives the kernel a program that finds the socket of a packet: 0 or -errno. */
int nupa_steer(struct nupa_keeper *keeper);

/* --- forward.c ----------------------------------------------------------------------- */

struct nupa_keeper_packet {
	struct nupa_roce_path path;
	bool identified;
	const uint8_t *bytes;
	uint32_t n;
};
/* A packet that came to the keeper: to the process that it is for, or nowhere.  *by*: the process
 * that passed it on; NULL: it came to our own socket. */
void nupa_keeper_forward(struct nupa_keeper *keeper, const struct nupa_keeper_packet *packet,
			 const struct nupa_member *by);
/* Sends a management datagram from QP 1 to QP 1. */
void nupa_keeper_send_mad(struct nupa_kept *wire, uint16_t pkey, const uint8_t *mad, bool probe);
/* Whether a packet ends with its ICRC, as far as can be told. */
bool nupa_keeper_icrc(const struct nupa_keeper_packet *packet);

/* --- trace.c ------------------------------------------------------------------------- */

/* For captures: a packet has left; one has come, and ends here, dropped unless *taken*. */
void nupa_keeper_trace_sent(struct nupa_kept *wire, const struct nupa_roce_path *path,
			    const struct iovec *pieces, uint32_t n);
void nupa_keeper_trace_came(struct nupa_kept *wire, const struct nupa_keeper_packet *packet,
			    bool taken);

/* --- notes.c ------------------------------------------------------------------------- */

void nupa_notes_open(struct nupa_kept *wire);
/* Forgets all; nobody is told. */
void nupa_notes_close(struct nupa_kept *wire);
void nupa_notes_join(struct nupa_member *member);
/* Tells the other ends of its connections that it has gone. */
void nupa_notes_leave(struct nupa_member *member);
/* A datagram of connection management that came for *member*; NULL: for nobody. */
void nupa_notes_hear(struct nupa_kept *wire, struct nupa_member *member, uint16_t pkey,
		     const uint8_t *bytes, uint32_t n);
/* One that *member* sends. */
void nupa_notes_say(const struct nupa_member *member, const uint8_t *bytes, uint32_t n);
/* Tells again; when to come again. */
uint64_t nupa_notes_tick(struct nupa_kept *wire, uint64_t now_ns);

/* --- probe.c ------------------------------------------------------------------------- */

/* Looks at all wires; when to come again, in ms. */
int nupa_keeper_tick(struct nupa_keeper *keeper, uint64_t now_ns);
/* A datagram of connection management from QP 1, in a packet: true, it concerned a probe, and is
 * done with. */
bool nupa_probe_take(struct nupa_kept *wire, const struct nupa_keeper_packet *packet, uint16_t pkey,
		     const uint8_t *mad, uint32_t bytes);
/* One that has not the wire's addresses: notes NAT if its ICRC shows it. */
void nupa_probe_foreign(struct nupa_keeper *keeper, const struct nupa_keeper_packet *packet);
/* The network refused a packet. */
void nupa_probe_refused(struct nupa_kept *wire, int error, uint64_t now_ns);
/* Takes over the path MTU as it is now: the RoCE MTU, 0: none. */
uint32_t nupa_probe_mtu(struct nupa_kept *wire);

#endif
