/* SPDX-License-Identifier: BSD-3-Clause
 * A message of a channel: one cache line, whose payload lies inside the line or beside it in the
 * DMA channel. */
#ifndef NUPA_WIRE_H
#define NUPA_WIRE_H

#include "segment/layout/layout.h"

enum nupa_op {
	NUPA_OP_SEND = 1, /* RC, UC, UD; with F_IMM or F_INV */
	NUPA_OP_WRITE,    /* a part of an RDMA write; with F_IMM the last part takes a receive */
	NUPA_OP_READ,     /* request */
	NUPA_OP_ATOMIC,
	NUPA_OP_READ_RESP, /* a part of the data */
	NUPA_OP_ATOMIC_RESP,
	NUPA_OP_ACK,  /* all requests up to ack_psn are executed */
	NUPA_OP_NAK,  /* request `psn` was not executed: see enum nupa_nak */
	NUPA_OP_CM,   /* connection management: engine/cm/internal.h */
	NUPA_OP_NET,  /* a frame of the netdev, or, without F_LAST, padding: net.c */
	NUPA_OP_GONE, /* src_qpn was destroyed: its process's death is not its partner's business */
	NUPA_OP_INJECT,   /* a packet made by hand: inject.c */
	NUPA_OP_INJECTED, /* its verdict */
	NUPA_OP_GROW, /* of the ring alone: it has `imm` lines and length_bytes of DMA from here on
		       */
	NUPA_OP_MAX,
};

enum nupa_msg_flag {
	NUPA_F_FIRST = 1,
	NUPA_F_LAST = 2,
	NUPA_F_DMA = 4,  /* payload lies in the DMA channel */
	NUPA_F_PULL = 8, /* SEND: the receiver fetches what struct nupa_pull says; F_DMA: a list */
	NUPA_F_IMM = 16, /* `imm` holds immediate data, big endian */
	NUPA_F_INV = 32, /* `imm` holds an rkey to invalidate */
	NUPA_F_SOLICITED = 64,
	NUPA_F_ACK = 128, /* ack_psn is valid */
};

/* IBTA 9.7.5.2.8 NAK codes, and two that hardware shows otherwise. */
enum nupa_nak {
	NUPA_NAK_PSN = 0,
	NUPA_NAK_INVALID_REQUEST = 1,
	NUPA_NAK_REMOTE_ACCESS = 2,
	NUPA_NAK_REMOTE_OPERATION = 3,
	NUPA_NAK_RNR = 4,       /* hardware: an RNR NAK syndrome; `timer` */
	NUPA_NAK_NOT_READY = 5, /* hardware: silence, and the requester's timer */
};

struct nupa_reth {
	uint64_t raddr;
	uint32_t rkey;
	uint32_t total_bytes; /* of the whole message */
};

enum nupa_atomic_kind {
	NUPA_ATOMIC_ADD = 0,
	NUPA_ATOMIC_CAS = 1,
	NUPA_ATOMIC_WRITE = 2, /* stores compare_add */
	NUPA_ATOMIC_FLUSH = 3, /* compare_add bytes; swap: enum ibv_placement_type | level << 8 */
};

struct nupa_atomic_eth {
	uint64_t raddr;
	uint32_t rkey;
	uint32_t kind; /* enum nupa_atomic_kind */
	uint64_t compare_add;
	uint64_t swap;
};

#define NUPA_DETH_MULTICAST 2u

struct nupa_deth { /* UD; the payload follows it */
	uint32_t qkey;
	uint32_t flow_label; /* of the GRH */
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t is_global; /* NUPA_DETH_MULTICAST: the MGID stands in ud_data */
	uint16_t pkey;     /* of the sender's QP */
	uint16_t slid;
};

/* One source segment of a pulled SEND, in the sender's address space, and in its region of that
 * lkey. */
struct nupa_pull {
	uint64_t va;
	uint32_t bytes;
	uint32_t lkey;
};

/* The result of an injected packet: struct nupa_inject_result. */
struct nupa_injected {
	uint32_t verdict, reason, syndrome, expected_psn;
};

/* ATOMIC_RESP: syndrome is 0, or this: there is no value. */
#define NUPA_ATOMIC_BARE 1u

/* XRC requests: ack_psn is the number of the SRQ; syndrome is 0 or this: PSNs start here. */
#define NUPA_XRC_RESYNC 1u

/* How a process fetches what another one SENDs. */
enum nupa_pulls {
	NUPA_PULLS_NOTHING = 0,
	NUPA_PULLS_BY_KERNEL = 1, /* process_vm_readv */
	NUPA_PULLS_MAPPED = 2,    /* what it can map of the sender's memory; else the same */
};

#define NUPA_SEND_INLINE_BYTES 32u
#define NUPA_WRITE_INLINE_BYTES 16u
#define NUPA_UD_INLINE_BYTES 16u

struct nupa_msg {
	uint32_t tag; /* lap of the ring + 1; stored last (P1) */
	uint8_t op;
	uint8_t flags;
	uint8_t syndrome; /* enum nupa_nak */
	uint8_t timer;    /* RNR: encoded as ibv_qp_attr.min_rnr_timer */
	uint32_t dest_qpn;
	uint32_t src_qpn;
	uint32_t psn;          /* 24 bits; above them the incarnation of the requester's QP */
	uint32_t ack_psn;      /* likewise, of whom it answers */
	uint32_t length_bytes; /* of the payload of this message */
	uint32_t imm;
	union {
		uint8_t data[NUPA_SEND_INLINE_BYTES];
		struct {
			struct nupa_reth reth;
			uint8_t write_data[NUPA_WRITE_INLINE_BYTES];
		};
		struct nupa_atomic_eth atomic;
		struct {
			struct nupa_deth deth;
			uint8_t ud_data[NUPA_UD_INLINE_BYTES];
		};
		struct {
			uint64_t original;    /* ATOMIC_RESP */
			uint64_t total_bytes; /* SEND with F_PULL, or a SEND in parts */
			union {
				uint64_t offset_bytes; /* READ_RESP, or a SEND in parts */
				struct nupa_pull pull; /* SEND with F_PULL, without F_DMA */
			};
		};
		struct nupa_injected injected;
	};
};
NUPA_ASSERT_SIZE(struct nupa_deth, 16);
NUPA_ASSERT_SIZE(struct nupa_msg, 64);
NUPA_ASSERT_AT(struct nupa_msg, data, 32);

#endif
