/*
 * A process with 65,000 mappings (`mappings`), with 20,000 threads (`threads`), or of which 1,000 children a
 * second are born and end (`children`).
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void work(void)
{
	for (volatile int i = 0; i < 1000; i++)
		;
}

static void *waits(void *nothing)
{
	while (pause())
		;
	return nothing;
}

int main(int count, char **arguments)
{
	const char *kind = count > 1 ? arguments[1] : "";
	int number = 0, program = open("/proc/self/exe", O_RDONLY);
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	if (!strcmp(kind, "mappings"))
		for (; number < 65000; number++)
			if (mmap(0, 4096, number % 2 ? PROT_READ : PROT_READ | PROT_EXEC, MAP_PRIVATE, program, 0) ==
			    MAP_FAILED)
				break;
	if (!strcmp(kind, "threads"))
		while (number < 20000 && !pthread_create(&thread, &small, waits, NULL))
			number++;
	printf("{\"event\":\"ready\",\"pid\":%d,\"number\":%d}\n", getpid(), number);
	fflush(stdout);
	for (;;) {
		for (int i = 0; i < 5 && !strcmp(kind, "children"); i++)
			if (!fork()) {
				work();
				_exit(0);
			}
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		work();
		usleep(5000);
	}
}
