/* SPDX-License-Identifier: BSD-3-Clause
 * Every limit of the engine, with its unit in its name. */
#ifndef NUPA_LIMITS_H
#define NUPA_LIMITS_H

#include "base/machine.h"

/* Slot 0 is never given out.  With more than SLOTS_FEW there are fewer QPs each: see qpn.h.  In ten
 * bits one number is left for what is no slot. */
#define NUPA_SLOT_BITS 10u
#define NUPA_SLOTS_MAX 1023u
#define NUPA_SLOTS_FEW 256u
#define NUPA_QP_INDEX_BITS 16u
#define NUPA_QP_MAX (1u << NUPA_QP_INDEX_BITS)

/* A key is 32 bits: index << 12 | variant. */
#define NUPA_MR_INDEX_BITS 20u
#define NUPA_MR_MAX (1u << NUPA_MR_INDEX_BITS)
#define NUPA_KEY_VARIANT_BITS 12u

#define NUPA_HOSTS_MAX 254u /* 10.0.0.1 .. 10.0.0.254 */
#define NUPA_PORTS_MAX 1024u
#define NUPA_HOPS_MAX 15u
#define NUPA_NAME_BYTES 32u
#define NUPA_PKEYS_MAX 128u       /* of a port: four blocks (IBTA 14.2.5.7) */
#define NUPA_PKEY_DEFAULT 0xffffu /* the default partition, full member (IBTA 10.9.1.1) */
#define NUPA_WIRES_MAX 16u        /* of a fabric */
#define NUPA_KERNELS_MAX 1024u    /* that ever open one fabric; 10 bits of a claim */
#define NUPA_MACHINES_MAX 64u     /* that a trunk joins */

/* Limits of the creator's choices (struct nupa_config). */
#define NUPA_SLOTS_MIN 2u
#define NUPA_RING_LINES_MIN 16u
#define NUPA_RING_LINES_MAX 65536u
#define NUPA_DMA_BYTES_MIN 4096u
#define NUPA_DMA_BYTES_MAX (64u << 20)
#define NUPA_EXTENT_BYTES_MIN NUPA_PAGE_BYTES
#define NUPA_EXTENT_BYTES_MAX (1u << 30)
#define NUPA_EXTENTS_MAX (1u << 20)
#define NUPA_POOL_BYTES_MAX (UINT64_C(1) << 40)

/* Limits of one process at one device (ibv_device_attr). */
#define NUPA_QP_WR_MAX 32768u
#define NUPA_SGE_MAX 32u
#define NUPA_INLINE_MAX_BYTES 512u
#define NUPA_CQ_MAX 65536u
#define NUPA_CQE_MAX 4194303u
#define NUPA_SRQ_MAX 65536u
#define NUPA_SRQ_WR_MAX 32768u
#define NUPA_PD_MAX 32768u
#define NUPA_AH_MAX 65536u
#define NUPA_GID_TABLE_LEN 8             /* some are empty, as with hardware */
#define NUPA_GIDS 3                      /* those that are not, on Ethernet, without wires */
#define NUPA_WIRE_LOCALS_MAX 5u          /* different local addresses of wires: the other GIDs */
#define NUPA_MCAST_GROUPS_MAX 1024u      /* of one process */
#define NUPA_MCAST_GROUP_QPS_MAX 256u    /* of one process, in one group */
#define NUPA_MCAST_MEMBERSHIPS_MAX 4096u /* of one process, in all its groups */
#define NUPA_XRCD_MAX 128u               /* of one process */
#define NUPA_XRC_SHADOWS_MAX 4096u       /* connections by QPs of others to SRQs of one process */
#define NUPA_RD_ATOMIC_MAX 16u
#define NUPA_MSG_MAX_BYTES (1u << 31)
#define NUPA_MTU_BYTES 4096u
#define NUPA_WIRE_MTU_MIN_BYTES 256u /* IBTA 9.2.5; the most is NUPA_MTU_BYTES */
#define NUPA_GRH_BYTES 40u
#define NUPA_GRH_NEXT_HEADER 0x1bu /* IBTA 8.3.3: BTH follows */

/* Private memory that is promoted: separate pieces of it, and the largest region. */
#define NUPA_PROMOTED_MAX 8192u
#define NUPA_PROMOTE_MAX_BYTES (UINT64_C(1) << 40)

/* Regions and windows of them in a fabric (region.h). */
#define NUPA_REGIONS_MAX 4096u
#define NUPA_REGION_MAPPINGS_MAX 4096u
#define NUPA_REGION_WAYS_MAX 16u
/* Of a segment in a device's memory. */
#define NUPA_REGIONS_MACHINES_MAX 256u
#define NUPA_REGION_MAPPINGS_MACHINES_MAX 256u

/* Rows of the control table (control_layout.h). */
#define NUPA_TENANTS_MAX 256u
#define NUPA_PARTITIONS_MAX 1024u
#define NUPA_MEMBERS_MAX 8192u
#define NUPA_EVENTS_MAX 4096u
/* Of a segment in a device's memory. */
#define NUPA_TENANTS_MACHINES_MAX 64u
#define NUPA_PARTITIONS_MACHINES_MAX 128u
#define NUPA_MEMBERS_MACHINES_MAX 1024u
#define NUPA_EVENTS_MACHINES_MAX 512u
#define NUPA_ACCELERATORS_MAX 1024u /* of a UALink pod */

/* rdma_cm: the ports that are bound on one host, in buckets by their low bits. */
#define NUPA_CM_BUCKETS 4096u
#define NUPA_CM_BUCKET_WORDS 8u

#endif
