/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SPEED_BUMP_LISTING_H
#define SPEED_BUMP_LISTING_H

#include <linux/types.h>

struct file;

ssize_t sb_listing_read(const struct file *reader, char *to, loff_t offset, size_t size);
void sb_listing_close(void);

#endif
