/* SPDX-License-Identifier: BSD-3-Clause
 * A wire's medium of Ethernet frames: a Unix socket where QEMU's `-netdev stream` connects.  Each
 * frame follows its length, four bytes in the order of the network.
 *
 * One thread uses a medium; nothing blocks. */
#ifndef NUPA_WIRE_FRAMES_H
#define NUPA_WIRE_FRAMES_H

#include "wire/frames/ethernet.h"

struct nupa_frames;

/* Gets each RoCE packet of the remote; its data are valid during the call. */
typedef void nupa_frames_receive(void *context, const struct nupa_frame_packet *packet);

struct nupa_frames_counters {
	uint64_t received, sent; /* RoCE packets */
	uint64_t malformed, foreign;
	uint64_t dropped; /* not sent: nobody is connected, or it reads too slowly */
};

/* Listens at `path`, which only our user may enter; a socket without a listener is replaced.
 * Addresses are 16 bytes each, IPv4 mapped.
 *
 *   -EINVAL  one is IPv4 and the other IPv6, or they are the same
 *   -ENAMETOOLONG  the path has more than 107 bytes
 *   -EADDRINUSE  another process listens there, or it is not a socket
 *   -errno  as of socket(2), bind(2), listen(2), epoll_create1(2), timerfd_create(2) */
int nupa_frames_open(struct nupa_frames **frames, const char *path, const uint8_t local[16],
		     const uint8_t remote[16], nupa_frames_receive *receive, void *context);
/* Ends it, and removes the socket. */
void nupa_frames_close(struct nupa_frames *frames);

/* One file for poll(2) or epoll(7): readable when nupa_frames_turn() has work. */
int nupa_frames_fd(const struct nupa_frames *frames);
void nupa_frames_turn(struct nupa_frames *frames);

/* Whether a guest is connected, and its link address is known. */
bool nupa_frames_reachable(const struct nupa_frames *frames);
const struct nupa_frames_counters *nupa_frames_counters(const struct nupa_frames *frames);

/* Sends packet->data with the packet's identification, source port, TOS and TTL; its addresses are
 * the link's.  Packets wait while the link address is asked for.
 *
 *   -ENOTCONN  nobody is connected
 *   -ENOBUFS   too many packets wait
 *   -EMSGSIZE  no frame has room for it */
int nupa_frames_send(struct nupa_frames *frames, const struct nupa_frame_packet *packet);

#endif
