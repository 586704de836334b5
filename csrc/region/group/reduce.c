/* SPDX-License-Identifier: BSD-3-Clause
 * One loop for each type and operator, made by macros, so that compilers vectorise them. */
#include "region/group/reduce.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define BLOCK_ELEMENTS 512u

/* --- elements ---------------------------------------------------------------------- */

static inline float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* IEEE 754 binary16: 5 bits of exponent, 10 of fraction. */
static inline float widen_f16(uint16_t half)
{
	const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
	const uint32_t rest = (uint32_t)(half & 0x7fffu) << 13;

	if (rest >= 0x0f800000u) /* infinities and NaNs */
		return float_of(sign | (rest + 0x70000000u));
	if (rest >= 0x00800000u)
		return float_of(sign | (rest + 0x38000000u));
	return float_of(sign | bits_of((float)(half & 0x3ffu) * 0x1p-24f)); /* subnormal */
}

static inline uint16_t round_f16(float value)
{
	const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
	const uint32_t sign = bits >> 16 & 0x8000u;
	uint32_t rounded;

	if (magnitude > 0x7f800000u) /* NaNs become quiet */
		return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
	if (magnitude >= 0x47800000u) /* 2^16 and above; from 65520 on the sum below carries */
		return (uint16_t)(sign | 0x7c00u);
	if (magnitude >= 0x38800000u)
		rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
	else /* the addition drops what is below 2^-24, to nearest even */
		rounded = bits_of(float_of(magnitude) * 0x1p24f + 0x1p23f) & 0x7ffu;
	return (uint16_t)(sign | rounded);
}

/* bfloat16: the upper half of binary32. */
static inline float widen_bf16(uint16_t half)
{
	return float_of((uint32_t)half << 16);
}

static inline uint16_t round_bf16(float value)
{
	const uint32_t bits = bits_of(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#define SAME(value) (value)

/* --- operators --------------------------------------------------------------------- */

#define ADD(a, b) ((a) + (b))
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((b) > (a) ? (b) : (a))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))
/* minNum and maxNum; equal values differ in the sign of zero alone. */
#define FLOAT_MIN(a, b)                                                                            \
	((a) < (b)    ? (a)                                                                        \
	 : (b) < (a)  ? (b)                                                                        \
	 : (a) == (b) ? (signbit(a) ? (a) : (b))                                                   \
	 : isnan(a)   ? (b)                                                                        \
		      : (a))
#define FLOAT_MAX(a, b)                                                                            \
	((a) > (b)    ? (a)                                                                        \
	 : (b) > (a)  ? (b)                                                                        \
	 : (a) == (b) ? (signbit(a) ? (b) : (a))                                                   \
	 : isnan(a)   ? (b)                                                                        \
		      : (a))

/* --- loops ------------------------------------------------------------------------- */

#define TAKE(case_, accumulator, element, widen, fold)                                             \
	if (operator_ == (case_))                                                                  \
		for (uint64_t i = 0; i < count; i++) {                                             \
			element found;                                                             \
			memcpy(&found, (const uint8_t *)from + i * sizeof(found), sizeof(found));  \
			const accumulator operand = (accumulator)widen(found);                     \
			((accumulator *)accumulators)[i] =                                         \
			    fold(((accumulator *)accumulators)[i], operand);                       \
		}

/* Sums of signed integers are those of unsigned ones: they wrap. */
#define INTEGERS(name, signed_, unsigned_)                                                         \
	static void take_##name(uint32_t operator_, void *accumulators, const void *from,          \
				uint64_t count)                                                    \
	{                                                                                          \
		TAKE(NUPA_REDUCE_ADD, unsigned_, unsigned_, SAME, ADD)                             \
		TAKE(NUPA_REDUCE_MIN, signed_, signed_, SAME, MIN)                                 \
		TAKE(NUPA_REDUCE_MAX, signed_, signed_, SAME, MAX)                                 \
		TAKE(NUPA_REDUCE_AND, unsigned_, unsigned_, SAME, AND)                             \
		TAKE(NUPA_REDUCE_OR, unsigned_, unsigned_, SAME, OR)                               \
		TAKE(NUPA_REDUCE_XOR, unsigned_, unsigned_, SAME, XOR)                             \
	}

#define FLOATS(name, accumulator, element, widen)                                                  \
	static void take_##name(uint32_t operator_, void *accumulators, const void *from,          \
				uint64_t count)                                                    \
	{                                                                                          \
		TAKE(NUPA_REDUCE_ADD, accumulator, element, widen, ADD)                            \
		TAKE(NUPA_REDUCE_MIN, accumulator, element, widen, FLOAT_MIN)                      \
		TAKE(NUPA_REDUCE_MAX, accumulator, element, widen, FLOAT_MAX)                      \
	}

