/*
 * Calls a native function and measures it from inside, as its caller sees it. What caller.py is to Python
 * functions: `measure CALLS 0` answers with what a call of `called` took in each round, in ns, and what the
 * call of another function right after it took; `measure CALLS SLEEP_US` sleeps before each call of both.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* So long the processor works before calls are measured that do not sleep. */
#define WARM_UP_NS 20000000u

__attribute__((noinline)) static int work(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x * 3;
}

/* They call something and keep a frame, as most functions do: they begin with a push. */
#define FUNCTION(name)                                                                                       \
	__attribute__((noinline)) int name(int x)                                                            \
	{                                                                                                    \
		return work(x) + 1;                                                                          \
	}
FUNCTION(called)
FUNCTION(next_called)
FUNCTION(twin)

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void print(const char *name, const uint64_t *times, int count)
{
	printf("\"%s\":[", name);
	for (int i = 0; i < count; i++)
		printf(i ? ",%llu" : "%llu", (unsigned long long)times[i]);
	printf("]");
}

static void measure_at_once(int calls, uint64_t *first, uint64_t *after)
{
	for (uint64_t start = now(); now() - start < WARM_UP_NS;)
		next_called(0);
	for (int i = 0; i < calls; i++) {
		uint64_t begin = now();
		called(i);
		uint64_t middle = now();
		next_called(i);
		uint64_t end = now();
		first[i] = middle - begin;
		after[i] = end - middle;
	}
}

static void measure_slept(int calls, int sleep_us, uint64_t *first, uint64_t *other)
{
	struct timespec pause = {sleep_us / 1000000, sleep_us % 1000000 * 1000L};
	for (int i = 0; i < calls; i++) {
		nanosleep(&pause, NULL);
		uint64_t begin = now();
		called(i);
		uint64_t end = now();
		first[i] = end - begin;
		nanosleep(&pause, NULL);
		begin = now();
		twin(i);
		end = now();
		other[i] = end - begin;
	}
}

static void measure(int calls, int sleep_us)
{
	uint64_t *first = calloc(calls, sizeof *first), *other = calloc(calls, sizeof *other);
	if (!first || !other)
		exit(1);
	/* Its pages are there before the first round. */
	memset(first, 1, calls * sizeof *first);
	memset(other, 1, calls * sizeof *other);
	if (sleep_us)
		measure_slept(calls, sleep_us, first, other);
	else
		measure_at_once(calls, first, other);
	printf("{\"event\":\"times\",");
	print("called", first, calls);
	printf(",");
	print("other", other, calls);
	printf("}\n");
	free(first);
	free(other);
}

int main(void)
{
	char line[128];
	int calls, sleep_us;
	setvbuf(stdout, NULL, _IOFBF, 1 << 20);
	printf("{\"event\":\"ready\",\"program\":\"caller.c\",\"pid\":%d,\"called\":\"%p\"}\n", getpid(),
	       (void *)called);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "measure %d %d", &calls, &sleep_us) == 2 && calls > 0)
			measure(calls, sleep_us);
		else if (!strncmp(line, "quit", 4))
			break;
		printf("{\"event\":\"done\",\"command\":\"%.*s\"}\n", (int)strcspn(line, " \n"), line);
		fflush(stdout);
	}
	printf("{\"event\":\"done\",\"command\":\"quit\"}\n");
	return 0;
}
