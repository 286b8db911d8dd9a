// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cpumask.h>

#include "counts.h"

void sb_counts_add(struct sb_counts *sum, const struct sb_counts *more)
{
	sum->hits += more->hits;
	sum->injected_ns += more->injected_ns;
	sum->interrupted += more->interrupted;
}

/* Adds up all CPUs. Calls that are counted meanwhile may or may not be included. */
void sb_counts_read(struct sb_counts __percpu *counts, struct sb_counts *sum)
{
	int cpu;

	*sum = (struct sb_counts){};
	for_each_possible_cpu(cpu) {
		const struct sb_counts *one = per_cpu_ptr(counts, cpu);
		/* Words of 64 bits are read whole on the processors that this module is for. */
		const struct sb_counts now = {
			.hits = READ_ONCE(one->hits),
			.injected_ns = READ_ONCE(one->injected_ns),
			.interrupted = READ_ONCE(one->interrupted),
		};

		sb_counts_add(sum, &now);
	}
}
