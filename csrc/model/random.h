/* SPDX-License-Identifier: BSD-3-Clause
 * splitmix64: random numbers that follow from a seed alone. */
#ifndef NUPA_MODEL_RANDOM_H
#define NUPA_MODEL_RANDOM_H

#include <stdint.h>

static inline uint64_t nupa_model_mix(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

static inline uint64_t nupa_model_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u;
	return nupa_model_mix(*state);
}

#endif
