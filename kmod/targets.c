// SPDX-License-Identifier: GPL-2.0-only
/*
 * The list of targets. Looking a file up may wait for a file system that never answers, so that it
 * happens before the lock is taken; under the lock, nothing waits for longer than a spin takes to
 * notice that it must end.
 */
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "binary.h"
#include "probe.h"
#include "process.h"
#include "targets.h"

bool sb_enabled;
u64 sb_default_delay_ns = 1000000;

static DEFINE_MUTEX(lock);
/* All of these are under the lock. */
static LIST_HEAD(targets);
static LIST_HEAD(removed);
static unsigned int count;
/* Of targets that are no more. */
static struct sb_counts past;
static bool closed;

static void reap(struct work_struct *work);
static DECLARE_WORK(reaper, reap);

static void release(struct kref *references)
{
	struct sb_target *target = container_of(references, struct sb_target, references);

	sb_binary_put(target);
	put_pid(target->process);
	free_percpu(target->counts);
	kfree(target);
}

/** sb_target_put - gives a reference back. */
void sb_target_put(struct sb_target *target)
{
	kref_put(&target->references, release);
}

static u64 delay_of(const struct sb_command *command)
{
	return command->has_delay ? command->delay_ns : READ_ONCE(sb_default_delay_ns);
}

/* A target that is neither attached nor listed. */
static int create(const struct sb_command *command, struct sb_target **created)
{
	struct sb_target *target = kzalloc(sizeof(*target), GFP_KERNEL);
	int err;

	if (!target)
		return -ENOMEM;
	kref_init(&target->references);
	strscpy(target->path, command->path, sizeof(target->path));
	strscpy(target->symbol, command->symbol, sizeof(target->symbol));
	target->delay_ns = delay_of(command);
	target->pid = command->pid;

	err = -ENOMEM;
	target->counts = alloc_percpu(struct sb_counts);
	if (!target->counts)
		goto put;
	err = command->pid ? sb_process_get(command->pid, &target->process) : 0;
	if (err)
		goto put;
	err = sb_binary_find(target);
	if (err)
		goto put;
	*created = target;
	return 0;
put:
	sb_target_put(target);
	return err;
}

static bool has_name(const struct sb_target *target, const char *path, const char *symbol)
{
	return !strcmp(target->path, path) && !strcmp(target->symbol, symbol);
}

static struct sb_target *find(const struct sb_command *command)
{
	struct sb_target *target;

	list_for_each_entry(target, &targets, node) {
		if (has_name(target, command->path, command->symbol))
			return target;
	}
	return NULL;
}

/* Two names of one place would add their delays up. */
static bool is_taken(const struct sb_target *new)
{
	const struct sb_target *target;

	list_for_each_entry(target, &targets, node) {
		if (has_name(target, new->path, new->symbol))
			return true;
		if (target->inode == new->inode && target->offset == new->offset)
			return true;
	}
	return false;
}

static int insert(struct sb_target *target)
{
	int err;

	if (closed)
		return -EBUSY;
	if (is_taken(target))
		return -EEXIST;
	if (count == SB_TARGETS_MAX)
		return -ENOSPC;
	/*
	 * Until all of its breakpoints are in place, it does nothing: if one cannot be, the kernel
	 * waits for handlers of the others before it says so.
	 */
	target->stopped = true;
	err = sb_probe_attach(target);
	if (err)
		return err;
	WRITE_ONCE(target->stopped, false);
	list_add_tail(&target->node, &targets);
	count++;
	return 0;
}

static int add(const struct sb_command *command)
{
	struct sb_target *target;
	int err;

	err = create(command, &target);
	if (err)
		return err;
	err = mutex_lock_killable(&lock);
	if (!err) {
		err = insert(target);
		mutex_unlock(&lock);
	}
	if (err)
		sb_target_put(target);
	return err;
}

static int update(const struct sb_command *command)
{
	struct sb_target *target = find(command);

	if (!target)
		return -ENOENT;
	WRITE_ONCE(target->delay_ns, delay_of(command));
	return 0;
}

/*
 * Ends the spins, removes the breakpoint, and leaves the rest to the reaper: a removal waits for
 * nothing.
 */
static void remove(struct sb_target *target)
{
	WRITE_ONCE(target->stopped, true);
	sb_probe_detach(target);
	list_move_tail(&target->node, &removed);
	count--;
	schedule_work(&reaper);
}

static void remove_all(void)
{
	struct sb_target *target, *next;

	/* All of them first, so that all spins end while the first is taken away. */
	list_for_each_entry(target, &targets, node)
		WRITE_ONCE(target->stopped, true);
	list_for_each_entry_safe(target, next, &targets, node)
		remove(target);
}

static int remove_one(const struct sb_command *command)
{
	struct sb_target *target = find(command);

	if (!target)
		return -ENOENT;
	remove(target);
	return 0;
}

/**
 * sb_targets_execute - does what a command says
 * @command: the command
 *
 * Return: 0, or the error that the command's write is to fail with.
 */
int sb_targets_execute(const struct sb_command *command)
{
	int err;

	if (command->verb == SB_ADD)
		return add(command);
	err = mutex_lock_killable(&lock);
	if (err)
		return err;
	if (closed)
		err = -EBUSY;
	else if (command->verb == SB_UPDATE)
		err = update(command);
	else if (command->verb == SB_REMOVE)
		err = remove_one(command);
	else
		remove_all();
	mutex_unlock(&lock);
	return err;
}

static void add_counts(struct sb_counts *sum, const struct list_head *list)
{
	const struct sb_target *target;
	struct sb_counts counts;

	list_for_each_entry(target, list, node) {
		sb_counts_read(target->counts, &counts);
		sb_counts_add(sum, &counts);
	}
}

/** sb_targets_summarize - counts the targets, and what all of them have counted. */
void sb_targets_summarize(struct sb_summary *summary)
{
	mutex_lock(&lock);
	summary->targets = count;
	summary->counts = past;
	add_counts(&summary->counts, &targets);
	add_counts(&summary->counts, &removed);
	mutex_unlock(&lock);
}

/**
 * sb_targets_get - takes a reference to each target
 * @taken: room for all of them
 *
 * Return: how many there are.
 */
unsigned int sb_targets_get(struct sb_target *taken[SB_TARGETS_MAX])
{
	struct sb_target *target;
	unsigned int length = 0;

	mutex_lock(&lock);
	list_for_each_entry(target, &targets, node) {
		kref_get(&target->references);
		taken[length++] = target;
	}
	mutex_unlock(&lock);
	return length;
}

static void reap(struct work_struct *work)
{
	struct sb_target *target, *next;
	LIST_HEAD(done);

	/*
	 * They stay where they are counted until nothing is added to their counts any more. What is
	 * removed during the wait was not waited for, and comes behind what was: it has scheduled
	 * this work anew.
	 */
	mutex_lock(&lock);
	target = list_empty(&removed) ? NULL : list_last_entry(&removed, struct sb_target, node);
	mutex_unlock(&lock);
	if (!target)
		return;
	sb_probe_wait();
	mutex_lock(&lock);
	list_cut_position(&done, &removed, &target->node);
	add_counts(&past, &done);
	mutex_unlock(&lock);
	list_for_each_entry_safe(target, next, &done, node)
		sb_target_put(target);
}

/** sb_targets_close - removes all targets; from now on, commands fail. */
void sb_targets_close(void)
{
	mutex_lock(&lock);
	closed = true;
	remove_all();
	mutex_unlock(&lock);
}

/** sb_targets_reap - waits until no handler runs, and nothing is left. */
void sb_targets_reap(void)
{
	flush_work(&reaper);
}
