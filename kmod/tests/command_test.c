// SPDX-License-Identifier: GPL-2.0-only
/* The parser of commands: a table of lines, and random ones. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../command.h"
#include "random.h"

static unsigned int tests, failed;

static void expect(bool holds, const char *line, const char *what)
{
	tests++;
	if (!holds) {
		failed++;
		printf("not ok - '%s': %s\n", line, what);
	}
}

/* From memory that ends where the line does, so that the sanitizer sees what is read beyond. */
static int parse(const char *line, size_t length, struct sb_command *command)
{
	char *copy = malloc(length ? length : 1);
	int err;

	memcpy(copy, line, length);
	err = sb_parse_command(copy, length, command);
	free(copy);
	return err;
}

static void refuses(const char *line, int err)
{
	struct sb_command command;
	int got = parse(line, strlen(line), &command);

	expect(got == -err, line, got ? strerrorname_np(-got) : "accepted");
}

static void accepts(const char *line, struct sb_command wanted)
{
	struct sb_command got;
	int err = parse(line, strlen(line), &got);

	expect(!err, line, err ? strerrorname_np(-err) : "");
	if (err)
		return;
	expect(got.verb == wanted.verb, line, "verb");
	expect(!strcmp(got.path, wanted.path), line, "path");
	expect(!strcmp(got.symbol, wanted.symbol), line, "symbol");
	expect(got.has_delay == wanted.has_delay && got.delay_ns == wanted.delay_ns, line, "delay");
	expect(got.pid == wanted.pid, line, "process");
}

static void table(void)
{
	char line[SB_LINE_MAX + 2];

	accepts("+/a:b", (struct sb_command){ SB_ADD, "/a", "b", false, 0, 0 });
	accepts("+/a:b\n", (struct sb_command){ SB_ADD, "/a", "b", false, 0, 0 });
	accepts("+/a:b 0", (struct sb_command){ SB_ADD, "/a", "b", true, 0, 0 });
	accepts("+/a:b 10000000000",
		(struct sb_command){ SB_ADD, "/a", "b", true, SB_DELAY_MAX_NS, 0 });
	accepts("+/a:b 007", (struct sb_command){ SB_ADD, "/a", "b", true, 7, 0 });
	accepts("+/a:b pid=1", (struct sb_command){ SB_ADD, "/a", "b", false, 0, 1 });
	accepts("+/a:b 5 pid=2147483647\n",
		(struct sb_command){ SB_ADD, "/a", "b", true, 5, 2147483647 });
	accepts("=/a:b", (struct sb_command){ SB_UPDATE, "/a", "b", false, 0, 0 });
	accepts("=/a:b 3", (struct sb_command){ SB_UPDATE, "/a", "b", true, 3, 0 });
	accepts("-/a:b", (struct sb_command){ SB_REMOVE, "/a", "b", false, 0, 0 });
	accepts("-*\n", (struct sb_command){ SB_REMOVE_ALL, "", "", false, 0, 0 });
	accepts("+/a:b:c", (struct sb_command){ SB_ADD, "/a:b", "c", false, 0, 0 });
	accepts("+/a:_ZN1a1bE.llvm.1$x",
		(struct sb_command){ SB_ADD, "/a", "_ZN1a1bE.llvm.1$x", false, 0, 0 });
	accepts("+/\xc3\xa4:\xc3\xb6",
		(struct sb_command){ SB_ADD, "/\xc3\xa4", "\xc3\xb6", false, 0, 0 });
	/* Whether such a symbol is in the file is another question. */
	accepts("+/a:pid=1", (struct sb_command){ SB_ADD, "/a", "pid=1", false, 0, 0 });
	accepts("+/a:*", (struct sb_command){ SB_ADD, "/a", "*", false, 0, 0 });

	refuses("", EINVAL);
	refuses("\n", EINVAL);
	refuses("+", EINVAL);
	refuses("*", EINVAL);
	refuses("-", EINVAL);
	refuses("+*", EINVAL);
	refuses("=*", EINVAL);
	refuses("-**", EINVAL);
	refuses("-* ", EINVAL);
	refuses(" -*", EINVAL);
	refuses("+/a", EINVAL);
	refuses("+/a:", EINVAL);
	refuses("+:b", EINVAL);
	refuses("+a:b", EINVAL);
	refuses("+/a:b ", EINVAL);
	refuses("+/a:b  5", EINVAL);
	refuses("+/a:b 5 ", EINVAL);
	refuses("+/a: b", EINVAL);
	refuses("+/a:b x", EINVAL);
	refuses("+/a:b +5", EINVAL);
	refuses("+/a:b 5\n\n", EINVAL);
	refuses("+/a:b\r\n", EINVAL);
	refuses("+/a:b\x7f", EINVAL);
	refuses("+/a:b 5 6", EINVAL);
	refuses("+/a:b pid=1 5", EINVAL);
	refuses("+/a:b pid=", EINVAL);
	refuses("+/a:b pid=0", EINVAL);
	refuses("+/a:b pid=-1", EINVAL);
	refuses("+/a:b 5 pid=1 x", EINVAL);
	refuses("=/a:b pid=1", EINVAL);
	refuses("-/a:b 5", EINVAL);
	refuses("+/a:b 10000000001", ERANGE);
	refuses("+/a:b 18446744073709551616", ERANGE);
	refuses("+/a:b 99999999999999999999999999x", EINVAL);
	refuses("+/a:b pid=2147483648", ERANGE);

	snprintf(line, sizeof(line), "+/%0254d:%0127d", 0, 0);
	expect(!parse(line, strlen(line), &(struct sb_command){}), line, "the longest names");
	snprintf(line, sizeof(line), "+/%0255d:b", 0);
	refuses(line, ENAMETOOLONG);
	snprintf(line, sizeof(line), "-/%0255d:b", 0);
	refuses(line, ENAMETOOLONG);
	snprintf(line, sizeof(line), "+/a:%0128d", 0);
	refuses(line, ENAMETOOLONG);
	snprintf(line, sizeof(line), "+/a:b %0*d", SB_LINE_MAX - 6, 1);
	expect(strlen(line) == SB_LINE_MAX, "the longest line", "length");
	expect(!parse(line, strlen(line), &(struct sb_command){}), "the longest line", "refused");
	expect(parse(line, SB_LINE_MAX + 1, &(struct sb_command){}) == -EINVAL, "a longer line",
	       "accepted");
	expect(parse("+/a:b\0c", 7, &(struct sb_command){}) == -EINVAL, "a NUL", "accepted");
}

