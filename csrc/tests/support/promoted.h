/* SPDX-License-Identifier: BSD-3-Clause
 * Short words for tests of promotion. */
#ifndef NUPA_TESTS_PROMOTED_H
#define NUPA_TESTS_PROMOTED_H

#include "engine/promote/promote.h"

#include <stdbool.h>

struct sock_filter;

size_t page(void);
/* Whether memory can be promoted here; says so if not. */
bool promotion_works(void);
/* n pages of private memory. */
uint8_t *map_pages(size_t n, int prot);
/* The same, writable, of bytes of that value. */
uint8_t *filled_pages(size_t n, int fill);
bool is_filled(const uint8_t *at, size_t bytes, uint8_t with);
/* All of it, in one range. */
struct nupa_shared_range promote_one(void *at, size_t bytes);
void stays_private(void *at, size_t bytes);
uint64_t bytes_in_memfd(void);
/* Whether the userfaultfd that we get holds off what system calls write. */
bool sees_system_calls(void);
/* Root becomes an ordinary user. */
void become_nobody(void);
/* This process's system calls pass a seccomp filter of *n* instructions from now on. */
void filter_system_calls(struct sock_filter *code, uint16_t n);

#endif
