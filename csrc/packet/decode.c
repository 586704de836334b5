/* SPDX-License-Identifier: BSD-3-Clause
 * Headers of packets, from the link on.  The input comes from a wire or a file: each length is
 * checked against the packet's end before use. */
#include "packet/pcapng.h"
#include "packet/walk.h"

#include <assert.h>
#include <string.h>

static_assert(offsetof(struct nupa_pcapng_record, captured_bytes) -
			  offsetof(struct nupa_pcapng_record, offset) ==
		      offsetof(struct nupa_span, captured_bytes) &&
		  offsetof(struct nupa_pcapng_record, interface) -
			  offsetof(struct nupa_pcapng_record, offset) ==
		      offsetof(struct nupa_span, interface),
	      "a record of a pcapng file has a span in it");
static_assert(sizeof(struct nupa_headers) == 152, "columns are strided over it");

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_VLAN = 0x8100,
	ETHERTYPE_IPV6 = 0x86dd,
	ETHERTYPE_QINQ = 0x88a8,
	ETHERTYPE_ROCE = 0x8915,
};
enum {
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_IBA = 0x1b, /* IBTA 8.3 */
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_DESTINATION = 60,
};
enum { LNH_LOCAL = 2, LNH_GLOBAL = 3 }; /* IBTA 7.7.7 */

#define ETHER_BYTES 14u
#define SLL_BYTES 16u
#define SLL2_BYTES 20u
#define VLAN_BYTES 4u
#define VLANS_MAX 4
#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define IPV6_EXTENSIONS_MAX 8
#define UDP_BYTES 8u
#define LRH_BYTES 8u
#define ROCE_PORT 4791

/* The packet ends so many bytes behind `from`, which is at or before w->at. */
static bool ends(struct walk *w, uint32_t from, uint32_t bytes)
{
	if (bytes < w->at - from) {
		w->out->fault = NUPA_FAULT_LENGTH;
		return false;
	}
	if (bytes <= w->end - from) {
		w->end = from + bytes;
		w->cut = false;
	} else if (!w->cut) { /* more than its surroundings have */
		w->out->fault = NUPA_FAULT_LENGTH;
		return false;
	}
	return true;
}

static void ports(struct walk *w, uint32_t flags)
{
	struct nupa_headers *out = w->out;
	uint32_t start = w->at;
	const uint8_t *p;

	if (out->protocol == PROTOCOL_TCP) {
		p = take(w, 4);
	} else if (out->protocol == PROTOCOL_UDP) {
		p = take(w, UDP_BYTES);
	} else {
		return;
	}
	if (!p)
		return;
	out->layer = NUPA_LAYER_PORTS;
	out->source_port = nupa_get16(p);
	out->destination_port = nupa_get16(p + 2);
	if (out->protocol != PROTOCOL_UDP || !ends(w, start, nupa_get16(p + 4)))
		return;
	if (out->destination_port == ROCE_PORT) {
		w->udp = start;
		nupa_decode_transport(w, flags);
	}
}

static void ipv4(struct walk *w, uint32_t flags)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	struct nupa_headers *out = w->out;
	uint32_t start = w->at, header_bytes;
	const uint8_t *p = take(w, IPV4_BYTES);

	if (!p)
		return;
	header_bytes = (p[0] & 15u) * 4;
	if (p[0] >> 4 != 4 || header_bytes < IPV4_BYTES) {
		out->fault = NUPA_FAULT_LENGTH;
		return;
	}
	if (!take(w, header_bytes - IPV4_BYTES) || !ends(w, start, nupa_get16(p + 2)))
		return;
	out->layer = NUPA_LAYER_NETWORK;
	out->ip_version = 4;
	out->protocol = p[9];
	memcpy(out->source, mapped, sizeof(mapped));
	memcpy(out->source + sizeof(mapped), p + 12, 4);
	memcpy(out->destination, mapped, sizeof(mapped));
	memcpy(out->destination + sizeof(mapped), p + 16, 4);
	w->routed = start;
	if (nupa_get16(p + 6) & 0x3fff) { /* more fragments, or an offset */
		out->fault = NUPA_FAULT_FRAGMENT;
		return;
	}
	ports(w, flags);
}

/* Skips what may stand between IPv6 and its payload.  False: it cannot be skipped. */
static bool extensions(struct walk *w)
{
	for (int i = 0; i < IPV6_EXTENSIONS_MAX; i++) {
		const uint8_t *p;

		switch (w->out->protocol) {
		case PROTOCOL_HOP_BY_HOP:
		case PROTOCOL_ROUTING:
		case PROTOCOL_DESTINATION:
			p = take(w, 8);
			if (!p || !take(w, p[1] * 8u))
				return false;
			w->out->protocol = p[0];
			break;
		case PROTOCOL_FRAGMENT:
			w->out->fault = NUPA_FAULT_FRAGMENT;
			return false;
		default:
			return true;
		}
	}
	w->out->fault = NUPA_FAULT_LENGTH;
	return false;
}

