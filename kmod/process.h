/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SPEED_BUMP_PROCESS_H
#define SPEED_BUMP_PROCESS_H

#include <linux/types.h>

struct pid;

int sb_process_get(int number, struct pid **process);
bool sb_current_descends_from(const struct pid *process);

#endif
