/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SPEED_BUMP_PROBE_H
#define SPEED_BUMP_PROBE_H

struct sb_target;

int sb_probe_attach(struct sb_target *target);
void sb_probe_detach(struct sb_target *target);
void sb_probe_wait(void);

#endif
