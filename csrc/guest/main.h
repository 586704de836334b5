/* SPDX-License-Identifier: BSD-3-Clause
 * What the program nupa-guest can be. */
#ifndef NUPA_VM_MAIN_H
#define NUPA_VM_MAIN_H

/* Process 1; does not come back. */
int guest_init(void) __attribute__((noreturn));

#endif