/* As the command is written. */
static size_t print(const struct sb_command *command, char *to, size_t size)
{
	static const char verbs[] = { [SB_ADD] = '+', [SB_UPDATE] = '=', [SB_REMOVE] = '-' };
	size_t length;

	if (command->verb == SB_REMOVE_ALL)
		return snprintf(to, size, "-*");
	length = snprintf(to, size, "%c%s:%s", verbs[command->verb], command->path,
			  command->symbol);
	if (command->has_delay)
		length += snprintf(to + length, size - length, " %llu",
				   (unsigned long long)command->delay_ns);
	if (command->pid)
		length += snprintf(to + length, size - length, " pid=%d", command->pid);
	return length;
}

/* An accepted command, written out again, is the line, up to leading zeros and the newline. */
static void check_accepted(const char *line, const struct sb_command *command)
{
	char text[SB_LINE_MAX + 64];
	struct sb_command again;
	size_t length = print(command, text, sizeof(text));

	expect(command->delay_ns <= SB_DELAY_MAX_NS, line, "delay");
	expect(command->pid >= 0, line, "process");
	expect(strlen(command->path) < SB_PATH_SIZE && strlen(command->symbol) < SB_SYMBOL_SIZE,
	       line, "length");
	expect(!strpbrk(command->path, " \n\t") && !strpbrk(command->symbol, " \n\t:"), line,
	       "separators");
	if (length <= SB_LINE_MAX) {
		expect(!parse(text, length, &again), line, "not accepted again");
		expect(!memcmp(&again, command, sizeof(again)), line, "another command");
	}
}

static void random_lines(unsigned int count)
{
	static const char *const pieces[] = {
		"+", "-", "=", "*", "/", ":", " ", "\n", "pid=", "0", "1", "10000000000",
		"/bin/true", "99999999999999999999", "main", "/a:b", " pid=7", " 5", "+/a:b", "\t",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};
	struct sb_command command;
	unsigned int accepted = 0;

	while (count--) {
		char line[SB_LINE_MAX * 2] = "+/a:b";
		size_t length = random_below(2) ? 5 : 0;
		unsigned int parts = random_below(random_below(8) ? 6 : 24);

		while (parts--) {
			const char *piece = pieces[random_below(sizeof(pieces) / sizeof(*pieces))];

			memcpy(line + length, piece, strlen(piece));
			length += strlen(piece);
		}
		if (length && !random_below(3))
			line[random_below(length)] = random_number() >> 40;
		line[length] = '\0';
		if (!parse(line, length, &command)) {
			accepted++;
			check_accepted(line, &command);
		}
	}
	expect(accepted > 1000, "random lines", "hardly any was a command");
}

int main(void)
{
	table();
	random_lines(500000);
	printf("%s - commands: %u checks, %u failed\n", failed ? "not ok" : "ok", tests, failed);
	return failed != 0;
}