static void ipv6(struct walk *w, bool is_grh, uint32_t flags)
{
	struct nupa_headers *out = w->out;
	uint32_t start = w->at;
	const uint8_t *p = take(w, IPV6_BYTES);

	if (!p)
		return;
	if (p[0] >> 4 != 6) {
		out->fault = NUPA_FAULT_LENGTH;
		return;
	}
	if (!ends(w, start, IPV6_BYTES + nupa_get16(p + 4)))
		return;
	out->layer = NUPA_LAYER_NETWORK;
	out->ip_version = 6;
	out->protocol = p[6];
	memcpy(out->source, p + 8, 16);
	memcpy(out->destination, p + 24, 16);
	w->routed = start;
	w->local = false;
	if (is_grh) {
		if (out->protocol == PROTOCOL_IBA)
			nupa_decode_transport(w, flags);
		return;
	}
	if (extensions(w))
		ports(w, flags);
}

/* Decodes the header that an Ethernet type announces. */
static void typed(struct walk *w, uint16_t ethertype, uint32_t flags)
{
	struct nupa_headers *out = w->out;
	const uint8_t *p;

	out->layer = NUPA_LAYER_LINK;
	out->ethertype = ethertype;
	for (int i = 0; i < VLANS_MAX &&
			(out->ethertype == ETHERTYPE_VLAN || out->ethertype == ETHERTYPE_QINQ);
	     i++) {
		p = take(w, VLAN_BYTES);
		if (!p)
			return;
		if (!i)
			out->vlan = nupa_get16(p);
		out->ethertype = nupa_get16(p + 2);
	}
	if (out->ethertype == ETHERTYPE_IPV4)
		ipv4(w, flags);
	else if (out->ethertype == ETHERTYPE_IPV6 || out->ethertype == ETHERTYPE_ROCE)
		ipv6(w, out->ethertype == ETHERTYPE_ROCE, flags);
}

/* A header of so many bytes, with an Ethernet type at byte `type_at`. */
static void linked(struct walk *w, uint32_t bytes, uint32_t type_at, uint32_t flags)
{
	const uint8_t *p = take(w, bytes);

	if (p)
		typed(w, nupa_get16(p + type_at), flags);
}

static void infiniband(struct walk *w, uint32_t flags)
{
	struct nupa_headers *out = w->out;
	uint32_t start = w->at;
	const uint8_t *p = take(w, LRH_BYTES);

	if (!p || !ends(w, start, (nupa_get16(p + 4) & 0x7ffu) * 4))
		return;
	out->layer = NUPA_LAYER_LINK;
	out->dlid = nupa_get16(p + 2);
	out->slid = nupa_get16(p + 6);
	w->routed = start;
	w->local = true;
	if ((p[1] & 3) == LNH_LOCAL)
		nupa_decode_transport(w, flags);
	else if ((p[1] & 3) == LNH_GLOBAL)
		ipv6(w, true, flags);
}

static void decode(const uint8_t *data, uint32_t bytes, uint32_t link, uint32_t flags,
		   struct nupa_headers *out)
{
	/* The packet's length is not known yet: until then it may extend beyond the capture. */
	struct walk w = { .data = data, .end = bytes, .cut = true, .out = out };

	switch (link) {
	case NUPA_LINKTYPE_ETHERNET:
		linked(&w, ETHER_BYTES, 12, flags);
		break;
	case NUPA_LINKTYPE_SLL:
		linked(&w, SLL_BYTES, 14, flags);
		break;
	case NUPA_LINKTYPE_SLL2:
		linked(&w, SLL2_BYTES, 0, flags);
		break;
	case NUPA_LINKTYPE_INFINIBAND:
		infiniband(&w, flags);
		break;
	case NUPA_LINKTYPE_RAW:
		if (bytes && data[0] >> 4 == 4)
			ipv4(&w, flags);
		else
			ipv6(&w, false, flags);
		break;
	default:
		out->fault = NUPA_FAULT_LINK;
		return;
	}
	out->payload_offset = w.at;
	out->payload_bytes = w.end - w.at;
}

uint64_t nupa_decode(const uint8_t *data, size_t bytes, const struct nupa_span *spans,
		     size_t stride_bytes, size_t n, const uint32_t *links, uint32_t n_links,
		     uint32_t flags, struct nupa_headers *out)
{
	const uint8_t *next = (const uint8_t *)spans;
	uint64_t understood = 0;

	for (size_t i = 0; i < n; i++, next += stride_bytes) {
		struct nupa_span span;

		memcpy(&span, next, sizeof(span));
		memset(&out[i], 0, sizeof(out[i]));
		if (span.offset > bytes || span.captured_bytes > bytes - span.offset ||
		    span.interface >= n_links) {
			out[i].fault = NUPA_FAULT_SPAN;
			continue;
		}
		decode(data + span.offset, span.captured_bytes, links[span.interface], flags,
		       &out[i]);
		understood += out[i].layer == NUPA_LAYER_TRANSPORT;
	}
	return understood;
}
