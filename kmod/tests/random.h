/* SPDX-License-Identifier: GPL-2.0-only */
/* Random numbers that are the same in each run. */
#ifndef SPEED_BUMP_RANDOM_H
#define SPEED_BUMP_RANDOM_H

#include <stdint.h>

static uint64_t random_state = 0x9e3779b97f4a7c15;

/* xorshift64* */
static inline uint64_t random_number(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545f4914f6cdd1d;
}

/* Less than the limit. */
static inline unsigned int random_below(unsigned int limit)
{
	return (random_number() >> 33) % limit;
}

#endif
