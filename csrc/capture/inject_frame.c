/* SPDX-License-Identifier: BSD-3-Clause
 * Decodes frames for the injector.  The decoder checks each length before it is used. */
#include "capture/inject_frame.h"

#include "packet/decode.h"

#include <errno.h>
#include <string.h>

#define ETHERTYPE_AT 12u
#define ETHERTYPE_BYTES 2u
#define VLAN_BYTES 4u

/* The decoder has seen an IP header behind these tags. */
static const uint8_t *ip_header(const uint8_t *frame)
{
	uint32_t at = ETHERTYPE_AT;

	while ((frame[at] == 0x81 && frame[at + 1] == 0x00) ||
	       (frame[at] == 0x88 && frame[at + 1] == 0xa8))
		at += VLAN_BYTES;
	return frame + at + ETHERTYPE_BYTES;
}

/* RFC 791: the ones' complement sum over the header with its checksum is all ones. */
static bool ipv4_sum_right(const uint8_t *ip)
{
	uint32_t sum = 0, bytes = (ip[0] & 15u) * 4;

	for (uint32_t i = 0; i < bytes; i += 2)
		sum += (uint32_t)ip[i] << 8 | ip[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return sum + (sum >> 16) == 0xffff;
}

static bool take_ip(const uint8_t *frame, const struct nupa_headers *h,
		    struct nupa_roce_packet *out)
{
	const uint8_t *ip = ip_header(frame);

	memcpy(out->source, h->source, sizeof(out->source));
	memcpy(out->destination, h->destination, sizeof(out->destination));
	if (h->ip_version == 4) {
		out->traffic_class = ip[1];
		out->hop_limit = ip[8];
		return ipv4_sum_right(ip);
	}
	out->traffic_class = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
	out->hop_limit = ip[7];
	return true;
}

bool nupa_inject_decode(const uint8_t *frame, uint32_t bytes, struct nupa_roce_packet *out,
			const uint8_t **payload)
{
	const uint32_t link = NUPA_LINKTYPE_ETHERNET;
	struct nupa_span span = { .captured_bytes = bytes, .original_bytes = bytes };
	struct nupa_headers h;
	uint32_t bth_at, end;

	memset(out, 0, sizeof(*out));
	nupa_decode(frame, bytes, &span, sizeof(span), 1, &link, 1, NUPA_DECODE_CHECK_ICRC, &h);
	/* A GRH in Ethernet, RoCE v1, has no ports; a packet without an ICRC was cut off. */
	if (h.layer != NUPA_LAYER_TRANSPORT || h.destination_port != NUPA_ROCE_PORT ||
	    (h.fault != NUPA_FAULT_NONE && h.fault != NUPA_FAULT_OPCODE) ||
	    h.icrc_state == NUPA_ICRC_NONE)
		return false;
	bth_at = h.payload_offset - nupa_opcode(h.opcode).bytes - NUPA_BTH_BYTES;
	end = h.payload_offset + h.payload_bytes + h.padcount + NUPA_ICRC_BYTES;
	if (!nupa_roce_read(frame + bth_at, end - bth_at, out, payload) || !take_ip(frame, &h, out))
		return false;
	out->frame_bytes = bytes;
	if (h.icrc_state == NUPA_ICRC_RIGHT)
		out->flags |= NUPA_ROCE_ICRC_RIGHT;
	return true;
}

int nupa_inject_frame(struct nupa_injector *injector, const void *frame, uint32_t bytes,
		      uint64_t timeout_ns, struct nupa_inject_result *result)
{
	struct nupa_roce_packet packet;
	const uint8_t *payload;

	*result = (struct nupa_inject_result){ .expected_psn = UINT32_MAX };
	if (bytes > nupa_injector_max_bytes(injector))
		return -EMSGSIZE;
	if (!nupa_inject_decode(frame, bytes, &packet, &payload)) {
		result->verdict = NUPA_INJECT_DROPPED;
		result->reason = NUPA_INJECT_MALFORMED;
		return 0;
	}
	return nupa_inject(injector, &packet, payload, timeout_ns, result);
}