FLOATS(f16, float, uint16_t, widen_f16)
FLOATS(bf16, float, uint16_t, widen_bf16)
FLOATS(f32, float, float, SAME)
FLOATS(f64, double, double, SAME)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(u32, uint32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u64, uint64_t, uint64_t)

#define HALVES(name)                                                                               \
	static void load_##name(void *accumulators, const void *from, uint64_t count)              \
	{                                                                                          \
		float *sums = accumulators;                                                        \
		for (uint64_t i = 0; i < count; i++) {                                             \
			uint16_t half;                                                             \
			memcpy(&half, (const uint8_t *)from + i * sizeof(half), sizeof(half));     \
			sums[i] = widen_##name(half);                                              \
		}                                                                                  \
	}                                                                                          \
	static void round_all_##name(void *to, const void *accumulators, uint64_t count)           \
	{                                                                                          \
		const float *sums = accumulators;                                                  \
		for (uint64_t i = 0; i < count; i++) {                                             \
			const uint16_t half = round_##name(sums[i]);                               \
			memcpy((uint8_t *)to + i * sizeof(half), &half, sizeof(half));             \
		}                                                                                  \
	}

HALVES(f16)
HALVES(bf16)

static const struct kind {
	uint32_t bytes;
	bool is_float;
	void (*take)(uint32_t operator_, void *accumulators, const void *from, uint64_t count);
	/* NULL: the accumulator is of the element's type. */
	void (*load)(void *accumulators, const void *from, uint64_t count);
	void (*round)(void *to, const void *accumulators, uint64_t count);
} kinds[NUPA_REDUCE_TYPES] = {
	[NUPA_REDUCE_F16] = { 2, true, take_f16, load_f16, round_all_f16 },
	[NUPA_REDUCE_BF16] = { 2, true, take_bf16, load_bf16, round_all_bf16 },
	[NUPA_REDUCE_F32] = { 4, true, take_f32, NULL, NULL },
	[NUPA_REDUCE_F64] = { 8, true, take_f64, NULL, NULL },
	[NUPA_REDUCE_I32] = { 4, false, take_i32, NULL, NULL },
	[NUPA_REDUCE_U32] = { 4, false, take_u32, NULL, NULL },
	[NUPA_REDUCE_I64] = { 8, false, take_i64, NULL, NULL },
	[NUPA_REDUCE_U64] = { 8, false, take_u64, NULL, NULL },
};

uint32_t nupa_reduce_bytes(uint32_t type)
{
	return type < NUPA_REDUCE_TYPES ? kinds[type].bytes : 0;
}

uint32_t nupa_reduce_accumulator(uint32_t type)
{
	return kinds[type].load ? NUPA_REDUCE_F32 : type; /* HALVES */
}

bool nupa_reduce_permits(uint32_t type, uint32_t operator_)
{
	if (type >= NUPA_REDUCE_TYPES || operator_ >= NUPA_REDUCE_OPERATORS)
		return false;
	return !kinds[type].is_float || operator_ <= NUPA_REDUCE_MAX;
}

void nupa_reduce_load(uint32_t type, void *accumulators, const void *from, uint64_t count)
{
	if (kinds[type].load)
		kinds[type].load(accumulators, from, count);
	else
		memcpy(accumulators, from, count * kinds[type].bytes);
}

void nupa_reduce_take(uint32_t type, uint32_t operator_, void *accumulators, const void *from,
		      uint64_t count)
{
	kinds[type].take(operator_, accumulators, from, count);
}

void nupa_reduce_round(uint32_t type, void *to, const void *accumulators, uint64_t count)
{
	if (kinds[type].round)
		kinds[type].round(to, accumulators, count);
	else
		memcpy(to, accumulators, count * kinds[type].bytes);
}

int nupa_reduce_into(void *into, const void *from, uint64_t count, uint32_t type,
		     uint32_t operator_)
{
	_Alignas(8) uint8_t accumulators[BLOCK_ELEMENTS * NUPA_REDUCE_ACCUMULATOR_BYTES];
	const uint64_t bytes = nupa_reduce_bytes(type);

	if (!nupa_reduce_permits(type, operator_))
		return -EINVAL;
	for (uint64_t at = 0, n; at < count; at += n) {
		uint8_t *to = (uint8_t *)into + at * bytes;

		n = count - at < BLOCK_ELEMENTS ? count - at : BLOCK_ELEMENTS;
		nupa_reduce_load(type, accumulators, to, n);
		nupa_reduce_take(type, operator_, accumulators, (const uint8_t *)from + at * bytes,
				 n);
		nupa_reduce_round(type, to, accumulators, n);
	}
	return 0;
}
