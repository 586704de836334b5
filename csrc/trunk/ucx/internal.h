/* SPDX-License-Identifier: BSD-3-Clause
 * Connections and messages of the carrier, between its files. */
#ifndef NUPA_TRUNK_UCX_INTERNAL_H
#define NUPA_TRUNK_UCX_INTERNAL_H

#include "trunk/carrier.h"
#include "trunk/ucx/api.h"

#include <sys/socket.h>

#define RECEIVES 16u                     /* packets of a connection that are awaited at once */
#define MAGIC UINT64_C(0x58435541505554) /* "TUPAUCX" */

#define TAG_CHALLENGE UINT64_C(1)
#define TAG_OF(number) ((uint64_t)(number) << 32 | 2)
#define TAG_ALL UINT64_C(0xffffffffffffffff)

struct greeting {
	uint64_t magic;
	uint32_t machine;
	uint32_t number; /* what the sender's messages are to be tagged with */
};

/* A window of the other machine. */
struct unlocked {
	struct unlocked *next;
	struct link *link;
	void *rkey;
	bool locked; /* to be forgotten once nothing is on its way there */
};

struct receive {
	struct link *link;
	void *request; /* NULL: not posted */
	bool done;
	nupa_ucs_status status;
	uint32_t bytes;
	_Alignas(64) uint8_t data[NUPA_PACKET_BYTES];
};

enum link_state { LINK_CONNECTING, LINK_ASKED, LINK_STANDING, LINK_CLOSED };

struct link {
	struct link *next;
	struct ucx *ucx;
	enum link_state state;
	uint32_t machine;
	bool accepted;
	uint32_t ours, theirs;
	void *ep, *closing;
	bool dead;
	nupa_ucs_status status;
	uint32_t on_way;                          /* sends and flushes that have not completed */
	bool has_put;                             /* since the last packet */
	struct nupa_packet *behind, **behind_end; /* packets that wait for what was put */
	struct unlocked *windows;
	uint32_t next_receive;
	uint64_t since_ns;
	struct greeting greeting;
	struct receive *receives; /* RECEIVES */
};

struct ucx {
	struct nupa_carrier carrier;
	struct nupa_ucx_api api;
	uint32_t machine, machines;
	struct sockaddr_storage *addresses;
	void *context, *worker, *listener;
	int fd;
	uint32_t port;
	char name[320];
	bool by_tcp; /* and nothing else */
	struct link *links;
	uint32_t pending;
	struct nupa_packet *returned, **returned_end;
	uint64_t now_ns;
	/* The next CHALLENGE. */
	struct greeting challenge;
	void *challenge_request;
	bool challenged;
	bool challenge_right;
};

static inline struct ucx *ucx_of(struct nupa_carrier *carrier)
{
	return (struct ucx *)(void *)carrier; /* its first member */
}

/* message.c */
void ucx_send_packet(struct link *link, struct nupa_packet *packet);
void ucx_return_packet(struct ucx *ucx, struct nupa_packet *packet);
void ucx_send(struct nupa_carrier *carrier, void *to, struct nupa_packet *packet);
void ucx_greet(struct link *link, uint64_t tag);
/* Awaits a packet; false: UCX refuses. */
bool ucx_post(struct receive *receive);
bool ucx_await_challenge(struct ucx *ucx);

/* put.c */
void *ucx_window(struct nupa_carrier *carrier, void *memory, size_t bytes,
		 uint8_t key[NUPA_KEY_BYTES], uint32_t *key_bytes);
void ucx_unwindow(struct nupa_carrier *carrier, void *window);
void *ucx_unlock(struct nupa_carrier *carrier, void *link, const uint8_t *key, uint32_t key_bytes);
void ucx_lock(struct nupa_carrier *carrier, void *unlocked);
void ucx_put(struct nupa_carrier *carrier, void *unlocked, const void *from, uint64_t to,
	     uint32_t bytes);
/* Whether the packet has to wait for what was put before; it goes by itself then. */
bool ucx_waits(struct link *link, struct nupa_packet *packet);
/* Whether packets may go; those of a closed connection are returned. */
bool ucx_is_ready(const struct link *link);
bool ucx_send_ready(struct link *link);
void ucx_free_windows(struct link *link, bool all);

/* link.c */
void *ucx_connect(struct nupa_carrier *carrier, uint32_t machine);
/* The listener's: a connection is asked for. */
void ucx_link_requested(void *request, void *arg);
void ucx_link_failed(void *arg, void *ep, nupa_ucs_status status);
void ucx_answer_challenge(struct ucx *ucx);
/* The first message of a connection that was accepted. */
void ucx_hear_answer(struct link *link, const struct receive *receive);
void ucx_close(struct nupa_carrier *carrier, void *link);
void ucx_link_close(struct link *link);
/* Whether nothing of a closed connection is known to UCX any more. */
bool ucx_link_is_over(struct link *link);
void ucx_link_free(struct link *link);

/* ucx.c */
extern const struct nupa_carrier_ops ucx_ops;
void ucx_free(struct nupa_carrier *carrier);

#endif
