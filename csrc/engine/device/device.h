/* SPDX-License-Identifier: BSD-3-Clause
 * Devices and contexts: what a program opens, each on an attachment. */
#ifndef NUPA_DEVICE_H
#define NUPA_DEVICE_H

#include "engine/attachment/attachment.h"

/* device_list.c */
/* The device of an imported context: the one of the list, which it becomes where that is empty. */
struct ibv_device *nupa_device_adopt(struct nupa_fabric *fabric, uint32_t host);

/* card.c: the contents of a context's command descriptor, which its reader does not trust. */
struct nupa_card {
	uint64_t magic;
	uint64_t generation;
	uint32_t pid, fabric_fd; /* the exporter's: for a fabric without a path */
	uint32_t slot, epoch, host, mover;
	char path[256];
};
/* A descriptor, or -errno and the call that failed. */
int nupa_context_cmd_fd(const struct nupa_engine *engine, const char **call);
int nupa_card_read(int fd, struct nupa_card *card); /* 0 or EINVAL */

/* poll.c: completions that are there, without running the engine; how many. */
int nupa_cq_take(struct nupa_cq *cq, int num_entries, struct ibv_wc *wc);
/* An empty poll runs the engine. */
void nupa_cq_drive(struct nupa_engine *engine, struct nupa_cq *cq);
void nupa_cq_arm(struct nupa_engine *engine, struct nupa_cq *cq, bool solicited_only);

/* device.c */
/* Its PCI identity.  The vendor is not an assigned one: no driver must take us for its hardware. */
#define NUPA_VENDOR_ID 0x0cf5
#define NUPA_PART_ID 1
#define NUPA_HW_VERSION 1
extern const struct ibv_device_attr nupa_device_attr;
uint64_t nupa_device_caps(void); /* device_cap_flags_ex */
/* PortInfo.CapabilityMask of a host's InfiniBand port, but for IsSM: what csrc/mad answers. */
#define NUPA_INFINIBAND_CAPS                                                                       \
	(IBV_PORT_CM_SUP | IBV_PORT_SYS_IMAGE_GUID_SUP | IBV_PORT_EXTENDED_SPEEDS_SUP |            \
	 IBV_PORT_CLIENT_REG_SUP)
/* A host's port, without the counters of violations. */
void nupa_host_port_attr(const struct nupa_fabric *fabric, uint32_t host,
			 struct ibv_port_attr *attr);
/* Its nupa_net0, where it has one and the process is in its network namespace, else 0. */
uint32_t nupa_host_netdev(const struct nupa_fabric *fabric, uint32_t host);

/* ops.c */
void nupa_fill_ops(struct verbs_context *context);

#endif
