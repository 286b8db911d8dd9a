/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SPEED_BUMP_BINARY_H
#define SPEED_BUMP_BINARY_H

struct sb_target;

int sb_binary_find(struct sb_target *target);
void sb_binary_put(struct sb_target *target);
const char *sb_binary_state(const struct sb_target *target);

#endif
