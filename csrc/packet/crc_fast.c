/* SPDX-License-Identifier: BSD-3-Clause
 * CRC-32 by carry-less multiplication on x86 (V. Gopal et al., "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", 2009), and by the CRC32 instructions of ARMv8.
 *
 * x86: sixteen bytes A followed by D bits are congruent to A.first * x^(D + 64) + A.second * x^D.
 * So a register is folded D bits further by two multiplications with constants x^n mod P.  The
 * bits are reflected: the product of reflected factors lies one bit too low and 32-bit constants
 * 32 bits too high, so the constants are x^(D + 32) and x^(D - 32), reflected, shifted by one. */
#include "packet/crc_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FOLD_128 0x0ccaa009e, 0x1751997d0  /* x^96, x^160 */
#define FOLD_512 0x1c6e41596, 0x154442bd4  /* x^480, x^544 */
#define FOLD_2048 0x1322d1430, 0x11542778a /* x^2016, x^2080 */

#define VECTOR __attribute__((target("pclmul,sse4.1")))
#define WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul")))

#define VECTOR_BYTES_MIN 32u
#define WIDE_BYTES_MIN 512u

VECTOR static inline __m128i load(const uint8_t *data)
{
	return _mm_loadu_si128((const __m128i *)data);
}

VECTOR static inline __m128i fold(__m128i a, __m128i by, __m128i onto)
{
	__m128i first = _mm_clmulepi64_si128(a, by, 0x00);
	__m128i second = _mm_clmulepi64_si128(a, by, 0x11);

	return _mm_xor_si128(_mm_xor_si128(first, second), onto);
}

/* The rest from a register on that stands for all bytes before `data`. */
VECTOR static uint32_t finish(__m128i a, const uint8_t *data, size_t bytes)
{
	const __m128i by = _mm_set_epi64x(FOLD_128);
	uint8_t last[16];

	for (; bytes >= 16; bytes -= 16, data += 16)
		a = fold(a, by, load(data));
	_mm_storeu_si128((__m128i *)last, a);
	return nupa_crc_by_tables(nupa_crc_by_tables(0, last, sizeof(last)), data, bytes);
}

VECTOR static uint32_t by_vectors(uint32_t state, const uint8_t *data, size_t bytes)
{
	const __m128i by = _mm_set_epi64x(FOLD_512);
	__m128i a, b, c, d;

	if (bytes < VECTOR_BYTES_MIN)
		return nupa_crc_by_tables(state, data, bytes);
	a = _mm_xor_si128(load(data), _mm_cvtsi32_si128((int)state));
	if (bytes < 128)
		return finish(a, data + 16, bytes - 16);
	b = load(data + 16);
	c = load(data + 32);
	d = load(data + 48);
	for (data += 64, bytes -= 64; bytes >= 64; data += 64, bytes -= 64) {
		a = fold(a, by, load(data));
		b = fold(b, by, load(data + 16));
		c = fold(c, by, load(data + 32));
		d = fold(d, by, load(data + 48));
	}
	b = fold(a, _mm_set_epi64x(FOLD_128), b);
	c = fold(b, _mm_set_epi64x(FOLD_128), c);
	return finish(fold(c, _mm_set_epi64x(FOLD_128), d), data, bytes);
}

WIDE static inline __m512i load_wide(const uint8_t *data)
{
	return _mm512_loadu_si512(data);
}

WIDE static inline __m512i fold_wide(__m512i a, __m512i by, __m512i onto)
{
	__m512i first = _mm512_clmulepi64_epi128(a, by, 0x00);
	__m512i second = _mm512_clmulepi64_epi128(a, by, 0x11);

	return _mm512_ternarylogic_epi64(first, second, onto, 0x96); /* of all three: xor */
}

WIDE static uint32_t by_wide_vectors(uint32_t state, const uint8_t *data, size_t bytes)
{
	const __m512i by = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_2048));
	const __m512i by_one = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_512));
	const __m128i by_lane = _mm_set_epi64x(FOLD_128);
	__m512i a, b, c, d;
	__m128i lane;

	if (bytes < WIDE_BYTES_MIN)
		return by_vectors(state, data, bytes);
	a = _mm512_xor_si512(load_wide(data),
			     _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
	b = load_wide(data + 64);
	c = load_wide(data + 128);
	d = load_wide(data + 192);
	for (data += 256, bytes -= 256; bytes >= 256; data += 256, bytes -= 256) {
		a = fold_wide(a, by, load_wide(data));
		b = fold_wide(b, by, load_wide(data + 64));
		c = fold_wide(c, by, load_wide(data + 128));
		d = fold_wide(d, by, load_wide(data + 192));
	}
	d = fold_wide(fold_wide(fold_wide(a, by_one, b), by_one, c), by_one, d);
	for (; bytes >= 64; data += 64, bytes -= 64)
		d = fold_wide(d, by_one, load_wide(data));
	lane = fold(_mm512_extracti32x4_epi32(d, 0), by_lane, _mm512_extracti32x4_epi32(d, 1));
	lane = fold(lane, by_lane, _mm512_extracti32x4_epi32(d, 2));
	lane = fold(lane, by_lane, _mm512_extracti32x4_epi32(d, 3));
	_mm256_zeroupper();
	return finish(lane, data, bytes);
}

nupa_crc_step *nupa_crc_accelerated(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
		return NULL;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("vpclmulqdq"))
		return by_wide_vectors;
	return by_vectors;
}

#elif defined(__aarch64__)

#include <endian.h>
#include <string.h>
#include <sys/auxv.h>

#define CRC32_BIT (1ul << 7) /* HWCAP_CRC32 */

__attribute__((target("+crc"))) static uint32_t by_instructions(uint32_t state, const uint8_t *data,
								size_t bytes)
{
	for (; bytes >= 8; bytes -= 8, data += 8) {
		uint64_t word;

		memcpy(&word, data, sizeof(word));
		state = __builtin_aarch64_crc32x(state, le64toh(word));
	}
	for (; bytes; bytes--, data++)
		state = __builtin_aarch64_crc32b(state, *data);
	return state;
}

nupa_crc_step *nupa_crc_accelerated(void)
{
	return getauxval(AT_HWCAP) & CRC32_BIT ? by_instructions : NULL;
}

#else

nupa_crc_step *nupa_crc_accelerated(void)
{
	return NULL;
}

#endif
