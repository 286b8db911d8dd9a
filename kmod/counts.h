/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The counters of a target: one set for each CPU, so that no two CPUs write to the same cache line
 * when the target is hit.
 */
#ifndef SPEED_BUMP_COUNTS_H
#define SPEED_BUMP_COUNTS_H

#include <linux/percpu.h>
#include <linux/types.h>

struct sb_counts {
	/* Calls that were to be delayed; counted as the spin begins. */
	u64 hits;
	/* Time spun, as measured. */
	u64 injected_ns;
	/* Spins that ended early: process killed, target removed, or module disabled. */
	u64 interrupted;
};

void sb_counts_add(struct sb_counts *sum, const struct sb_counts *more);
void sb_counts_read(struct sb_counts __percpu *counts, struct sb_counts *sum);

#endif
