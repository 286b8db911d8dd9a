// SPDX-License-Identifier: GPL-2.0-only
/*
 * The filter by process. We keep and compare a struct pid and not a number: a number that the
 * kernel reuses means another process.
 */
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "process.h"

/* The tree may change as it is walked; then the walk starts anew, this often. */
#define ATTEMPTS 8

/**
 * sb_process_get - looks a process up
 * @number: its PID, as the writer's PID namespace numbers processes
 * @process: the process; give it back with put_pid()
 *
 * Return: 0, or -ESRCH if there is no such process. A thread is none.
 */
int sb_process_get(int number, struct pid **process)
{
	struct pid *pid = find_get_pid(number);
	bool found;

	rcu_read_lock();
	found = pid && pid_task(pid, PIDTYPE_TGID);
	rcu_read_unlock();
	if (!found) {
		put_pid(pid);
		return -ESRCH;
	}
	*process = pid;
	return 0;
}

/* 1: it is there, 0: it is not, -1: the tree changed under the walk. */
static int walk(const struct pid *process)
{
	const struct task_struct *task = current;

	for (;;) {
		if (task_tgid((struct task_struct *)task) == process)
			return 1;
		/*
		 * PID 0 is where every chain ends, and its own parent. Not every chain has PID 1
		 * in it: what the kernel starts descends from kthreadd.
		 */
		if (!task_pid_nr((struct task_struct *)task))
			return 0;
		/* The parent of a task that has been released is not kept up to date. */
		if (!pid_alive(task))
			return -1;
		task = rcu_dereference(task->real_parent);
	}
}

/**
 * sb_current_descends_from - is this task of a process, or of one of its descendants?
 * @process: the process
 */
bool sb_current_descends_from(const struct pid *process)
{
	int attempt, found = -1;

	for (attempt = 0; attempt < ATTEMPTS && found < 0; attempt++) {
		rcu_read_lock();
		found = walk(process);
		rcu_read_unlock();
	}
	return found > 0;
}
