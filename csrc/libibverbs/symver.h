/* SPDX-License-Identifier: BSD-3-Clause
 * One function under several names and versions.  The default version of a name
 * is where libibverbs.map lists it; these give the others. */
#ifndef NUPA_SYMVER_H
#define NUPA_SYMVER_H

/* name is another name of target, which is defined in the same file. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator takes none */
#define NUPA_ALIAS(target, name) extern __typeof__(target) name __attribute__((alias(#target)))

/* name@node is target, independent of other nodes; with "@@" before the node it is the default.
 * The assembler requires the alias: one symbol for each version. */
#define NUPA_VERSION(target, name, node, tag)                                                      \
	NUPA_ALIAS(target, name##_##tag);                                                          \
	__asm__(".symver " #name "_" #tag "," #name node)

/* A name between libibverbs and drivers, in all driver ABIs: of rdma-core v34 to v56, v57 and v58,
 * v59 to v63, v64, v65.  A driver of an older one asks for fewer names than are here. */
#define NUPA_DRIVER_SYMBOL(target, name)                                                           \
	NUPA_VERSION(target, name, "@IBVERBS_PRIVATE_34", p34);                                    \
	NUPA_VERSION(target, name, "@IBVERBS_PRIVATE_57", p57);                                    \
	NUPA_VERSION(target, name, "@IBVERBS_PRIVATE_59", p59);                                    \
	NUPA_VERSION(target, name, "@IBVERBS_PRIVATE_64", p64);                                    \
	NUPA_VERSION(target, name, "@@IBVERBS_PRIVATE_65", p65);

#endif
