/* SPDX-License-Identifier: BSD-3-Clause
 * The doorbell of a guest's processes.  They get it from nupa-guest (csrc/guest), which has the
 * device.  It sends each client one message and two files: an eventfd that every interrupt writes
 * to, and the device's registers, to be mapped. */
#ifndef NUPA_BELL_GUEST_H
#define NUPA_BELL_GUEST_H

#include <stdint.h>

#define NUPA_BELL_GUEST_PATH "/run/nupa/bell"
/* Not a version of the ivshmem protocol, whose servers begin with it. */
#define NUPA_BELL_GUEST_MAGIC INT64_C(0x6c6c656270756e01) /* "\1nupbell" */

struct nupa_bell_guest {
	int64_t magic;
	int64_t number; /* of the guest's device among those of its server */
};

/* QEMU, docs/specs/ivshmem-spec.rst: offsets in BAR 0. */
#define IVSHMEM_REGISTERS_BYTES 256u
#define IVSHMEM_IV_POSITION 8u
#define IVSHMEM_DOORBELL 12u /* peer << 16 | vector */

#endif
