// SPDX-License-Identifier: GPL-2.0-only
/* Writes TEXT to FILE in one write, and prints the result: "ok", or the name of the error. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t length;
	int file;

	if (argc != 3) {
		fprintf(stderr, "usage: %s FILE TEXT\n", argv[0]);
		return 2;
	}
	length = strlen(argv[2]);
	file = open(argv[1], O_WRONLY);
	if (file < 0 || write(file, argv[2], length) != (ssize_t)length) {
		puts(strerrorname_np(errno));
		return 1;
	}
	puts("ok");
	return 0;
}
