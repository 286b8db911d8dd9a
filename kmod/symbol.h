/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SPEED_BUMP_SYMBOL_H
#define SPEED_BUMP_SYMBOL_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include "tests/userspace.h"
#endif

struct file;

int sb_find_function(struct file *file, const char *name, loff_t *offset);

#endif
