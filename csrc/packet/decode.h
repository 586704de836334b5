/* SPDX-License-Identifier: BSD-3-Clause
 * Headers of many packets at once, down to the InfiniBand transport: for filters, statistics and
 * export, for which scapy is too slow.  The input is a capture file or a live ring. */
#ifndef NUPA_PACKET_DECODE_H
#define NUPA_PACKET_DECODE_H

#include "packet/opcodes.h"

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
/* The place of a packet.  The same words in the same order as in nupa_pcapng_record. */
struct nupa_span {
	uint32_t offset; /* in the buffer */
	uint32_t captured_bytes;
	uint32_t original_bytes; /* ignored: truncation shows in the packet's lengths */
	uint32_t interface;
};

/* Link types: LINKTYPE_ numbers of pcap files. */
enum nupa_linktype {
	NUPA_LINKTYPE_ETHERNET = 1,
	NUPA_LINKTYPE_RAW = 101, /* begins with an IPv4 or IPv6 header */
	NUPA_LINKTYPE_SLL = 113, /* Linux cooked: `tcpdump -i any` */
	NUPA_LINKTYPE_INFINIBAND = 247,
	NUPA_LINKTYPE_SLL2 = 276,
};

/* The layer down to which a packet was understood. */
enum nupa_layer {
	NUPA_LAYER_NONE,
	NUPA_LAYER_LINK,      /* ethertype, vlan; or the local route header's LIDs */
	NUPA_LAYER_NETWORK,   /* and the addresses, ip_version, protocol; a GRH counts as IPv6 */
	NUPA_LAYER_PORTS,     /* and the ports of TCP or UDP */
	NUPA_LAYER_TRANSPORT, /* and BTH and its extended headers */
};

/* Why no further. */
enum nupa_fault {
	NUPA_FAULT_NONE,     /* all was understood, or the rest is not of these protocols */
	NUPA_FAULT_SPAN,     /* the span lies outside the buffer, or its interface is unknown */
	NUPA_FAULT_LINK,     /* an unsupported link type */
	NUPA_FAULT_CUT,      /* a header ends behind the packet's last byte */
	NUPA_FAULT_LENGTH,   /* lengths contradict each other, or the number of pad bytes does */
	NUPA_FAULT_FRAGMENT, /* of an IP packet: the headers are missing, or some of them */
	NUPA_FAULT_OPCODE,   /* BTH has an unknown opcode; the rest counts as payload */
};

enum nupa_icrc {
	NUPA_ICRC_NONE,      /* there is none, or it was not captured */
	NUPA_ICRC_UNCHECKED, /* icrc is the packet's */
	NUPA_ICRC_RIGHT,
	NUPA_ICRC_WRONG,
};

enum nupa_bth_flag {
	NUPA_BTH_SOLICITED = 1,
	NUPA_BTH_MIGREQ = 2,
	NUPA_BTH_FECN = 4,
	NUPA_BTH_BECN = 8,
	NUPA_BTH_ACKREQ = 16,
};

/* One packet, in the host's byte order except for the addresses; absent fields are 0. */
struct nupa_headers {
	uint8_t layer; /* enum nupa_layer */
	uint8_t fault; /* enum nupa_fault */
	uint8_t ip_version;
	uint8_t protocol;   /* the protocol after IP; 0x1b for BTH in a GRH */
	uint8_t source[16]; /* IPv6 address or GID; IPv4: ::ffff:a.b.c.d */
	uint8_t destination[16];
	uint16_t ethertype;
	uint16_t vlan; /* the outermost VLAN tag: priority and ID */
	uint16_t source_port;
	uint16_t destination_port;
	uint16_t dlid;
	uint16_t slid;
	uint16_t headers; /* enum nupa_header, or-ed: the present ones */
	uint16_t pkey;
	uint8_t opcode;
	uint8_t bth_flags; /* enum nupa_bth_flag, or-ed */
	uint8_t padcount;
	uint8_t icrc_state; /* enum nupa_icrc */
	uint32_t icrc;      /* big endian, as Wireshark shows it */
	uint32_t dqpn;
	uint32_t psn;
	uint32_t
	    payload_offset; /* from the packet's first byte: behind the last header understood */
	uint32_t payload_bytes; /* captured ones, without padding and ICRC */
	uint32_t rkey;          /* RETH, AtomicETH or IETH */
	uint32_t dma_bytes;     /* RETH */
	uint64_t va;            /* RETH or AtomicETH */
	uint64_t swap;          /* AtomicETH: swapped in, or added */
	uint64_t compare;
	uint64_t original; /* AtomicAckETH */
	uint32_t msn;      /* AETH */
	uint32_t imm;
	uint32_t qkey; /* DETH */
	uint32_t source_qpn;
	uint32_t xrc_srqn;
	uint32_t eecn; /* RDETH */
	uint8_t syndrome;
	uint8_t mad_class;      /* QP 1 of UD: the management class ... */
	uint16_t mad_attribute; /* ... and its message */
	uint32_t pad;
};

enum nupa_decode_flag {
	NUPA_DECODE_CHECK_ICRC = 1, /* compute ICRCs: reads each byte of each packet */
};

/* Decodes n packets of `data` into out[0 .. n).  Spans lie stride_bytes apart; links[i] is the link
 * type of interface i.  Returns how many were understood down to the transport.  No data makes it
 * fail: a defect of a packet is in its own `fault`. */
uint64_t nupa_decode(const uint8_t *data, size_t bytes, const struct nupa_span *spans,
		     size_t stride_bytes, size_t n, const uint32_t *links, uint32_t n_links,
		     uint32_t flags, struct nupa_headers *out);
/* cffi: end */

#endif
