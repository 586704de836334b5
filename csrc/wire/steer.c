/* SPDX-License-Identifier: BSD-3-Clause
 * The program by which the kernel finds the socket of a packet among those of our address: by the
 * slot in the destination QP number and, where several wires share the address, by the source.
 * All else is the keeper's, socket 0.  Classic BPF, whose offset 0 is the BTH (socket(7),
 * SO_ATTACH_REUSEPORT_CBPF). */
#include "wire/keeper_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <string.h>

#define AT_SLOT 5u /* of the BTH: the highest byte of the destination QP number */
#define AT_IPV4_SOURCE 12u
#define AT_IPV6_SOURCE 8u

struct program {
	struct sock_filter code[BPF_MAXINSNS];
	uint32_t n;
};

static void emit(struct program *program, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
	if (program->n < BPF_MAXINSNS)
		program->code[program->n] = (struct sock_filter){ code, yes, no, k };
	program->n++;
}

/* The socket by the slot; nobody's: the keeper's. */
static void by_slot(struct program *program, const struct nupa_keeper *keeper,
		    const struct nupa_kept *wire)
{
	uint32_t sure = keeper->n_group; /* G3 in group.c */

	for (uint32_t i = 1; i < keeper->n_group; i++)
		sure -= !keeper->group[i].member;
	emit(program, BPF_LD | BPF_B | BPF_ABS, 0, 0, AT_SLOT);
	for (uint32_t i = 1; i < sure; i++) {
		const struct nupa_member *member = keeper->group[i].member;

		if (!member || member->wire != wire)
			continue;
		emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, member->slot);
		emit(program, BPF_RET | BPF_K, 0, 0, i);
	}
	emit(program, BPF_RET | BPF_K, 0, 0, 0);
}

/* Skips what follows unless the source is that. */
static void by_source(struct program *program, const struct nupa_keeper *keeper,
		      const struct nupa_kept *wire)
{
	const uint32_t words = keeper->ipv4 ? 1 : 4;
	const uint32_t at = keeper->ipv4 ? AT_IPV4_SOURCE : AT_IPV6_SOURCE;
	const uint8_t *address = wire->remote + (keeper->ipv4 ? 12 : 0);

	for (uint32_t i = 0; i < words; i++) {
		uint32_t be;

		memcpy(&be, address + 4 * i, sizeof(be));
		emit(program, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)SKF_NET_OFF + at + 4 * i);
		/* To the jump behind all words. */
		emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(2 * (words - 1 - i) + 1),
		     ntohl(be));
	}
	emit(program, BPF_JMP | BPF_JA, 0, 0, 1); /* it is */
	emit(program, BPF_JMP | BPF_JA, 0, 0, 0); /* it is not: filled in by the caller */
}

int nupa_steer(struct nupa_keeper *keeper)
{
	static struct program program; /* of the keeper's one thread; too large for a stack */
	struct sock_fprog filter;
	uint32_t wires = 0;

	if (keeper->udp.fd < 0)
		return 0;
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++)
		wires += keeper->wires[i] != NULL;
	program.n = 0;
	for (uint32_t i = 0; i < NUPA_WIRES_MAX; i++) {
		const struct nupa_kept *wire = keeper->wires[i];
		uint32_t skip;

		if (!wire || wire->medium->relays)
			continue;
		if (wires == 1) {
			by_slot(&program, keeper, wire);
			continue;
		}
		by_source(&program, keeper, wire);
		skip = program.n - 1;
		by_slot(&program, keeper, wire);
		if (skip < BPF_MAXINSNS)
			program.code[skip].k = program.n - skip - 1;
	}
	emit(&program, BPF_RET | BPF_K, 0, 0, 0);
	if (program.n > BPF_MAXINSNS)
		return -EUSERS;
	filter = (struct sock_fprog){ (unsigned short)program.n, program.code };
	return setsockopt(keeper->udp.fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter,
			  sizeof(filter))
		   ? -errno
		   : 0;
}
