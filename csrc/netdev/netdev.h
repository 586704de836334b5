/* SPDX-License-Identifier: BSD-3-Clause
 * The netdev: pumps that move frames between TAP devices and the fabric.  A TAP queue is read into
 * the channel to its frames' destination and written from the channel by which they come; see
 * engine/net.h. */
#ifndef NUPA_NETDEV_H
#define NUPA_NETDEV_H

#include "segment/segment.h"

#define NUPA_NETDEV_MTU_MIN_BYTES 68u /* RFC 791: the size that every link must carry */
#define NUPA_NETDEV_MTU_MAX_BYTES 65280u

/* cffi: begin */
struct nupa_pump;

/* One thread's share of the interfaces of hosts on *fabric*: all of one queue number.  NULL with
 * errno. */
struct nupa_pump *nupa_pump_new(struct nupa_fabric *fabric);
/* Not while it runs.  Closes the interfaces' descriptors and leaves the fabric. */
void nupa_pump_free(struct nupa_pump *pump);

/* Attaches as *queue* of *host*'s interface and takes *fd* over, a queue of a TAP device (IFF_TAP |
 * IFF_NO_PI | IFF_VNET_HDR).  It makes that non-blocking and sets header size and offloads.  The
 * device's carrier follows the host's port from now on.  Not while the pump runs.
 * 0, or a negative errno and *why* filled: EBUSY (another process serves it), EUSERS, ENOSPC,
 * EMSGSIZE (DMA channels too small), EINVAL.  The descriptor is the caller's then. */
int nupa_pump_add(struct nupa_pump *pump, uint32_t host, uint32_t queue, int fd, uint32_t mtu_bytes,
		  char *why, size_t why_bytes);
/* Moves frames until nupa_pump_stop: 0.  -ENODEV: the interface of *host is gone, and no longer
 * part of the pump; a further call serves the others.  -ESTALE: the process was stopped for so long
 * that others reaped it.  The caller has to call nupa_pump_free and open the fabric again. */
int nupa_pump_run(struct nupa_pump *pump, int *host);
/* From any thread, or a signal handler. */
void nupa_pump_stop(struct nupa_pump *pump);
/* cffi: end */

#endif
