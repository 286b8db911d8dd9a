// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parses one command. Words are separated by exactly one space; a single newline may end the line.
 * Everything else is refused rather than guessed at.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <limits.h>
#include <string.h>
#endif

#include "command.h"

struct span {
	const char *start;
	size_t length;
};

/*
 * Takes the first word off @rest, and the space behind it. Fails on an empty word: two spaces, or
 * one at an end.
 */
static int next_word(struct span *rest, struct span *word)
{
	const char *space = memchr(rest->start, ' ', rest->length);

	word->start = rest->start;
	word->length = space ? (size_t)(space - rest->start) : rest->length;
	if (!word->length)
		return -EINVAL;
	rest->start += word->length;
	rest->length -= word->length;
	if (space) {
		rest->start++;
		rest->length--;
		if (!rest->length)
			return -EINVAL;
	}
	return 0;
}

/* Control characters, the newline and NUL among them, have no place in a line. */
static bool is_printable(struct span line)
{
	size_t i;

	for (i = 0; i < line.length; i++) {
		unsigned char byte = line.start[i];

		if (byte < ' ' || byte == 0x7f)
			return false;
	}
	return true;
}

/* Decimal digits, and nothing else. */
static int parse_number(struct span text, u64 max, u64 *number)
{
	u64 value = 0;
	bool too_large = false;
	size_t i;

	if (!text.length)
		return -EINVAL;
	for (i = 0; i < text.length; i++) {
		unsigned int digit = (unsigned char)text.start[i] - '0';

		if (digit > 9)
			return -EINVAL;
		/* max is far below 2^64: value cannot wrap before this check. */
		value = too_large ? value : value * 10 + digit;
		too_large = too_large || value > max;
	}
	if (too_large)
		return -ERANGE;
	*number = value;
	return 0;
}

static int copy(char *to, size_t size, struct span from)
{
	if (from.length >= size)
		return -ENAMETOOLONG;
	memcpy(to, from.start, from.length);
	to[from.length] = '\0';
	return 0;
}

/*
 * PATH:SYMBOL, separated by the last colon: compilers put none into symbols, but a path may
 * have one.
 */
static int parse_place(struct span word, struct sb_command *command)
{
	struct span path = word, symbol;
	size_t colon = word.length;
	int err;

	while (colon && word.start[colon - 1] != ':')
		colon--;
	if (!colon)
		return -EINVAL;
	path.length = colon - 1;
	symbol.start = word.start + colon;
	symbol.length = word.length - colon;
	if (!path.length || !symbol.length || path.start[0] != '/')
		return -EINVAL;
	err = copy(command->path, sizeof(command->path), path);
	return err ? err : copy(command->symbol, sizeof(command->symbol), symbol);
}

static bool is_pid(struct span word)
{
	return word.length >= 4 && !memcmp(word.start, "pid=", 4);
}

static int parse_pid(struct span word, struct sb_command *command)
{
	u64 pid;
	int err;

	word.start += 4;
	word.length -= 4;
	err = parse_number(word, INT_MAX, &pid);
	if (err)
		return err;
	/* PID 0 is the idle task; it never calls a function of a file. */
	if (!pid)
		return -EINVAL;
	command->pid = pid;
	return 0;
}

static int parse_options(struct span rest, struct sb_command *command)
{
	struct span word;
	int err;

	if (!rest.length)
		return 0;
	err = next_word(&rest, &word);
	if (err)
		return err;
	if (!is_pid(word)) {
		err = sb_parse_delay(word.start, word.length, &command->delay_ns);
		if (err)
			return err;
		command->has_delay = true;
		if (!rest.length)
			return 0;
		err = next_word(&rest, &word);
		if (err)
			return err;
	}
	if (rest.length || !is_pid(word) || command->verb != SB_ADD)
		return -EINVAL;
	return parse_pid(word, command);
}

/**
 * sb_parse_delay - reads a delay in nanoseconds
 * @text: what was written, without a newline
 * @length: its length
 * @delay_ns: the delay
 *
 * Return: 0, -EINVAL if it is not a number, -ERANGE beyond ten seconds.
 */
int sb_parse_delay(const char *text, size_t length, u64 *delay_ns)
{
	struct span span = { text, length };

	return parse_number(span, SB_DELAY_MAX_NS, delay_ns);
}

/**
 * sb_parse_command - reads one command
 * @line: what was written; it need not end in NUL
 * @length: its length
 * @command: the command; undefined if this fails
 *
 * Return: 0, -EINVAL, -ENAMETOOLONG or -ERANGE.
 */
int sb_parse_command(const char *line, size_t length, struct sb_command *command)
{
	struct span rest = { line, length }, word;
	int err;

	if (length > SB_LINE_MAX)
		return -EINVAL;
	if (rest.length && rest.start[rest.length - 1] == '\n')
		rest.length--;
	if (rest.length < 2 || !is_printable(rest))
		return -EINVAL;

	memset(command, 0, sizeof(*command));
	switch (*rest.start) {
	case '+':
		command->verb = SB_ADD;
		break;
	case '=':
		command->verb = SB_UPDATE;
		break;
	case '-':
		command->verb = SB_REMOVE;
		break;
	default:
		return -EINVAL;
	}
	rest.start++;
	rest.length--;

	if (command->verb == SB_REMOVE && rest.length == 1 && *rest.start == '*') {
		command->verb = SB_REMOVE_ALL;
		return 0;
	}
	err = next_word(&rest, &word);
	if (err)
		return err;
	err = parse_place(word, command);
	if (err)
		return err;
	if (command->verb == SB_REMOVE)
		return rest.length ? -EINVAL : 0;
	return parse_options(rest, command);
}
