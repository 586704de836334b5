/* SPDX-License-Identifier: BSD-3-Clause
 * MADs on their way: from a program to who answers, and from others to a program's agent. */
#define _GNU_SOURCE
#include "shim/umad/umad.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RMPP_AT_TYPE 25u
#define RMPP_AT_FLAGS 26u /* the low three bits */
#define RMPP_AT_SEGMENT 28u
#define RMPP_AT_LENGTH 32u
#define RMPP_ACTIVE 1u
#define RMPP_FIRST 2u
#define RMPP_LAST 4u
#define RMPP_HEADERS_BYTES 36u
#define RMPP_DATA 1u

#define OUI_AT 37u /* of vendor classes with RMPP (IBTA 16.5.1) */
#define RETRIES_MAX 1000u
#define TIMEOUT_MAX_MS 3600000u

static bool is_vendor(uint8_t class)
{
	return class >= 0x30 && class <= 0x4f;
}

static bool is_request(const uint8_t *mad)
{
	return !(mad[NUPA_MAD_AT_METHOD] & NUPA_MAD_RESPONSE) &&
	       mad[NUPA_MAD_AT_METHOD] != NUPA_MAD_TRAP_REPRESS;
}

static bool is_subnet(uint8_t class)
{
	return class == NUPA_MAD_SUBN_LID || class == NUPA_MAD_SUBN_DIRECTED;
}

/* Where the data of an RMPP message begin (IBTA 13.6.2 and the classes); 0: no class with RMPP. */
static uint32_t data_at(uint8_t class)
{
	return class == NUPA_MAD_SUBN_ADM ? 56 : is_vendor(class) ? 40 : 0;
}

static uint32_t oui_of(const uint8_t *mad)
{
	return (uint32_t)mad[OUI_AT] << 16 | (uint32_t)mad[OUI_AT + 1] << 8 | mad[OUI_AT + 2];
}

static void queue(struct nupa_umad_port *port, uint32_t agent,
		  const struct nupa_umad_message *message, const uint8_t *data)
{
	struct nupa_umad_message to = *message;

	to.header.id = agent;
	to.header.length = (uint32_t)nupa_umad_header_bytes(port) + to.bytes;
	/* A queue that is full loses it, as a network does. */
	(void)nupa_umad_put(port->ours, &to, data, NULL, 0);
}

/* The request that a response is for leaves the list; its agent, or -1. */
static int take_pending(struct nupa_umad_port *port, const uint8_t *mad)
{
	for (struct nupa_umad_pending **at = &port->pending; *at; at = &(*at)->next) {
		struct nupa_umad_pending *found = *at;
		const int agent = (int)found->header.id;

		if (memcmp(found->mad + NUPA_MAD_AT_TID, mad + NUPA_MAD_AT_TID, 8) != 0 ||
		    found->mad[NUPA_MAD_AT_CLASS] != mad[NUPA_MAD_AT_CLASS])
			continue;
		*at = found->next;
		free(found);
		return agent;
	}
	return -1;
}

static int find_agent(const struct nupa_umad_port *port, const uint8_t *mad)
{
	const uint8_t class = mad[NUPA_MAD_AT_CLASS], method = mad[NUPA_MAD_AT_METHOD] & 0x7f;

	for (int i = 0; i < (int)NUPA_UMAD_AGENTS; i++) {
		const struct nupa_umad_agent *agent = &port->agents[i];

		if (agent->used && agent->class == class &&
		    agent->version == mad[NUPA_MAD_AT_CLASS_VERSION] &&
		    (agent->methods[method / 64] >> method % 64 & 1) &&
		    (!is_vendor(class) || agent->oui == oui_of(mad)))
			return i;
	}
	return -1;
}

void nupa_umad_deliver(struct nupa_umad_port *port, const struct nupa_umad_message *message,
		       const uint8_t *data)
{
	struct nupa_umad_message to = *message;
	int agent;

	if (message->bytes < (message->rmpp ? RMPP_HEADERS_BYTES : NUPA_MAD_BYTES))
		return;
	to.header =
	    (struct ib_user_mad_hdr){ .qpn = message->header.qpn, .lid = message->header.lid };
	agent = is_request(data) ? find_agent(port, data) : take_pending(port, data);
	if (agent >= 0 && (port->agents[agent].rmpp || !message->rmpp))
		queue(port, (uint32_t)agent, &to, data);
}

void nupa_umad_expire(struct nupa_umad_port *port, const struct nupa_umad_pending *pending)
{
	struct nupa_umad_message message = { .header = pending->header,
					     .bytes = NUPA_MAD_HEADER_BYTES };

	message.header.status = ETIMEDOUT;
	queue(port, pending->header.id, &message, pending->mad);
}

static int expect(struct nupa_umad_port *port, const struct ib_user_mad_hdr *header,
		  const uint8_t *mad)
{
	struct nupa_umad_pending *pending = malloc(sizeof(*pending));
	const uint64_t timeout_ms =
	    header->timeout_ms < TIMEOUT_MAX_MS ? header->timeout_ms : TIMEOUT_MAX_MS;
	const uint64_t retries = header->retries < RETRIES_MAX ? header->retries : RETRIES_MAX;

	if (!pending)
		return -ENOMEM;
	*pending = (struct nupa_umad_pending){
		.next = port->pending,
		.until_ns = nupa_clock_ns() + timeout_ms * (retries + 1) * 1000000,
		.header = *header,
	};
	memcpy(pending->mad, mad, sizeof(pending->mad));
	port->pending = pending;
	nupa_umad_wake();
	return 0;
}

