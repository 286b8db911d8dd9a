/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The commands that are written to /sys/kernel/speed_bump/targets. The parser touches no state, and
 * builds in user space too, where it is tested.
 */
#ifndef SPEED_BUMP_COMMAND_H
#define SPEED_BUMP_COMMAND_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint64_t u64;
#endif

/* Longest line, with its newline. */
#define SB_LINE_MAX 512
/* Sizes of the buffers, with the NUL. */
#define SB_PATH_SIZE 256
#define SB_SYMBOL_SIZE 128
#define SB_DELAY_MAX_NS 10000000000ULL

enum sb_verb {
	SB_ADD,		/* +PATH:SYMBOL [DELAY] [pid=N] */
	SB_UPDATE,	/* =PATH:SYMBOL [DELAY] */
	SB_REMOVE,	/* -PATH:SYMBOL */
	SB_REMOVE_ALL,	/* -* */
};

struct sb_command {
	enum sb_verb verb;
	char path[SB_PATH_SIZE];
	char symbol[SB_SYMBOL_SIZE];
	bool has_delay;
	u64 delay_ns;
	/* 0: every process. */
	int pid;
};

int sb_parse_command(const char *line, size_t length, struct sb_command *command);
int sb_parse_delay(const char *text, size_t length, u64 *delay_ns);

#endif
