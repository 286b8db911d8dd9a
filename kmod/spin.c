// SPDX-License-Identifier: GPL-2.0-only
/*
 * The delay. The task keeps its CPU, as if the function itself took longer, but gives it up to
 * others that want it, and stops when it is killed or when the target is removed or disabled.
 */
#include <linux/ktime.h>
#include <linux/processor.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "spin.h"
#include "targets.h"

/**
 * sb_spin - spins
 * @target: whose delay this is
 * @start_ns: when the delay began, by ktime_get_ns()
 * @delay_ns: for how long
 *
 * Handlers of uprobes run in the context of the task, with interrupts on, and may sleep.
 *
 * Return: the time since the start; less than @delay_ns if the spin was ended early.
 */
u64 sb_spin(const struct sb_target *target, u64 start_ns, u64 delay_ns)
{
	for (;;) {
		u64 spent_ns = ktime_get_ns() - start_ns;

		if (spent_ns >= delay_ns || !sb_target_is_active(target) ||
		    fatal_signal_pending(current))
			return spent_ns;
		cond_resched();
		cpu_relax();
	}
}
