/* SPDX-License-Identifier: BSD-3-Clause
 * The modes of the program nupa-guest. */
#ifndef NUPA_VM_MAIN_H
#define NUPA_VM_MAIN_H

/* Process 1; does not return. */
int guest_init(void) __attribute__((noreturn));

#endif
