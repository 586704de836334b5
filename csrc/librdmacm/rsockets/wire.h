/* SPDX-License-Identifier: BSD-3-Clause
 * Messages between two rsockets.  All numbers are big endian.
 *
 *   RDMA WRITE with immediate   bytes for the ring; the immediate is how many
 *   SEND with immediate         a short piece, a credit or the end: rs_wire_kind
 *
 * The private data of request and reply is a hello. */
#ifndef NUPA_RS_WIRE_H
#define NUPA_RS_WIRE_H

#include <stdint.h>

#define RS_WIRE_MAGIC UINT32_C(0x6e757273) /* "nurs" */
#define RS_WIRE_VERSION 1u

/* The upper two bits of a SEND's immediate; the others are its value. */
enum rs_wire_kind {
	RS_WIRE_SHORT = 0,  /* as many bytes as the SEND has */
	RS_WIRE_CREDIT = 1, /* bytes of the ring that may be written again */
	RS_WIRE_SLOTS = 2,  /* receives that were posted again */
	RS_WIRE_END = 3,    /* the stream ends in this direction */
};

#define RS_WIRE_KIND_SHIFT 30u
#define RS_WIRE_VALUE_MASK ((UINT32_C(1) << RS_WIRE_KIND_SHIFT) - 1)

struct rs_wire_hello {
	uint32_t magic;
	uint32_t version;
	uint64_t ring_addr;
	uint32_t ring_bytes;
	uint32_t ring_rkey;
	uint32_t slots;      /* receives for data */
	uint32_t slot_bytes; /* the longest SEND */
	uint64_t table_addr; /* struct rs_wire_mapping[table_entries]; same rkey as the ring */
	uint32_t table_entries;
	uint32_t reserved;
};

/* Memory of the writer that the reader may riowrite to; bytes 0: none. */
struct rs_wire_mapping {
	uint64_t offset;
	uint64_t addr;
	uint64_t bytes;
	uint32_t rkey;
	uint32_t reserved;
};

_Static_assert(sizeof(struct rs_wire_hello) == 48, "56 bytes of private data fit a request");
_Static_assert(sizeof(struct rs_wire_mapping) == 32, "written inline");

/* A datagram: this, then its bytes.  Addresses are IPv6, or IPv4 mapped. */
struct rs_wire_datagram {
	uint32_t magic;
	uint16_t port; /* of the sender */
	uint16_t reserved;
	uint8_t from[16];
	uint8_t to[16]; /* the receiver as the sender knows it: the source of an answer */
};

_Static_assert(sizeof(struct rs_wire_datagram) == 40, "before each datagram");

#endif
