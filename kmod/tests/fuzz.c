// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes random commands, sound and damaged ones, and knows the right answer to the sound
 * ones: it keeps a model of the module's targets, and compares it with the listing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "random.h"

#define FOLDER "/sys/kernel/speed_bump/"
#define TARGETS_MAX 64
#define MANY 65
#define LISTING_SIZE (256 * 1024)
#define DELAY_MAX_NS 10000000000ULL

/* A file; what has the same identity is the same file. */
struct binary {
	const char *path;
	int identity;
	/* What adding a target in it fails with; 0 if that depends on the symbol. */
	int err;
	bool is_many;
};

static struct binary binaries[7];
static char many[MANY][128];
static const char *const symbols[] = { "work", "rest", "local", "some_data", "wor", "chosen" };

struct target {
	char name[400];
	int identity;
	char symbol[128];
};

static struct target targets[TARGETS_MAX];
static int count;
static unsigned long successes, failures;

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	exit(1);
}

static int put(const char *name, const char *text, size_t length)
{
	char path[64];
	int file, err;

	snprintf(path, sizeof(path), FOLDER "%s", name);
	file = open(path, O_WRONLY);
	if (file < 0)
		fail("cannot open %s: %s", path, strerror(errno));
	err = write(file, text, length) < 0 ? errno : 0;
	close(file);
	*(err ? &failures : &successes) += 1;
	return err;
}

static int find(const char *name)
{
	for (int i = 0; i < count; i++) {
		if (!strcmp(targets[i].name, name))
			return i;
	}
	return -1;
}

static void forget(int index)
{
	memmove(&targets[index], &targets[index + 1], (--count - index) * sizeof(*targets));
}

static const struct binary *binary_of(const char *path)
{
	for (size_t i = 0; i < sizeof(binaries) / sizeof(*binaries); i++) {
		if (!strcmp(binaries[i].path, path))
			return &binaries[i];
	}
	return NULL;
}

/* What adding a target must come to. */
static int add(const char *name, const struct binary *binary, const char *symbol)
{
	if (binary->err)
		return binary->err;
	if (!binary->is_many && strcmp(symbol, "work") && strcmp(symbol, "rest") &&
	    strcmp(symbol, "local"))
		return ENOENT;
	if (binary->is_many && strncmp(symbol, "function", 8))
		return ENOENT;
	for (int i = 0; i < count; i++) {
		if (targets[i].identity == binary->identity && !strcmp(targets[i].symbol, symbol))
			return EEXIST;
	}
	if (count == TARGETS_MAX)
		return ENOSPC;
	snprintf(targets[count].name, sizeof(targets[count].name), "%s", name);
	snprintf(targets[count].symbol, sizeof(targets[count].symbol), "%s", symbol);
	targets[count].identity = binary->identity;
	count++;
	return 0;
}

/* Compares the listing with the model, or makes it the model. */
static void check_listing(bool adopt)
{
	static char listing[LISTING_SIZE];
	size_t length = 0;
	ssize_t got;
	int file = open(FOLDER "targets_list", O_RDONLY), lines = 0;

	/* In pieces of all sizes. */
	while ((got = read(file, listing + length, 1 + random_below(5000))) > 0)
		length += got;
	if (got < 0)
		fail("cannot read the listing: %s", strerror(errno));
	close(file);
	listing[length] = '\0';
	if (adopt)
		count = 0;
	for (char *line = strtok(listing, "\n"); line; line = strtok(NULL, "\n"), lines++) {
		char *space = strchr(line, ' ');

		if (!space)
			fail("a listing's line without a space: %s", line);
		*space = '\0';
		if (adopt) {
			char *colon = strrchr(line, ':');
			const struct binary *binary;

			if (lines == TARGETS_MAX)
				fail("more than %d targets", TARGETS_MAX);
			snprintf(targets[count].name, sizeof(targets[count].name), "%s", line);
			*colon = '\0';
			snprintf(targets[count].symbol, sizeof(targets[count].symbol), "%s",
				 colon + 1);
			/*
			 * A path that damage has made, such as one with two slashes, may lead to a
			 * known file.
			 */
			binary = binary_of(line);
			targets[count].identity = binary ? binary->identity : -1;
			if (!binary) {
				char real[PATH_MAX];

				binary = realpath(line, real) ? binary_of(real) : NULL;
				if (binary)
					targets[count].identity = binary->identity;
			}
			count++;
		} else if (lines >= count || strcmp(targets[lines].name, line)) {
			fail("line %d is '%s', not '%s'", lines, line,
			     lines < count ? targets[lines].name : "");
		}
	}
	if (lines != count)
		fail("%d lines for %d targets", lines, count);
}

