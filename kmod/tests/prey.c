// SPDX-License-Identifier: GPL-2.0-only
/*
 * The program that the tests slow down: it calls a function a number of times, in this process or
 * in others. With a fourth argument, it first waits for a line on its standard input, so that a
 * test can act before the first call.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

/* Not functions: a breakpoint here would corrupt them. */
int some_data = 1;
const int some_constant = 2;

/* Something for the compiler to keep a call for. */
volatile unsigned long sink;

__attribute__((noinline, noclone)) void work(void)
{
	sink++;
}

__attribute__((noinline, noclone)) void rest(void)
{
	sink += 2;
}

__attribute__((noinline, noclone, used)) static void local(void)
{
	sink += 3;
}

/* The loader's choice between implementations: no caller ever calls the symbol itself. */
static void (*choose(void))(void)
{
	return work;
}

void chosen(void) __attribute__((ifunc("choose")));

#ifdef __x86_64__
/* The kernel cannot step over a first instruction with this prefix. */
void locked(void);
__asm__(".text\n"
	".globl locked\n"
	".type locked, @function\n"
	"locked: lock incq sink(%rip)\n"
	"ret\n");
#endif

#ifdef LARGE
/* The last of 200,000. */
void large_199999(void);
#endif

static const struct {
	const char *name;
	void (*call)(void);
} functions[] = {
	{ "work", work },
	{ "rest", rest },
	{ "local", local },
#ifdef __x86_64__
	{ "locked", locked },
#endif
#ifdef LARGE
	{ "large_199999", large_199999 },
#endif
};

struct calls {
	void (*call)(void);
	long count;
};

static void *make(void *argument)
{
	const struct calls *calls = argument;

	for (long i = 0; i < calls->count; i++)
		calls->call();
	return NULL;
}

/* Process, child and grandchild: each calls. */
static void descend(const struct calls *calls, int generations)
{
	pid_t child = generations > 1 ? fork() : 0;

	if (generations > 1 && !child) {
		descend(calls, generations - 1);
		_exit(0);
	}
	make((void *)calls);
	if (child > 0)
		waitpid(child, NULL, 0);
}

static void threads(struct calls *calls, int count)
{
	pthread_t thread[16];

	for (int i = 0; i < count; i++)
		pthread_create(&thread[i], NULL, make, calls);
	for (int i = 0; i < count; i++)
		pthread_join(thread[i], NULL);
}

/* One thread calls; the process ends, by another one, when a line has come. */
static void leave(struct calls *calls)
{
	pthread_t thread;

	pthread_create(&thread, NULL, make, calls);
	getchar();
	exit(0);
}

/* Where in its file an address of a program that is not relocated is. */
static unsigned long offset_of(const void *address)
{
	const Elf64_Phdr *segment = (void *)getauxval(AT_PHDR);

	for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++, segment++) {
		if (segment->p_type == PT_LOAD &&
		    (uintptr_t)address - segment->p_vaddr < segment->p_filesz)
			return (uintptr_t)address - segment->p_vaddr + segment->p_offset;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct calls calls = { work, 1 };

	/* As the kernel starts its helper that loads modules. */
	if (argc > 1 && !strcmp(argv[1], "-q")) {
		work();
		return 0;
	}
	if (argc < 4) {
		fprintf(stderr,
			"usage: %s calls|descendants|threads|leaves|place FUNCTION COUNT [wait]\n",
			argv[0]);
		return 2;
	}
	calls.call = NULL;
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		if (!strcmp(argv[2], functions[i].name))
			calls.call = functions[i].call;
	}
	calls.count = atol(argv[3]);
	if (!calls.call)
		return 2;
	if (argc > 4)
		getchar();
	if (!strcmp(argv[1], "calls"))
		make(&calls);
	else if (!strcmp(argv[1], "descendants"))
		descend(&calls, 3);
	else if (!strcmp(argv[1], "threads"))
		threads(&calls, 8);
	else if (!strcmp(argv[1], "leaves"))
		leave(&calls);
	/* For a tracer: the function, and a counter. */
	else if (!strcmp(argv[1], "place"))
		printf("0x%lx(0x%lx)\n", offset_of(calls.call), offset_of(&some_data));
	else
		return 2;
	return 0;
}
