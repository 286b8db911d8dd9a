// SPDX-License-Identifier: GPL-2.0-only
/*
 * The uprobe of a target: what a hit does, and the differences between kernels. All of them are in
 * here.
 */
#include <linux/err.h>
#include <linux/errno.h>
#include <linux/ktime.h>
#include <linux/percpu.h>
#include <linux/uprobes.h>
#include <linux/version.h>

#include "probe.h"
#include "process.h"
#include "spin.h"
#include "targets.h"

static void on_hit(struct sb_target *target)
{
	/* The clock first: what the filter takes is a part of the delay. */
	const u64 start_ns = ktime_get_ns();
	const u64 delay_ns = READ_ONCE(target->delay_ns);
	u64 spent_ns;

	if (!sb_target_is_active(target))
		return;
	if (target->process && !sb_current_descends_from(target->process))
		return;
	this_cpu_inc(target->counts->hits);
	if (!delay_ns)
		return;
	spent_ns = sb_spin(target, start_ns, delay_ns);
	this_cpu_add(target->counts->injected_ns, spent_ns);
	if (spent_ns < delay_ns)
		this_cpu_inc(target->counts->interrupted);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
static int handler(struct uprobe_consumer *consumer, struct pt_regs *regs, __u64 *data)
#else
static int handler(struct uprobe_consumer *consumer, struct pt_regs *regs)
#endif
{
	on_hit(container_of(consumer, struct sb_target, consumer));
	return 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
static int attach(struct sb_target *target)
{
	target->uprobe = uprobe_register(target->inode, target->offset, 0, &target->consumer);
	return PTR_ERR_OR_ZERO(target->uprobe);
}

static void detach(struct sb_target *target)
{
	uprobe_unregister_nosync(target->uprobe, &target->consumer);
}

static void wait(void)
{
	uprobe_unregister_sync();
}
#else
static int attach(struct sb_target *target)
{
	return uprobe_register(target->inode, target->offset, &target->consumer);
}

/* Takes the lock of the uprobe that its handlers share: when it is back, none runs. */
static void detach(struct sb_target *target)
{
	uprobe_unregister(target->inode, target->offset, &target->consumer);
}

static void wait(void)
{
}
#endif

/**
 * sb_probe_attach - puts the breakpoint of a target in place
 * @target: a target whose inode and offset are known
 *
 * Return: 0; -EOPNOTSUPP if the kernel cannot step over the instruction; -EBUSY if another tracer
 * has a semaphore there; or what the kernel says, such as -EIO for a file system that cannot have
 * uprobes.
 */
int sb_probe_attach(struct sb_target *target)
{
	int err;

	target->consumer.handler = handler;
	err = attach(target);
	switch (err) {
	case -ENOTSUPP:
		/* The kernel's own number, which no program knows. */
		return -EOPNOTSUPP;
	case -EINVAL:
		/* A command is not to blame: its offset is that of a function. */
		return -EBUSY;
	default:
		return err;
	}
}

/**
 * sb_probe_detach - takes it away
 * @target: the target, stopped, so that nothing waits for spins
 *
 * Handlers may still be at work until sb_probe_wait() returns.
 */
void sb_probe_detach(struct sb_target *target)
{
	detach(target);
}

/** sb_probe_wait - waits until no handler of a detached probe runs. */
void sb_probe_wait(void)
{
	wait();
}
