/* SPDX-License-Identifier: BSD-3-Clause
 * Reductions of arrays of numbers: the arithmetic of a switch that computes, and of ranks that
 * compute instead of it.
 *
 * Each sum is taken in an accumulator, one operand after the other, and is rounded once, when it is
 * stored (to nearest, ties to even).  The accumulator of f16, bf16 and f32 is f32; the others have
 * their own type.  Sums of integers wrap.  Minimum and maximum of floats are IEEE 754-2008's minNum
 * and maxNum: a number beats a NaN, and -0 is below +0. */
#ifndef NUPA_REDUCE_H
#define NUPA_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
enum nupa_reduce_type {
	NUPA_REDUCE_F16,
	NUPA_REDUCE_BF16,
	NUPA_REDUCE_F32,
	NUPA_REDUCE_F64,
	NUPA_REDUCE_I32,
	NUPA_REDUCE_U32,
	NUPA_REDUCE_I64,
	NUPA_REDUCE_U64,
	NUPA_REDUCE_TYPES,
};

enum nupa_reduce_operator {
	NUPA_REDUCE_ADD,
	NUPA_REDUCE_MIN,
	NUPA_REDUCE_MAX,
	NUPA_REDUCE_AND, /* of integers, as are the next two */
	NUPA_REDUCE_OR,
	NUPA_REDUCE_XOR,
	NUPA_REDUCE_OPERATORS,
};

/* Bytes of an element; 0: no such type. */
uint32_t nupa_reduce_bytes(uint32_t type);
bool nupa_reduce_permits(uint32_t type, uint32_t operator_);
/* into[i] = into[i] op from[i], each rounded.  Neither need be aligned.  -EINVAL: not permitted. */
int nupa_reduce_into(void *into, const void *from, uint64_t count, uint32_t type,
		     uint32_t operator_);
/* cffi: end */

#define NUPA_REDUCE_ACCUMULATOR_BYTES 8u /* of one element, at most */

/* The type of a permitted type's accumulators, which can be operands themselves. */
uint32_t nupa_reduce_accumulator(uint32_t type);

/* Of operations that are permitted.  Accumulators are aligned to 8 bytes; elements need not be. */
void nupa_reduce_load(uint32_t type, void *accumulators, const void *from, uint64_t count);
void nupa_reduce_take(uint32_t type, uint32_t operator_, void *accumulators, const void *from,
		      uint64_t count);
void nupa_reduce_round(uint32_t type, void *to, const void *accumulators, uint64_t count);

#endif
