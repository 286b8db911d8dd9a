/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The targets: what there is to delay, and how commands change it.
 *
 * A target lives as long as it has a reference. The list refers to it until it is removed; after
 * that, the reaper does, until no handler can be in it.
 */
#ifndef SPEED_BUMP_TARGETS_H
#define SPEED_BUMP_TARGETS_H

#include <linux/compiler.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/path.h>
#include <linux/time64.h>
#include <linux/types.h>
#include <linux/uprobes.h>

#include "command.h"
#include "counts.h"

#define SB_TARGETS_MAX 64

struct sb_target {
	struct kref references;
	struct list_head node;

	/* As written: what commands name it by. */
	char path[SB_PATH_SIZE];
	char symbol[SB_SYMBOL_SIZE];

	/* Keeps what it is on mounted. */
	struct path file;
	/* Where the breakpoint is: on overlayfs, not the inode that the path leads to. */
	struct inode *inode;
	loff_t offset;
	/* The file as it was when the target was added. */
	loff_t size;
	struct timespec64 modified;

	/* Whom it is for; NULL: every process. */
	struct pid *process;
	int pid;

	u64 delay_ns;
	/* It delays nothing, and spins in flight end. */
	bool stopped;
	struct sb_counts __percpu *counts;

	struct uprobe_consumer consumer;
	struct uprobe *uprobe;
};

struct sb_summary {
	unsigned int targets;
	/* Of all targets, removed ones too. */
	struct sb_counts counts;
};

extern bool sb_enabled;
extern u64 sb_default_delay_ns;

static inline bool sb_target_is_active(const struct sb_target *target)
{
	return READ_ONCE(sb_enabled) && !READ_ONCE(target->stopped);
}

int sb_targets_execute(const struct sb_command *command);
void sb_targets_summarize(struct sb_summary *summary);
unsigned int sb_targets_get(struct sb_target *targets[SB_TARGETS_MAX]);
void sb_target_put(struct sb_target *target);
void sb_targets_close(void);
void sb_targets_reap(void);

#endif