/* As the receiver's kernel leaves the first header of a message that it put together. */
static void finish_rmpp(uint8_t *data, uint32_t bytes)
{
	const uint32_t from = data_at(data[NUPA_MAD_AT_CLASS]);
	const uint32_t room = NUPA_MAD_BYTES - from;
	const uint32_t segments = bytes <= from ? 1 : (bytes - from + room - 1) / room;

	data[RMPP_AT_TYPE] = RMPP_DATA;
	data[RMPP_AT_FLAGS] = (uint8_t)((data[RMPP_AT_FLAGS] & ~7u) | RMPP_ACTIVE | RMPP_FIRST |
					(segments == 1 ? RMPP_LAST : 0));
	data[RMPP_AT_FLAGS + 1] = 0; /* status */
	nupa_be32_put(data + RMPP_AT_SEGMENT, 1);
	nupa_be32_put(data + RMPP_AT_LENGTH,
		      (uint64_t)segments * (from - RMPP_HEADERS_BYTES) + bytes - from);
}

/* The answer's header is what a MAD that came from there has. */
static struct ib_user_mad_hdr header_from(uint16_t lid, const struct nupa_umad_agent *agent)
{
	return (struct ib_user_mad_hdr){ .qpn = htonl(agent->qpn), .lid = htons(lid) };
}

static int send_mad(struct nupa_umad_port *port, struct ib_user_mad_hdr *header, uint8_t *mad,
		    uint32_t bytes, bool rmpp)
{
	const struct nupa_umad_agent *agent = &port->agents[header->id];
	struct nupa_fabric *fabric = nupa_umad.subnet.fabric;
	const struct nupa_mad_target to = { .lid = ntohs(header->lid),
					    .gid = header->grh_present &&
							   !is_subnet(mad[NUPA_MAD_AT_CLASS])
						       ? header->gid
						       : NULL };
	const bool directed = mad[NUPA_MAD_AT_CLASS] == NUPA_MAD_SUBN_DIRECTED;
	const bool waits = is_request(mad) && header->timeout_ms;
	struct nupa_umad_message message = { .bytes = bytes, .from = nupa_umad.host, .rmpp = rmpp };
	enum nupa_mad_fate fate;
	uint32_t host = 0;
	int rc = 0;

	if (is_request(mad))
		nupa_be32_put(mad + NUPA_MAD_AT_TID, agent->tid_high);
	if (rmpp)
		finish_rmpp(mad, bytes);
	fate = nupa_mad_send(&nupa_umad.subnet, nupa_umad.host, &to, mad, &host);
	if (fate == NUPA_MAD_ANSWERED) {
		message.header = header_from(to.lid, agent);
		queue(port, header->id, &message, mad);
		return 0;
	}
	/* Before it leaves: an answer may come at once. */
	if (waits)
		rc = expect(port, header, mad);
	message.header =
	    header_from(directed ? NUPA_LID_PERMISSIVE : fabric->hosts[nupa_umad.host].lid, agent);
	if (fate == NUPA_MAD_DELIVER && !rc)
		nupa_mailbox_send(fabric, host, &message, mad);
	return rc;
}

/* What is written, checked and copied: its header and MAD, 256 bytes at least. */
static int read_written(const struct nupa_umad_port *port, const uint8_t *from, size_t bytes,
			struct ib_user_mad_hdr *header, uint8_t **mad, bool *rmpp)
{
	const size_t header_bytes = nupa_umad_header_bytes(port);
	const struct nupa_umad_agent *agent;
	const uint8_t *data = from + header_bytes;
	uint32_t least;

	memset(header, 0, sizeof(*header));
	if (bytes < header_bytes + RMPP_HEADERS_BYTES || bytes - header_bytes > NUPA_UMAD_MAX_BYTES)
		return -EINVAL;
	memcpy(header, from, header_bytes);
	bytes -= header_bytes;
	if (header->id >= NUPA_UMAD_AGENTS || !port->agents[header->id].used)
		return -EINVAL;
	agent = &port->agents[header->id];
	if (is_subnet(data[NUPA_MAD_AT_CLASS]) != !agent->qpn)
		return -EINVAL;
	least = data_at(data[NUPA_MAD_AT_CLASS]);
	*rmpp = agent->rmpp && least && (data[RMPP_AT_FLAGS] & RMPP_ACTIVE);
	if (*rmpp ? bytes < least : bytes > NUPA_MAD_BYTES)
		return -EINVAL;
	*mad = calloc(1, bytes < NUPA_MAD_BYTES ? NUPA_MAD_BYTES : bytes);
	if (!*mad)
		return -ENOMEM;
	memcpy(*mad, data, bytes);
	return 0;
}

ssize_t nupa_umad_write(int fd, const void *from, size_t bytes)
{
	struct ib_user_mad_hdr header;
	struct nupa_umad_port *port;
	uint8_t *mad = NULL;
	bool rmpp = false;
	int rc;

	nupa_umad_lock();
	port = nupa_umad_port_of(fd);
	rc = port ? read_written(port, from, bytes, &header, &mad, &rmpp) : -EBADF;
	if (!rc)
		rc = send_mad(
		    port, &header, mad,
		    rmpp ? (uint32_t)(bytes - nupa_umad_header_bytes(port)) : NUPA_MAD_BYTES, rmpp);
	nupa_umad_unlock();
	free(mad);
	if (!rc)
		return (ssize_t)bytes;
	errno = -rc;
	return -1;
}
