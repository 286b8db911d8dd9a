/*
 * Loads a library, and cuts its file.
 *
 *     host LIBRARY keep       leaves it as it is
 *     host LIBRARY cut        empties the file and restores it again and again
 *     host LIBRARY copies     also loads a new copy ten times a second, and cuts that
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPIES = 200 };

static const char *library;
static char *contents;
static size_t length;
static int copies;

static int restore(int file)
{
	return pwrite(file, contents, length, 0) == (ssize_t)length;
}

/* No library function is called while a file is cut: that would touch what is no longer there. */
static void cut_and_restore(int file, int times)
{
	while (times--) {
		if (ftruncate(file, 0))
			exit(2);
		usleep(rand() % 1000);
		if (!restore(file))
			exit(2);
		usleep(rand() % 3000);
	}
}

static void *cut(void *unused)
{
	char path[4096];
	int file = open(library, O_RDWR);

	(void)unused;
	for (int copy = 0; ; copy++) {
		if (copies && copy < COPIES) {
			close(file);
			snprintf(path, sizeof path, "%s.%d", library, copy);
			file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0755);
			if (file < 0 || !restore(file) || !dlopen(path, RTLD_NOW))
				exit(3);
		}
		cut_and_restore(file, 40);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	struct stat stat;
	pthread_t thread;
	char byte;
	int file;

	if (count != 3 || !dlopen(library = arguments[1], RTLD_NOW)) {
		fprintf(stderr, "%s\n", count == 3 ? dlerror() : "usage: host LIBRARY MODE");
		return 1;
	}
	file = open(library, O_RDONLY);
	if (file < 0 || fstat(file, &stat))
		return 1;
	if (strcmp(arguments[2], "keep")) {
		length = stat.st_size;
		contents = malloc(length);
		copies = !strcmp(arguments[2], "copies");
		if (pread(file, contents, length, 0) != (ssize_t)length || pthread_create(&thread, NULL, cut, NULL))
			return 1;
	}
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	while (read(0, &byte, 1) == 1)
		;
	return 0;
}
