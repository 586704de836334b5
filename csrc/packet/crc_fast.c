/* SPDX-License-Identifier: BSD-3-Clause
 * CRC-32 by carry-less multiplication on x86 (V. Gopal et al., "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", 2009), and by the CRC32 instructions of ARMv8.
 *
 * x86: sixteen bytes A followed by D bits are congruent to A.first * x^(D + 64) + A.second * x^D.
 * So a register is folded D bits further by two multiplications with constants x^n mod P.  The
 * bits are reflected: the product of reflected factors lies one bit too low and 32-bit constants
 * 32 bits too high, so the constants are x^(D + 32) and x^(D - 32), reflected, shifted by one.
 * The last 64 bits are reduced as Barrett does, without tables: those of a short packet's CRC
 * would come from memory each time that the kernel has run in between. */
#include "packet/crc_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FOLD_128 0x0ccaa009e, 0x1751997d0  /* x^96, x^160 */
#define FOLD_256 0x15a546366, 0x0f1da05aa  /* x^224, x^288 */
#define FOLD_512 0x1c6e41596, 0x154442bd4  /* x^480, x^544 */
#define FOLD_1024 0x14a7fe880, 0x1e88ef372 /* x^992, x^1056 */
#define FOLD_2048 0x1322d1430, 0x11542778a /* x^2016, x^2080 */
#define FOLD_64 0x163cd6124                /* x^64 */
#define BARRETT 0x1f7011641, 0x1db710641   /* x^64 / P, P */

#define VECTOR __attribute__((target("pclmul,sse4.1")))
#define DOUBLE __attribute__((target("avx2,vpclmulqdq,pclmul")))
#define WIDE __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul")))

#define NOTHING 0x8080808080808080 /* to PSHUFB */

#define VECTOR_BYTES_MIN 16u
#define DOUBLE_BYTES_MIN 256u
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

/* Onto the last sixteen bytes, of which `bytes`, fewer than sixteen, are not in the register. */
VECTOR static inline __m128i fold_rest(__m128i a, const uint8_t *data, size_t bytes)
{
	/* Sixteen bytes of nothing, those of the register, and sixteen of nothing. */
	static const uint64_t shifts[6] = {
		NOTHING, NOTHING, 0x0706050403020100, 0x0f0e0d0c0b0a0908, NOTHING, NOTHING
	};
	const uint8_t *none = (const uint8_t *)shifts;
	const __m128i up = load(none + bytes), down = load(none + 16 + bytes);
	const __m128i first = _mm_shuffle_epi8(a, up), last = _mm_shuffle_epi8(a, down);

	/* Where `down` has no byte of the register, there is one of the data. */
	return fold(first, _mm_set_epi64x(FOLD_128),
		    _mm_blendv_epi8(last, load(data + bytes - 16), down));
}

/* The rest from a register on that stands for all bytes before `data`, at least sixteen. */
VECTOR static uint32_t finish(__m128i a, const uint8_t *data, size_t bytes)
{
	const __m128i by = _mm_set_epi64x(FOLD_128), barrett = _mm_set_epi64x(BARRETT);
	const __m128i low = _mm_set_epi32(0, 0, 0, -1);
	__m128i product;

	for (; bytes >= 16; bytes -= 16, data += 16)
		a = fold(a, by, load(data));
	if (bytes)
		a = fold_rest(a, data, bytes);
	a = _mm_xor_si128(_mm_clmulepi64_si128(a, by, 0x10), _mm_srli_si128(a, 8));
	a = _mm_xor_si128(
	    _mm_clmulepi64_si128(_mm_and_si128(a, low), _mm_set_epi64x(0, FOLD_64), 0x00),
	    _mm_srli_si128(a, 4));
	product = _mm_clmulepi64_si128(_mm_and_si128(a, low), barrett, 0x10);
	product = _mm_clmulepi64_si128(_mm_and_si128(product, low), barrett, 0x00);
	return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, product), 1);
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

DOUBLE static inline __m256i load_double(const uint8_t *data)
{
	return _mm256_loadu_si256((const __m256i *)data);
}

DOUBLE static inline __m256i fold_double(__m256i a, __m256i by, __m256i onto)
{
	__m256i first = _mm256_clmulepi64_epi128(a, by, 0x00);
	__m256i second = _mm256_clmulepi64_epi128(a, by, 0x11);

	return _mm256_xor_si256(_mm256_xor_si256(first, second), onto);
}

DOUBLE static uint32_t by_double_vectors(uint32_t state, const uint8_t *data, size_t bytes)
{
	const __m256i by = _mm256_broadcastsi128_si256(_mm_set_epi64x(FOLD_1024));
	const __m256i by_one = _mm256_broadcastsi128_si256(_mm_set_epi64x(FOLD_256));
	__m256i a, b, c, d;
	__m128i lane;

	if (bytes < DOUBLE_BYTES_MIN)
		return by_vectors(state, data, bytes);
	a = _mm256_xor_si256(load_double(data),
			     _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)state)));
	b = load_double(data + 32);
	c = load_double(data + 64);
	d = load_double(data + 96);
	for (data += 128, bytes -= 128; bytes >= 128; data += 128, bytes -= 128) {
		a = fold_double(a, by, load_double(data));
		b = fold_double(b, by, load_double(data + 32));
		c = fold_double(c, by, load_double(data + 64));
		d = fold_double(d, by, load_double(data + 96));
	}
	d = fold_double(fold_double(fold_double(a, by_one, b), by_one, c), by_one, d);
	for (; bytes >= 32; data += 32, bytes -= 32)
		d = fold_double(d, by_one, load_double(data));
	lane = fold(_mm256_castsi256_si128(d), _mm_set_epi64x(FOLD_128),
		    _mm256_extracti128_si256(d, 1));
	_mm256_zeroupper();
	return finish(lane, data, bytes);
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
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq"))
		return by_double_vectors;
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
