/* SPDX-License-Identifier: BSD-3-Clause
 * Calls of libc that this library wraps, and their definitions behind it: libc's, or those of
 * another preloaded library. */
#ifndef NUPA_SHIM_CALL_H
#define NUPA_SHIM_CALL_H

/* next: NULL until it is looked up, or where this libc lacks the call. */
struct nupa_shim_call {
	const char *name;
	void *next;
};

/* Declares next, the definition of the wrapped call *name* behind this library. */
#define CALL(name)                                                                                 \
	static struct nupa_shim_call call                                                          \
	    __attribute__((section("nupa_calls"), used)) = { #name, NULL };                        \
	__typeof__(&name) next = (__typeof__(&name))nupa_shim_next_of(&call)

void *nupa_shim_next_of(struct nupa_shim_call *call);

#endif
