/*
 * Looks like a CPython 3.13 with perf trampolines, and rewrites its perf map again and again, each time with other
 * names for other addresses.
 *
 *     perf_map trampolines    many names, of code that could be trampolines
 *     perf_map garbage        long names, of code that could not
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CODE = 3 << 24, TEXT = 24 << 20 };

/* call rax; ret */
static const unsigned char trampoline[] = { 0xff, 0xd0, 0xc3 };

const unsigned long Py_Version = 0x030d01f0;

static unsigned char *code;
static int width;

/* Not called. */
__attribute__((noinline)) void *_PyEval_EvalFrameDefault(void *thread, void *frame, int flag)
{
	return flag ? thread : frame;
}

static void *rewrite(void *unused)
{
	char path[64], *text = malloc(TEXT);
	unsigned long name = 0;

	snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	for (;;) {
		size_t length = 0, written = 0;
		int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

		for (; length < TEXT - 20000; name++)
			length += sprintf(text + length, "%lx 3 py::f%0*lu:/hostile/%0*lu.py\n",
					  (unsigned long)(code + name * sizeof trampoline % CODE), width, name, width, name);
		while (written < length) {
			ssize_t count = write(file, text + written, length - written);
			if (count < 0)
				break;
			written += count;
		}
		close(file);
	}
	return unused;
}

int main(int count, char **arguments)
{
	int valid = count == 2 && !strcmp(arguments[1], "trampolines");
	pthread_t thread;
	char byte;

	width = valid ? 100 : 7000;
	code = mmap(NULL, CODE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		return 1;
	for (size_t at = 0; valid && at < CODE; at += sizeof trampoline)
		memcpy(code + at, trampoline, sizeof trampoline);
	if (pthread_create(&thread, NULL, rewrite, NULL))
		return 1;
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	while (read(0, &byte, 1) == 1)
		;
	return 0;
}
