/*
 * Processes that say they are a CPython 3.12, with many threads whose stacks are deep, and whose functions are
 * others at each look, of long names.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 200
#define FRAMES 256
#define NAME 1000

char _PyRuntime[4096] __attribute__((aligned(4096)));
const unsigned int Py_Version = 0x030c00f0;
void *_PyEval_EvalFrameDefault(void) { return _PyRuntime; }

static char interpreter[4096], states[THREADS][512], frames[FRAMES][128], codes[FRAMES][256];
static char kind[512], name[64 + 4 * NAME];
static char *cframe[2] = { frames[0], 0 };

static void put(char *at, int offset, uint64_t word) { memcpy(at + offset, &word, 8); }

static void *thread(void *state)
{
	put(state, 144, syscall(SYS_gettid));
	while (pause())
		;
	return NULL;
}

static void begin(void)
{
	pthread_attr_t small;
	pthread_t of;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	put(_PyRuntime, 40, (uint64_t)interpreter);
	put(interpreter, 72, (uint64_t)states[0]);
	for (int i = 0; i < THREADS; i++) {
		put(states[i], 8, i + 1 < THREADS ? (uint64_t)states[i + 1] : 0);
		put(states[i], 56, (uint64_t)cframe);
		if (pthread_create(&of, &small, thread, states[i]))
			abort();
	}
	put(kind, 24, (uint64_t)"code");
	/* A text of so many characters of 4 bytes each, which follow at once. */
	put(name, 16, NAME);
	put(name, 32, (4 | 8) << 2);
	for (int i = 0; i < NAME; i++)
		memcpy(name + 56 + 4 * i, &(uint32_t){ 0x1f600 }, 4);
	for (int i = 0; i < FRAMES; i++) {
		put(frames[i], 0, (uint64_t)codes[i]);
		put(frames[i], 8, i + 1 < FRAMES ? (uint64_t)frames[i + 1] : 0);
		put(codes[i], 8, (uint64_t)kind);
		put(codes[i], 112, (uint64_t)name);
		put(codes[i], 128, (uint64_t)name);
	}
}

int main(int count, char **arguments)
{
	int processes = count > 1 ? atoi(arguments[1]) : 1;
	uint32_t line = 0;

	for (int i = 1; i < processes; i++)
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			goto child;
		}
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
child:
	begin();
	/* Other programs leave a busy loop little time: between two looks it may have changed nothing. */
	for (;; usleep(2000))
		for (int i = 0; i < FRAMES; i++) {
			line = (line + 1) & 0xffffff;
			__atomic_store_n((uint32_t *)(codes[i] + 68), line, __ATOMIC_RELAXED);
		}
}
