/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SPEED_BUMP_SPIN_H
#define SPEED_BUMP_SPIN_H

#include <linux/types.h>

struct sb_target;

u64 sb_spin(const struct sb_target *target, u64 start_ns, u64 delay_ns);

#endif
