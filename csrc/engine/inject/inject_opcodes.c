/* SPDX-License-Identifier: BSD-3-Clause
 * The opcodes of packets: which operations a service has, and which of them carry a payload (IBTA
 * table 38, A14, A19). */
#include "engine/inject/inject_internal.h"

#define BIT(operation) (1u << OPERATION_##operation)
#define SENDS_AND_WRITES (BIT(READ) - 1)
#define READS_AND_ATOMICS ((BIT(FETCH_ADD) << 1) - BIT(READ))
#define INVALIDATES (BIT(SEND_LAST_INV) | BIT(SEND_ONLY_INV))
#define RESYNC (1u << 0x15) /* of RD */

bool nupa_inject_knows(uint8_t opcode)
{
	static const uint32_t operations[8] = {
		[SERVICE_RC >> 5] = SENDS_AND_WRITES | READS_AND_ATOMICS | INVALIDATES |
				    BIT(FLUSH) | BIT(ATOMIC_WRITE),
		[SERVICE_UC >> 5] = SENDS_AND_WRITES,
		[SERVICE_RD >> 5] = SENDS_AND_WRITES | READS_AND_ATOMICS | RESYNC,
		[SERVICE_UD >> 5] = BIT(SEND_ONLY) | BIT(SEND_ONLY_IMM),
		[OPCODE_CNP >> 5] = 1u << (OPCODE_CNP & OPCODE_OPERATION),
		[SERVICE_XRC >> 5] = SENDS_AND_WRITES | READS_AND_ATOMICS | INVALIDATES,
	};

	return operations[opcode >> 5] >> (opcode & OPCODE_OPERATION) & 1;
}

bool nupa_inject_carries(uint8_t opcode)
{
	const uint32_t with_payload = SENDS_AND_WRITES | BIT(READ_RESP_FIRST) |
				      BIT(READ_RESP_MIDDLE) | BIT(READ_RESP_LAST) |
				      BIT(READ_RESP_ONLY) | INVALIDATES | BIT(ATOMIC_WRITE);

	return opcode != OPCODE_CNP && nupa_inject_knows(opcode) &&
	       with_payload >> (opcode & OPCODE_OPERATION) & 1;
}