static size_t damage(char *text, size_t length)
{
	static const char bytes[] = "+-=*: \n\t/0129pid=\xff\x01";
	unsigned int edits = 1 + random_below(4);

	while (edits--) {
		size_t at = random_below(length + 1);

		switch (random_below(5)) {
		case 0:
			memmove(text + at + 1, text + at, length - at);
			length++;
			text[at] = bytes[random_below(sizeof(bytes))];
			break;
		case 1:
			if (at < length) {
				memmove(text + at, text + at + 1, length - at - 1);
				length--;
			}
			break;
		case 2:
			if (at < length)
				text[at] = random_number() >> 40;
			break;
		case 3:
			if (at < length)
				text[at] = bytes[random_below(sizeof(bytes))];
			break;
		default:
			length = random_below(8) ? length : at;
		}
	}
	return length;
}

/* Any of those that README.md has. */
static bool is_known(int err)
{
	static const int known[] = { 0,	     EINVAL, ENAMETOOLONG, ERANGE,  ENOENT, ENOEXEC,
				     EEXIST, ENOSPC, ESRCH,	   ENOTDIR, EISDIR };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (known[i] == err)
			return true;
	}
	return false;
}

static void step(void)
{
	static const unsigned long long delays[] = { 0, 1, 1000, 100000, DELAY_MAX_NS };
	const struct binary *binary = &binaries[random_below(sizeof(binaries) / sizeof(*binaries))];
	const bool use_many = binary->is_many ? random_below(20) : !random_below(20);
	const char *symbol = use_many ? many[random_below(MANY)] : symbols[random_below(6)];
	const char verb = "++++==--"[random_below(8)];
	const bool damaged = !random_below(3);
	char text[1024], name[400];
	size_t length;
	int wanted, got;

	if (!random_below(400)) {
		got = put("targets", "-*", 2);
		if (got)
			fail("-*: %s", strerrorname_np(got));
		count = 0;
		return;
	}
	if (!random_below(50)) {
		got = put("enabled", random_below(4) ? "1" : "0", 1);
		if (got)
			fail("enabled: %s", strerrorname_np(got));
		return;
	}
	snprintf(name, sizeof(name), "%s:%s", binary->path, symbol);
	length = snprintf(text, sizeof(text), "%c%s", verb, name);
	if (verb != '-' && random_below(2))
		length += snprintf(text + length, sizeof(text) - length, " %llu",
				   delays[random_below(5)]);
	if (verb == '+' && !random_below(4))
		length += snprintf(text + length, sizeof(text) - length, " pid=%d",
				   random_below(2) ? 1 : getpid());
	if (random_below(2))
		text[length++] = '\n';

	if (damaged) {
		length = damage(text, length);
		got = put(random_below(10) ? "targets" : "default_delay_ns", text, length);
		if (!is_known(got))
			fail("unknown error %s of '%.*s'", strerrorname_np(got), (int)length, text);
		check_listing(!got);
		return;
	}
	got = put("targets", text, length);
	if (verb == '+') {
		wanted = add(name, binary, symbol);
	} else {
		wanted = find(name) < 0 ? ENOENT : 0;
		if (verb == '-' && !wanted)
			forget(find(name));
	}
	if (got != wanted)
		fail("wanted %s, got %s of '%.*s'", wanted ? strerrorname_np(wanted) : "ok",
		     got ? strerrorname_np(got) : "ok", (int)length, text);
}

int main(int argc, char **argv)
{
	long i, steps;

	if (argc != 7) {
		fprintf(stderr, "usage: %s COUNT SEED PREY LINK MANY SCRIPT\n", argv[0]);
		return 2;
	}
	steps = atol(argv[1]);
	random_state ^= strtoull(argv[2], NULL, 0) << 1;
	binaries[0] = (struct binary){ argv[3], 0, 0, false };
	binaries[1] = (struct binary){ argv[4], 0, 0, false };
	/* More often than the others: it has what fills the list. */
	binaries[2] = (struct binary){ argv[5], 1, 0, true };
	binaries[3] = binaries[2];
	binaries[4] = (struct binary){ argv[6], 2, ENOEXEC, false };
	binaries[5] = (struct binary){ "/dev/null", 3, ENOEXEC, false };
	binaries[6] = (struct binary){ "/none", 4, ENOENT, false };
	for (i = 0; i < MANY; i++) {
		snprintf(many[i], sizeof(many[i]), "function%02ld", i);
		memset(many[i] + 10, 'x', 117);
	}
	for (i = 0; i < steps; i++) {
		step();
		if (!(i % 64))
			check_listing(false);
	}
	check_listing(false);
	printf("%lu commands were done, %lu refused\n", successes, failures);
	return 0;
}
